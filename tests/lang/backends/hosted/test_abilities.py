"""What each API can do: the table of the documentation is what the APIs declare, and each entry of it is tried."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from sglang_lite.errors import UnsupportedError
from sglang_lite.lang import ProgramState, assistant, function, gen, select, user
from sglang_lite.lang.backends.hosted import Anthropic, HostedBackend, LiteLLM, OpenAI
from sglang_lite.lang.backends.hosted.retry import RetryPolicy
from sglang_lite.request_tree import CountOp, RoleBeginOp, TextOp
from tests.lang.backends.hosted.support import no_sleep
from tests.lang.backends.hosted.test_litellm_api import FakeLiteLLM
from tests.lang.backends.hosted.test_program import Ran
from tests.support.hosted_stub import hosted_stub

PAGE = Path(__file__).parents[4] / "docs" / "hosted.md"
POLICY = RetryPolicy(sleep=no_sleep)
APIS = ("OpenAI, chat", "OpenAI, completions", "an sglang_lite server", "Anthropic", "LiteLLM")


def reply(body: dict[str, Any]) -> str:
    """Something that fits whatever is asked for."""
    held = body.get("response_format") or body.get("tools")
    if not held:
        return "\nAge: 3\nJob: x\n" if "prompt" in body else "Name: A\nAge: 3\n"
    schema = (
        body["response_format"]["json_schema"]["schema"]
        if "response_format" in body
        else body["tools"][0]["input_schema"]
    )
    value = schema["properties"].get("value")
    return '{"x": 1}' if value is None else '{"value": "a"}' if "enum" in value else '{"value": 1}'


@contextmanager
def api(name: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[HostedBackend, Any]]:
    """One of `APIS`, and what counts its paid calls."""
    owner = "sglang_lite" if name == "an sglang_lite server" else "somebody"
    with hosted_stub(reply, owned_by=owner) as stub:
        url = f"{stub.url}/v1"
        backend: HostedBackend
        calls: Any = stub.requests
        if name == "OpenAI, chat":
            backend = OpenAI("m", True, base_url=url, api_key="k", policy=POLICY)
        elif name == "OpenAI, completions":
            backend = OpenAI("m", False, base_url=url, api_key="k", policy=POLICY)
        elif name == "an sglang_lite server":
            backend = OpenAI("m", base_url=url, api_key="k", policy=POLICY)
        elif name == "Anthropic":
            backend = Anthropic("m", base_url=stub.url, api_key="k", policy=POLICY)
        else:
            module = FakeLiteLLM()
            real = module.acompletion

            async def acompletion(**fields: Any) -> Any:
                module.replies = [reply(fields)]
                return await real(**fields)

            module.acompletion = acompletion  # type: ignore[method-assign]
            monkeypatch.setitem(sys.modules, "litellm", module)
            backend = LiteLLM("m", policy=POLICY)
            calls = module.calls
        try:
            yield backend, calls
        finally:
            backend.shutdown()


def turn(**given: Any) -> Any:
    return user("Q") + assistant(gen("a", **given))


SCHEMA = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}
PROGRAMS: dict[str, list[Any]] = {
    "turns": [turn()],
    "gen in a turn of its own": [turn()],
    "gen in a turn that has begun": [user("Q") + assistant("So " + gen("a"))],
    "gen on text outside turns": ["text" + gen("a")],
    "n > 1, stop, temperature, top_p": [turn(n=2, stop=["x", "\n"], temperature=0.5, top_p=0.5)],
    "json_schema, type=": [turn(json_schema=SCHEMA)],
    "dtype=": [turn(dtype=int)],
    "select in turns": [user("Q") + assistant(select("a", ["a", "b"]))],
    "select on text": ["text" + select("a", ["a", "b"])],
    "regex": [turn(regex="N.*")],
    "frequency_penalty, presence_penalty": [turn(frequency_penalty=0.5), turn(presence_penalty=0.5)],
    "top_k": [turn(top_k=3)],
    "min_p, min_tokens, ignore_eos, stop_token_ids": [
        turn(min_p=0.1), turn(min_tokens=1), turn(ignore_eos=True), turn(stop_token_ids=[3])
    ],
    "return_logprob": [turn(return_logprob=True)],
}  # fmt: skip
ELSEWHERE = {
    "num_api_spec_tokens": "test_speculation",
    "tools": "test_tool_turns",
    "ebnf": "the parameter has no name in gen: test_an_op_with_ebnf",
    "fork, join, first=, vote=, copy": "test_program",
    "mark, rewind, hold, ref": "test_program",
    "num_tokens": "test_counting_is_as_declared",
    "stream": "each API's own tests",
}


def documented() -> dict[str, dict[str, str]]:
    lines = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    start = next(i for i, line in enumerate(lines) if APIS[0] in line)
    names = [cell.strip() for cell in lines[start].strip("|").split("|")][1:]
    table: dict[str, dict[str, str]] = {}
    for line in lines[start + 1 :]:
        first, *cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not re.fullmatch(r"-+", first):
            table[first.replace("`", "")] = dict(zip(names, cells, strict=True))
    return table


@pytest.mark.parametrize("name", APIS)
def test_the_page_says_what_the_api_declares(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with api(name, monkeypatch) as (backend, _):
        assert {row: cells[name] for row, cells in documented().items()} == backend.abilities.table()


def test_every_row_is_tried() -> None:
    assert set(documented()) == set(PROGRAMS) | set(ELSEWHERE)
    assert not set(PROGRAMS) & set(ELSEWHERE)


@pytest.mark.parametrize("row", PROGRAMS)
@pytest.mark.parametrize("name", APIS)
def test_each_entry_is_true(name: str, row: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Refused: an error before the first paid call. Else: it runs, and the value is there."""
    for program in PROGRAMS[row]:

        @function
        def f(s: ProgramState, program: Any = program) -> None:
            s += program

        with api(name, monkeypatch) as (backend, calls):
            if backend.abilities.table()[row] == "refused":
                with pytest.raises(UnsupportedError, match="; use "):
                    f.run(backend=backend)
                assert not calls
            else:
                assert f.run(backend=backend)["a"]
                assert calls


@pytest.mark.parametrize("name", APIS)
def test_counting_is_as_declared(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with api(name, monkeypatch) as (backend, calls):
        run = Ran(backend)
        ops = [RoleBeginOp(0, 0, "user"), TextOp(1, 0, "a b"), CountOp(2, 0)]
        if backend.abilities.table()["num_tokens"] == "refused":
            with pytest.raises(UnsupportedError):
                run.program.append(ops)
            assert not calls
        else:
            run.program.append(ops)
            assert run.wait(2).meta["num_tokens"] == 2
