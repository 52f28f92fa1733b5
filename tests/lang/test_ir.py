"""Expressions join with text on either side and stay flat."""

from __future__ import annotations

import pytest

from sglang_lite.errors import RequestError
from sglang_lite.lang import assistant, gen, literal, user
from sglang_lite.lang.ir import (
    SglConstantText,
    SglExpr,
    SglExprList,
    SglGen,
    SglRoleBegin,
    SglRoleEnd,
    flatten,
    need_expr,
    role_block,
)


def shape(expr: SglExpr) -> list[str]:
    names = {SglConstantText: "text", SglGen: "gen", SglRoleBegin: "begin", SglRoleEnd: "end"}
    return [names[type(node)] for node in flatten(expr)]


def test_plus_takes_text_on_either_side() -> None:
    assert shape("a" + gen("x") + "b") == ["text", "gen", "text"]
    assert shape(gen("x") + "b") == ["gen", "text"]
    assert shape("a" + user("q")) == ["text", "begin", "text", "end"]


def test_plus_is_associative_and_flat() -> None:
    left = (gen("x") + "a") + assistant(gen("y") + "b")
    right = gen("x") + ("a" + assistant(gen("y") + "b"))
    assert shape(left) == shape(right) == ["gen", "text", "begin", "gen", "text", "end"]
    assert not any(isinstance(node, SglExprList) for node in left.expr_list)


def test_plus_changes_neither_side() -> None:
    first = gen("x") + "a"
    _ = first + "b"
    assert shape(first) == ["gen", "text"]


@pytest.mark.parametrize("other", [3, None, ["a"]])
def test_plus_refuses_other_values(other: object) -> None:
    with pytest.raises(TypeError):
        _ = gen("x") + other
    with pytest.raises(TypeError):
        _ = other + gen("x")


def test_an_expression_in_an_f_string_is_refused() -> None:
    """Its representation would end up in the prompt without a word."""
    with pytest.raises(TypeError, match="not in an f-string"):
        _ = f"text {gen('x')}"


def test_need_expr_names_what_it_got() -> None:
    with pytest.raises(RequestError, match=r"doing: got 3 \(int\), expected a str or an expression"):
        need_expr("doing", 3)
    assert isinstance(need_expr("doing", "text"), SglConstantText)


def test_a_role_block_without_content_is_empty() -> None:
    assert [type(node) for node in role_block("user", None)] == [SglRoleBegin, SglRoleEnd]
    with pytest.raises(RequestError, match="making a user turn"):
        user(3)


def test_a_literal_is_marked() -> None:
    assert literal("<|x|>").literal
    assert not SglConstantText("a").literal
