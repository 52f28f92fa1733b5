"""Names of backends, the default, scopes."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from sglang_lite.errors import RequestError
from sglang_lite.lang import (
    ProgramState,
    ScriptedBackend,
    backend_scope,
    flush_cache,
    function,
    gen,
    get_server_info,
    register_backend,
    resolve_backend,
    set_default_backend,
)
from sglang_lite.lang.backends import registry
from tests.lang.support import Background, HandBackend


class Closable(HandBackend):
    """Counts how often it was shut down."""

    def __init__(self, rest: str) -> None:
        super().__init__()
        self.rest = rest
        self.num_shutdowns = 0

    def shutdown(self) -> None:
        self.num_shutdowns += 1


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SGLANG_LITE_BACKEND", raising=False)
    monkeypatch.setattr(registry, "_factories", dict(registry._factories))
    monkeypatch.setattr(registry, "_named", {})
    monkeypatch.setattr(registry, "_default", None)
    registry._set_here.set(None)


@function
def program(s: ProgramState) -> None:
    s += gen("x")


def test_a_string_is_a_scheme_and_a_rest_and_one_object() -> None:
    register_backend("hand", Closable)
    first = resolve_backend("hand:some:path")
    assert isinstance(first, Closable)
    assert first.rest == "some:path"
    assert resolve_backend("hand:some:path") is first
    assert resolve_backend("hand") is not first


def test_an_unknown_scheme_names_the_known_ones() -> None:
    with pytest.raises(RequestError, match=r"finding the backend 'nope:x': unknown scheme 'nope', expected one of \["):
        resolve_backend("nope:x")
    with pytest.raises(RequestError, match="scheme 'a:b'"):
        register_backend("a:b", Closable)


def test_an_object_is_a_backend_or_has_one_as_endpoint() -> None:
    backend = HandBackend()

    class Runtime:
        endpoint = backend

    assert resolve_backend(backend) is backend
    assert resolve_backend(Runtime()) is backend
    with pytest.raises(RequestError, match="got 3, expected a backend object"):
        resolve_backend(3)


def test_scripted_strings_name_a_file_or_placeholders(tmp_path: Path) -> None:
    path = tmp_path / "replies.json"
    path.write_text(json.dumps(["from the file"]))
    assert program.run(backend=f"scripted:{path}")["x"] == "from the file"
    assert program.run(backend="scripted")["x"] == "<x>"


def test_the_default_is_used_where_nothing_is_said() -> None:
    set_default_backend(ScriptedBackend(["default"]))
    assert program.run()["x"] == "default"
    set_default_backend("scripted")
    assert program.run()["x"] == "<x>"


def test_threads_that_set_a_default_keep_their_own() -> None:
    """Both set theirs before either runs; a thread that sets none has the last one."""
    both_are_set = threading.Barrier(2)

    def run(reply: str) -> str:
        set_default_backend(ScriptedBackend([reply]))
        both_are_set.wait(20)
        return program.run()["x"]

    running = [Background(lambda reply=reply: run(reply)) for reply in ("one", "two")]
    assert [thread.result() for thread in running] == ["one", "two"]
    set_default_backend(ScriptedBackend(["main"]))
    assert Background(lambda: program.run()["x"]).result() == "main"


def test_tasks_that_set_a_default_keep_their_own() -> None:
    async def run(reply: str, is_set: asyncio.Event, other: asyncio.Event) -> str:
        set_default_backend(ScriptedBackend([reply]))
        is_set.set()
        await other.wait()
        return (await program.run_async())["x"]

    async def main() -> list[str]:
        one, two = asyncio.Event(), asyncio.Event()
        return await asyncio.gather(run("one", one, two), run("two", two, one))

    assert asyncio.run(main()) == ["one", "two"]


def test_a_named_default_that_was_shut_down_is_none() -> None:
    set_default_backend("scripted")
    registry.shutdown_named_backends()
    assert get_server_info() is None


def test_the_variable_names_the_default(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("SGLANG_LITE_BACKEND", "scripted")
    assert program.run()["x"] == "<x>"
    assert resolve_backend() is resolve_backend("scripted")
    assert capsys.readouterr().err == ""


def test_without_any_the_first_run_makes_one_local_and_says_so_once(capsys: pytest.CaptureFixture[str]) -> None:
    made: list[str] = []

    def factory(rest: str) -> Any:
        made.append(rest)
        return ScriptedBackend()

    register_backend("local", factory)
    runs = [Background(lambda: program.run()["x"]) for _ in range(8)]
    assert [run.result() for run in runs] == ["<x>"] * 8
    assert made == [""]
    assert capsys.readouterr().err.count("no backend was set; starting 'local'") == 1


def test_a_scope_is_of_its_thread_or_task() -> None:
    set_default_backend(ScriptedBackend(["default", "default", "default"]))
    inside = threading.Event()
    seen = threading.Event()

    def scoped() -> list[str]:
        with backend_scope(ScriptedBackend(["scope"])) as found:
            inside.set()
            assert seen.wait(20)
            assert resolve_backend() is found
            first = program.run()["x"]
        return [first, program.run()["x"]]

    background = Background(scoped)
    assert inside.wait(20)
    assert program.run()["x"] == "default"
    seen.set()
    assert background.result() == ["scope", "default"]


def test_helpers_on_the_default_make_no_backend() -> None:
    assert flush_cache() is False
    assert get_server_info() is None
    set_default_backend(HandBackend())
    assert flush_cache() is True
    assert get_server_info() == {"programs": 0}
    assert flush_cache(ScriptedBackend()) is False
    assert get_server_info("scripted") == {"backend": "scripted", "chat_template": "plain", "num_calls": 0}


def test_named_backends_are_shut_down_and_forgotten() -> None:
    register_backend("hand", Closable)
    named = resolve_backend("hand")
    set_default_backend("hand")
    own = Closable("own")
    registry.shutdown_named_backends()
    assert isinstance(named, Closable)
    assert (named.num_shutdowns, own.num_shutdowns) == (1, 0)
    assert registry.current_backend() is None
    assert resolve_backend("hand") is not named


EXIT_SCRIPT = """
import sys
from sglang_lite.lang import ScriptedBackend, function, gen, register_backend

class Closing(ScriptedBackend):
    def shutdown(self):
        super().shutdown()
        sys.stdout.write("shut down\\n")

register_backend("local", lambda rest: Closing())
f = function(lambda s: s.append(gen("x")))
f.run()
sys.stdout.write("end of script\\n")
"""


def test_the_backend_that_was_made_is_shut_down_at_exit() -> None:
    done = subprocess.run([sys.executable, "-c", EXIT_SCRIPT], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "end of script\nshut down\n"), done.stderr
