"""`Runtime`: a server of its own on the real model, as SGLang's scripts use it; its errors, its end."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import sglang_lite as sgl
from sglang_lite.errors import ModelLoadError, RequestError, UnsupportedError
from sglang_lite.request_tree import Backend
from sglang_lite.runtime_process import Runtime, plain_params
from tests.support.live_server import wait_until

GREEDY = {"temperature": 0, "max_new_tokens": 6}
LONG = {"temperature": 0, "max_new_tokens": 3000, "ignore_eos": True}
TIMEOUT_S = 120


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.fixture(scope="module")
def runtime() -> Iterator[Runtime]:
    with sgl.Runtime(max_total_tokens=4096, num_threads=1, api_key="a secret") as made:
        yield made


@pytest.mark.model
def test_replies_are_json_texts_and_pieces_come_asynchronously(runtime: Runtime) -> None:
    reply = json.loads(runtime.generate("The capital of France is", GREEDY, return_logprob=True))
    assert reply["meta_info"]["completion_tokens"] == 6
    two = json.loads(runtime.generate(["The capital of France is", "1, 2, 3,"], sgl.SamplingParams(**GREEDY)))
    assert two[0]["text"] == reply["text"]

    async def collect() -> list[str]:
        return [piece async for piece in runtime.add_request("The capital of France is", GREEDY)]

    assert "".join(asyncio.run(collect())) == reply["text"]

    async def running_after_the_first_piece() -> int:
        pieces = runtime.add_request("The capital of France is", LONG)
        assert await anext(pieces)
        running = (await runtime.get_server_info())["running"]
        await pieces.aclose()  # type: ignore[attr-defined]
        return running

    assert asyncio.run(running_after_the_first_piece()) == 1


@pytest.mark.model
def test_programs_run_on_it_by_object_by_endpoint_and_by_name(runtime: Runtime) -> None:
    @sgl.function
    def f(s: sgl.ProgramState) -> None:
        s += "The capital of France is" + sgl.gen("x", max_tokens=4, temperature=0)

    assert isinstance(runtime.endpoint, Backend)
    texts = {f.run(backend=backend)["x"] for backend in (runtime, runtime.endpoint, runtime.name)}
    assert len(texts) == 1


@pytest.mark.model
def test_what_it_can_be_asked(runtime: Runtime) -> None:
    prefix = "A prefix that is long enough to fill a page or two of the pool, which holds sixteen tokens. " * 2
    runtime.cache_prefix(prefix)
    assert json.loads(runtime.generate(prefix + " And more", GREEDY))["meta_info"]["cached_tokens"] >= 16
    ids = runtime.get_tokenizer().encode("Hello", parse_special=False)
    assert runtime.get_tokenizer().decode(ids) == "Hello"
    assert asyncio.run(runtime.get_server_info())["max_total_tokens"] == 4096
    with pytest.raises(UnsupportedError, match="embeddings"):
        runtime.encode("Hello")


@pytest.mark.model
def test_errors_of_requests_have_their_types(runtime: Runtime) -> None:
    with pytest.raises(RequestError, match="unknown"):
        runtime.generate("Hello", {"temprature": 1})
    with pytest.raises(UnsupportedError, match="lora_path"):
        runtime.generate("Hello", GREEDY, lora_path=["an adapter"])

    async def wrong() -> None:
        async for _ in runtime.async_generate("Hello", {"temperature": -1}):
            raise AssertionError("a wrong request has no pieces")

    with pytest.raises(RequestError, match="temperature"):
        asyncio.run(wrong())


@pytest.mark.model
def test_the_key_stands_on_no_command_line(runtime: Runtime) -> None:
    assert b"secret" not in Path(f"/proc/{runtime.pid}/cmdline").read_bytes()


@pytest.mark.model
def test_a_script_needs_no_guard_and_its_servers_end_with_it(tmp_path: Path) -> None:
    """Two live at once; the script is killed, and so no line of it ends them."""
    script = tmp_path / "script.py"
    script.write_text(
        "import sglang_lite as sgl, json, sys\n"
        "two = [sgl.Runtime(max_total_tokens=512, num_threads=1) for _ in range(2)]\n"
        "assert two[0].url != two[1].url\n"
        "print(json.dumps([one.pid for one in two]), flush=True)\n"
        "sys.stdin.read()\n"
    )
    running = subprocess.Popen([sys.executable, script], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert running.stdout is not None
    pids = json.loads(running.stdout.readline())
    assert all(map(is_alive, pids))
    running.kill()
    running.communicate(timeout=TIMEOUT_S)
    wait_until(lambda: not any(map(is_alive, pids)))


@pytest.mark.model
def test_the_last_reference_ends_it() -> None:
    made = sgl.Runtime(max_total_tokens=512, num_threads=1)
    pid, name = made.pid, made.name
    assert is_alive(pid)
    made.shutdown()
    made.shutdown()
    assert not is_alive(pid)
    del made
    with pytest.raises(RequestError, match="no such Runtime"):
        sgl.set_default_backend(name)


def test_what_keeps_it_from_starting_has_its_type(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match=r"nowhere\.gguf"):
        sgl.Runtime(tmp_path / "nowhere.gguf")
    with pytest.raises(RequestError, match=r"max_totl_tokens.*did you mean max_total_tokens"):
        sgl.Runtime(max_totl_tokens=3)
    with pytest.raises(UnsupportedError, match="tp-size"):
        sgl.Runtime(tp_size=2)
    with pytest.raises(RequestError, match="no plain value"):
        sgl.Runtime(model_path=None, context_length=object())


def test_parameters_travel_as_what_differs_from_the_defaults() -> None:
    given = [sgl.SamplingParams(max_new_tokens=3, stop=("a", "b")), {"temperature": 0}, None]
    assert plain_params(given) == [{"max_new_tokens": 3, "stop": ["a", "b"]}, {"temperature": 0}, None]
