"""A body on symbols: the whole tree where nothing is asked, the line and the reason where something is."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sglang_lite.errors import ProgramError, RequestError
from sglang_lite.lang import ProgramState, ScriptedBackend, assistant, function, gen, select, separate_reasoning, user
from sglang_lite.lang.tracer import TracerProgramState
from sglang_lite.request_tree import ArgOp, ForkOp, GenOp, JoinOp, RefOp, RoleBeginOp, RoleEndOp, SelectOp, TextOp


@function
def judge(s: ProgramState, article: str, num: int = 2) -> None:
    s += "Judge.\n" + article
    forks = s.fork(num)
    for i, fork in enumerate(forks):
        fork += f"Point {i}: " + gen("point", max_tokens=8)
    forks.join()
    for point in s["point"]:
        s += point
    with s.user():
        s += "Grade?"
    with s.assistant(), s.var_scope("turn"):
        s += select("grade", ["A", "B"])
    s += s["turn"]


def kinds(traced: TracerProgramState) -> list[type]:
    return [type(op) for op in traced.tree.ops.values()]


def test_a_program_that_asks_nothing_is_one_closed_tree() -> None:
    traced = judge.trace(num=2)
    assert traced.is_closed
    assert kinds(traced) == [
        *(TextOp, ArgOp, ForkOp, TextOp, GenOp, TextOp, GenOp, JoinOp, RefOp, RefOp),
        *(RoleBeginOp, TextOp, RoleEndOp, RoleBeginOp, SelectOp, RoleEndOp, RefOp),
    ]
    refs = [op.target for op in traced.tree.ops.values() if isinstance(op, RefOp)]
    assert [type(traced.tree.ops[target]) for target in refs] == [GenOp, GenOp, SelectOp]


def test_the_text_of_a_tree_shows_every_op_and_its_place() -> None:
    shown = str(judge.trace(num=1))
    assert shown.splitlines()[:7] == [
        "judge:",
        "  0 text 'Judge.\\n'",
        "  1 arg article",
        "  2 fork 1",
        "    branch 1:",
        "      3 text 'Point 0: '",
        "      4 gen point (max_new_tokens=8)",
    ]


def test_print_graph_dfs_writes_the_tree(capsys: pytest.CaptureFixture[str]) -> None:
    judge.trace(num=1).last_node.print_graph_dfs()
    assert capsys.readouterr().out.startswith("judge:\n")


def stops(body: Any, **given: Any) -> TracerProgramState:
    traced = function(body).trace(**given)
    assert not traced.is_closed
    assert traced.open_because is not None
    assert __file__ in traced.open_because
    return traced


@pytest.mark.parametrize(
    ("ask", "why"),
    [
        (lambda s: bool(s["x"]), "branching on the value 'x'"),
        (lambda s: s["x"] == "yes", "comparing the value 'x'"),
        (lambda s: f"{s['x']}", "formatting the value 'x'"),
        (lambda s: s["x"].strip(), "calling .strip of the value 'x'"),
        (lambda s: json.loads(s["x"]), "TypeError"),
        (lambda s: s.text() + 1, "TypeError"),
        (lambda s: len(s.get_meta_info("x")), "measuring"),
        (lambda s: s["nothing"], "KeyError: 'nothing'"),
    ],
)
def test_a_question_leaves_the_tree_open_and_says_why(ask: Any, why: str) -> None:
    def body(s: ProgramState) -> None:
        s += gen("x")
        ask(s)
        s += "never"

    traced = stops(body)
    assert why in str(traced.open_because)
    assert f"open: {traced.open_because}" in str(traced)
    assert kinds(traced) == [GenOp]


def test_the_line_is_the_programs_own() -> None:
    def body(s: ProgramState, k: int) -> None:
        s += "a"
        for _ in range(k):
            s += "b"

    traced = stops(body)
    line = body.__code__.co_firstlineno + 2
    assert f":{line}: " in str(traced.open_because)
    assert function(body).trace(k=2).is_closed


def test_a_body_cannot_swallow_the_end_of_its_trace() -> None:
    def body(s: ProgramState, key: str) -> None:
        try:
            {"a": 1}[key]
        except Exception:  # noqa: BLE001 - that is the test
            s += "swallowed"

    assert kinds(stops(body)) == []


def test_nested_programs_have_trees_of_their_own() -> None:
    @function
    def inner(s: ProgramState, word: Any) -> None:
        s += "inner " + word + gen("y")

    @function
    def outer(s: ProgramState) -> None:
        s += gen("x")
        nested = inner(s["x"])
        s += nested["y"]
        for state in inner.run_batch([{"word": "a"}, {"word": "b"}]):
            s += state["y"]

    traced = outer.trace()
    assert traced.is_closed
    assert [op.name for op in traced.tree.ops.values() if isinstance(op, ArgOp)] == ["inner.y"] * 3
    assert [kinds(state) for state in traced.nested] == [
        [TextOp, ArgOp, GenOp],
        [TextOp, GenOp],
        [TextOp, GenOp],
    ]
    assert str(traced).count("inner:") == 3


def test_async_bodies_and_everything_else_of_the_language_are_traced() -> None:
    @function
    async def body(s: ProgramState, who: str) -> Any:
        s += user("Hi " + s.text()) + assistant(separate_reasoning(gen("x"), "qwen3"))
        await s.wait()
        s.sync()
        assert s.error() is None
        with s.copy() as t:
            t += gen("z")
        s += await s.get("x")
        s["own"] = [1, 2]
        for number in s["own"]:
            s += f"{number}"
        async for text in s.text_async_iter("x"):
            s += text
        for text in s.text_iter():
            s += text
        s += s.messages()
        return s["z"]

    traced = body.trace()
    assert traced.is_closed, traced.open_because
    assert len(traced.ret_value) == 1


def test_an_await_of_something_else_leaves_the_tree_open() -> None:
    import asyncio

    @function
    async def body(s: ProgramState) -> None:
        s += "a"
        await asyncio.sleep(0)

    assert "awaiting" in str(body.trace().open_because)


def test_wrong_use_of_the_language_is_raised() -> None:
    @function
    def body(s: ProgramState) -> None:
        with s.user():
            s += user("nested")

    with pytest.raises(ProgramError, match="Nested roles"):
        body.trace()
    with pytest.raises(RequestError, match="tracing arguments of judge"):
        judge.trace(unknown=1)


def test_a_trace_needs_no_backend_and_leaves_no_trace_behind() -> None:
    backend = ScriptedBackend()
    judge.trace(backend=backend, num=1)
    assert backend.calls == []
    assert judge.run("text", backend=backend)["grade"] == "A"
