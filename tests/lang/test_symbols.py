"""A text that is not known yet can be appended; every other question names it."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import pytest

from sglang_lite.errors import ProgramError
from sglang_lite.lang import ProgramState, ScriptedBackend, function, gen
from sglang_lite.lang.ir import SglConstantText, SglExprList
from sglang_lite.lang.symbols import SglArgument, SglRef, SglTextOf, UnknownValueError


@pytest.mark.parametrize(
    "ask",
    [
        bool, len, list, str, int, float, hash, operator.index,
        lambda v: v == "x", lambda v: v < "x", lambda v: v >= "x", lambda v: "x" in v, lambda v: v[0],
        lambda v: v.strip(), lambda v: f"{v}", lambda v: {"a": 1}[v],
    ],
)  # fmt: skip
@pytest.mark.parametrize("value", [SglArgument("who"), SglRef(None, 0, "who"), SglTextOf([], "the text of who")])
def test_every_question_names_the_value(ask: Callable[[Any], Any], value: Any) -> None:
    with pytest.raises(UnknownValueError, match="who"):
        ask(value)


def test_a_symbol_joins_text_on_either_side() -> None:
    symbol = SglArgument("who")
    joined = "a" + symbol + "b"
    assert isinstance(joined, SglExprList)
    first, second, third = joined.expr_list
    assert second is symbol
    assert isinstance(first, SglConstantText)
    assert isinstance(third, SglConstantText)


def test_an_argument_with_a_value_is_that_value() -> None:
    @function
    def f(s: ProgramState) -> None:
        s += "Hello " + SglArgument("who", "you")

    assert f.run(backend=ScriptedBackend()).text() == "Hello you"


def test_an_argument_without_a_value_cannot_be_executed() -> None:
    @function
    def f(s: ProgramState) -> None:
        s += SglArgument("who")

    with pytest.raises(ProgramError, match="'who' has no value"):
        f.run(backend=ScriptedBackend())


def test_a_reference_into_another_run_is_refused() -> None:
    @function
    def inner(s: ProgramState) -> None:
        s += gen("x")

    @function
    def outer(s: ProgramState) -> None:
        s += inner().ref("x")

    with pytest.raises(ProgramError, match="another run"):
        outer.run(backend=ScriptedBackend())
