"""`Runtime`: SGLang's handle of a server, on an engine in this process."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator

import pytest

import sglang_lite as sgl
from sglang_lite.errors import RequestError, UnsupportedError
from sglang_lite.request_tree import Backend
from sglang_lite.runtime.engine import model_executor
from sglang_lite.runtime.engine.runtime_facade import Runtime
from tests.support.engine_fixture import load_once

pytestmark = pytest.mark.model

GREEDY = {"temperature": 0, "max_new_tokens": 6}


@pytest.fixture(scope="module")
def runtime() -> Iterator[Runtime]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(model_executor, "load_model", load_once)
        made = sgl.Runtime(dtype="float32", max_total_tokens=1024, num_threads=1, log_level="error")
    with made:
        yield made


def test_a_reply_is_a_json_text(runtime: Runtime) -> None:
    reply = json.loads(runtime.generate("The capital of France is", GREEDY, return_logprob=True))
    assert reply["meta_info"]["completion_tokens"] == 6
    two = json.loads(runtime.generate(["The capital of France is", "1, 2, 3,"], GREEDY))
    assert two[0]["text"] == reply["text"]


def test_pieces_come_asynchronously(runtime: Runtime) -> None:
    async def collect() -> list[str]:
        return [piece async for piece in runtime.add_request("The capital of France is", GREEDY)]

    pieces = asyncio.run(collect())
    assert len(pieces) > 1
    assert "".join(pieces) == json.loads(runtime.generate("The capital of France is", GREEDY))["text"]


def test_programs_run_on_it_by_object_by_endpoint_and_by_url(runtime: Runtime) -> None:
    @sgl.function
    def f(s: sgl.ProgramState) -> None:
        s += "The capital of France is" + sgl.gen("x", max_tokens=4, temperature=0)

    assert isinstance(runtime.endpoint, Backend)
    texts = {f.run(backend=backend)["x"] for backend in (runtime, runtime.endpoint, runtime.url)}
    assert len(texts) == 1


def test_a_cached_prefix_is_reused(runtime: Runtime) -> None:
    prefix = "A prefix that is long enough to fill a page or two of the pool, which holds sixteen tokens. " * 2
    runtime.endpoint.flush_cache()
    runtime.cache_prefix(prefix)
    reply = json.loads(runtime.generate(prefix + " And more", GREEDY))
    assert reply["meta_info"]["cached_tokens"] >= 16


def test_what_it_can_be_asked(runtime: Runtime) -> None:
    ids = runtime.get_tokenizer().encode("Hello", parse_special=False)
    assert runtime.get_tokenizer().decode(ids) == "Hello"
    assert runtime.endpoint.get_model_name()
    assert asyncio.run(runtime.get_server_info()).keys() == runtime.endpoint.get_server_info().keys()
    with pytest.raises(UnsupportedError, match="embeddings"):
        runtime.encode("Hello")
    with pytest.raises(RequestError, match="no such Runtime"):
        sgl.set_default_backend("runtime:999999")


def test_two_live_side_by_side_and_end_apart(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_executor, "load_model", load_once)
    with sgl.Runtime(dtype="float32", max_total_tokens=256, num_threads=1) as other:
        assert json.loads(other.generate("1, 2, 3,", GREEDY)) is not None
        assert other.url != runtime.url
    assert json.loads(runtime.generate("1, 2, 3,", GREEDY))["text"]
