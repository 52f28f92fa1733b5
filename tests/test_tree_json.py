"""Whole trees survive the way through JSON, and what breaks a rule is refused with the op's name."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglang_lite.errors import ProgramError, RequestError
from sglang_lite.request_tree import (
    ArgOp,
    EndOp,
    ForkOp,
    GenOp,
    JoinOp,
    MarkOp,
    Op,
    RefOp,
    RequestTree,
    RewindOp,
    RoleBeginOp,
    RoleEndOp,
    SamplingParams,
    SelectOp,
    TextOp,
)


def travel(tree: RequestTree) -> RequestTree:
    return RequestTree.from_json(json.loads(json.dumps(tree.to_json(), allow_nan=False)))


@st.composite
def trees(draw: st.DrawFn) -> RequestTree:
    """A tree that grows op by op; what its rules refuse is left out."""
    tree = RequestTree()
    branches = [0]
    for number in range(draw(st.integers(0, 25))):
        branch = draw(st.sampled_from(branches))
        earlier = st.sampled_from(sorted(tree.ops) or [0])
        children = tuple(range(len(branches), len(branches) + draw(st.integers(1, 3))))
        kinds: list[st.SearchStrategy[Op]] = [
            st.builds(TextOp, st.just(number), st.just(branch), st.text(max_size=5), st.booleans()),
            st.builds(RoleBeginOp, st.just(number), st.just(branch), st.sampled_from(["user", "assistant"])),
            st.just(RoleEndOp(number, branch)),
            st.builds(
                GenOp,
                st.just(number),
                st.just(branch),
                st.none() | st.text(max_size=3),
                st.builds(
                    SamplingParams, max_new_tokens=st.none() | st.integers(0, 9), regex=st.none() | st.text(max_size=3)
                ),
                stream=st.booleans(),
            ),
            st.builds(SelectOp, st.just(number), st.just(branch), st.just("s"), st.just(("a", "b"))),
            st.just(ForkOp(number, branch, children)),
            st.builds(
                JoinOp, st.just(number), st.just(branch), st.lists(st.sampled_from(branches), max_size=3).map(tuple)
            ),
            st.builds(RefOp, st.just(number), st.just(branch), earlier),
            st.builds(ArgOp, st.just(number), st.just(branch), st.text(max_size=3)),
            st.just(MarkOp(number, branch)),
            st.builds(RewindOp, st.just(number), st.just(branch), earlier),
            st.just(EndOp(number, branch)),
        ]
        op = draw(st.one_of(kinds))
        try:
            tree.add(op)
        except ProgramError:
            continue
        if isinstance(op, ForkOp):
            branches.extend(children)
    return tree


@given(trees())
def test_any_tree_comes_back_as_it_was(tree: RequestTree) -> None:
    again = travel(tree)
    assert list(again.ops.items()) == list(tree.ops.items())
    assert again.parents == tree.parents
    assert again.to_json() == tree.to_json()


def test_a_tree_that_came_back_goes_on_where_the_first_one_stood() -> None:
    """Its rules see what happened before: the open role, the ended branch."""
    tree = RequestTree()
    for op in (ForkOp(0, 0, (1,)), RoleBeginOp(1, 0, "user"), EndOp(2, 1)):
        tree.add(op)
    again = travel(tree)
    with pytest.raises(ProgramError, match="Nested roles"):
        again.add(RoleBeginOp(3, 0, "user"))
    with pytest.raises(ProgramError, match="the branch has ended"):
        again.add(TextOp(3, 1, "x"))


@pytest.mark.parametrize(
    ("data", "kind", "message"),
    [
        ([], RequestError, "expected an object with a list of 'ops'"),
        ({"ops": {}}, RequestError, "expected an object with a list of 'ops'"),
        ({"version": 2, "ops": []}, RequestError, "version 2, expected 1"),
        ({"ops": [], "streams": []}, RequestError, r"unknown \['streams'\]"),
        ({"ops": [{"op": "end", "id": 0, "branch": 0}, {"op": "text", "id": 1}]}, RequestError, "op number 1.*text op"),
        (
            {"ops": [{"op": "text", "id": 4, "branch": 3, "text": ""}]},
            ProgramError,
            "TextOp 4 to branch 3: no such branch",
        ),
    ],
)
def test_what_is_no_tree_is_refused(data: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        RequestTree.from_json(data)


def test_arguments_are_bound_as_text_that_is_never_parsed() -> None:
    tree = RequestTree()
    for op in (TextOp(0, 0, "Q: "), ArgOp(1, 0, "q"), ArgOp(2, 0, "q"), ArgOp(3, 0, "other")):
        tree.add(op)
    assert tree.arguments == ["q", "other"]
    bound = tree.bound({"q": "<s>", "other": "", "unused": "x"})
    assert bound == [TextOp(0, 0, "Q: "), TextOp(1, 0, "<s>", True), TextOp(2, 0, "<s>", True), TextOp(3, 0, "", True)]


@pytest.mark.parametrize("given", [{}, {"q": 3}])
def test_an_argument_without_a_text_is_refused_with_its_op(given: Any) -> None:
    tree = RequestTree()
    tree.add(ArgOp(7, 0, "q"))
    with pytest.raises(ProgramError, match="ArgOp 7 on branch 0: the argument 'q'"):
        tree.bound(given)
