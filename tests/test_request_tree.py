"""The contract: what a tree refuses, and how sampling parameters are checked and read."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import fields
from typing import Any

import pytest

from sglang_lite.errors import ProgramError, RequestError
from sglang_lite.lang.backends.scripted import ScriptedBackend
from sglang_lite.request_tree import (
    AcceptOp,
    Backend,
    DecideOp,
    EndOp,
    ForkOp,
    GenOp,
    JoinOp,
    MarkOp,
    Op,
    RefOp,
    RefuseOp,
    RequestTree,
    RetryOp,
    RewindOp,
    RoleBeginOp,
    RoleEndOp,
    SamplingParams,
    SelectOp,
    TextOp,
    split_thinking,
)

PLAIN = SamplingParams()


def tree_of(*ops: Op) -> RequestTree:
    tree = RequestTree()
    for op in ops:
        tree.add(op)
    return tree


def test_a_tree_keeps_ops_and_parents_in_order() -> None:
    tree = tree_of(TextOp(0, 0, "a"), ForkOp(1, 0, (1, 2)), TextOp(2, 2, "b"), ForkOp(3, 2, (3,)), JoinOp(4, 2, (3,)))
    assert list(tree.ops) == [0, 1, 2, 3, 4]
    assert tree.parents == {0: None, 1: 0, 2: 0, 3: 2}


@pytest.mark.parametrize(
    ("ops", "message"),
    [
        ([TextOp(0, 0, "a"), TextOp(0, 0, "b")], "the id is taken by a TextOp"),
        ([TextOp(0, 7, "a")], "no such branch"),
        ([ForkOp(0, 0, (1,)), ForkOp(1, 0, (1,))], "branch 1 exists already"),
        ([ForkOp(0, 0, (0,))], "branch 0 exists already"),
        ([JoinOp(0, 0, (1,))], "not a fork child"),
        ([ForkOp(0, 0, (1,)), ForkOp(1, 1, (2,)), JoinOp(2, 0, (2,))], "branch 2 is not a fork child of branch 0"),
        ([ForkOp(0, 0, (1,)), JoinOp(1, 0, (1,)), TextOp(2, 1, "x")], "the branch has ended"),
        ([ForkOp(0, 0, (1,)), JoinOp(1, 0, (1,)), JoinOp(2, 0, (1,))], "joined before"),
        ([EndOp(0, 0), TextOp(1, 0, "x")], "the branch has ended"),
        ([RoleBeginOp(0, 0, "user"), RoleBeginOp(1, 0, "user")], "Nested roles are not allowed"),
        ([RoleEndOp(0, 0)], "no role is open"),
        ([RoleBeginOp(0, 0, "user"), ForkOp(1, 0, (1,)), RoleBeginOp(2, 1, "user")], "Nested roles"),
        ([SelectOp(0, 0, "x", ())], "no choices"),
        ([SelectOp(0, 0, "x", ("a",), "client"), DecideOp(1, 0, 0, 1)], "no client select 0 with a choice 1"),
        ([SelectOp(0, 0, "x", ("a",)), DecideOp(1, 0, 0, 0)], "no client select"),
        ([DecideOp(1, 0, 0, 0)], "no client select"),
        ([GenOp(0, 0, "x", PLAIN), AcceptOp(1, 0, 0)], "no held gen 0 on this branch"),
        ([GenOp(0, 0, "x", PLAIN, hold=True), ForkOp(1, 0, (1,)), RetryOp(2, 1, 0)], "no held gen 0 on this branch"),
        ([RefuseOp(1, 0, 0, "no")], "no held gen 0"),
        ([GenOp(0, 0, "x", SamplingParams(n=2), hold=True)], "a held gen with n=2"),
        ([RewindOp(0, 0, 5)], "no mark 5 on this branch"),
        ([MarkOp(0, 0), ForkOp(1, 0, (1,)), RewindOp(2, 1, 0)], "no mark 0 on this branch"),
        ([MarkOp(0, 0), RoleBeginOp(1, 0, "user"), RewindOp(2, 0, 0), RoleEndOp(3, 0)], "no role is open"),
        ([ForkOp(0, 0, (1,)), JoinOp(1, 0, (1,), "concat", first=1)], "first in mode 'concat'"),
        ([ForkOp(0, 0, (1,)), JoinOp(1, 0, (1,), first=1, vote="x")], "first and vote in mode 'gather'"),
        ([ForkOp(0, 0, (1,)), JoinOp(1, 0, (1,), first=2)], "first=2, expected 1 to 1"),
        ([ForkOp(0, 0, (1,)), JoinOp(1, 0, (1,), first=0)], "first=0"),
    ],
)
def test_a_tree_refuses_and_names_the_op(ops: list[Op], message: str) -> None:
    with pytest.raises(ProgramError, match=message) as caught:
        tree_of(*ops)
    assert f"{type(ops[-1]).__name__} {ops[-1].id}" in str(caught.value)


def test_a_fork_child_may_close_the_role_that_its_parent_opened() -> None:
    tree = tree_of(RoleBeginOp(0, 0, "user"), ForkOp(1, 0, (1,)), RoleEndOp(2, 1), RoleEndOp(3, 0))
    assert len(tree.ops) == 4


def test_a_decision_may_come_after_its_branch_was_joined() -> None:
    """Scores come when they come; the join was appended without waiting for them."""
    select = SelectOp(1, 1, "x", ("a", "b"), "client")
    tree = tree_of(ForkOp(0, 0, (1,)), select, JoinOp(2, 0, (1,)), DecideOp(3, 1, 1, 1))
    assert isinstance(tree.ops[3], DecideOp)


def test_an_answer_to_a_held_gen_may_come_after_its_branch_was_joined() -> None:
    held = GenOp(1, 1, "x", PLAIN, hold=True)
    tree = tree_of(ForkOp(0, 0, (1,)), held, JoinOp(2, 0, (1,)), RetryOp(3, 1, 1), AcceptOp(4, 1, 1))
    assert isinstance(tree.ops[4], AcceptOp)


def test_a_rewind_opens_the_role_of_its_mark_again() -> None:
    tree = tree_of(RoleBeginOp(0, 0, "user"), MarkOp(1, 0), RoleEndOp(2, 0), RewindOp(3, 0, 1), RoleEndOp(4, 0))
    with pytest.raises(ProgramError, match="no role is open"):
        tree.add(RoleEndOp(5, 0))


def test_a_refused_op_leaves_no_trace() -> None:
    tree = tree_of(TextOp(0, 0, "a"))
    with pytest.raises(ProgramError):
        tree.add(RoleEndOp(1, 0))
    tree.add(GenOp(1, 0, "x", SamplingParams()))
    assert isinstance(tree.ops[1], GenOp)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_new_tokens", -1),
        ("max_new_tokens", True),
        ("min_new_tokens", 1.5),
        ("n", 0),
        ("stop", ("",)),
        ("stop", (3,)),
        ("stop_regex", ("",)),
        ("stop_token_ids", (-1,)),
        ("temperature", -0.1),
        ("temperature", float("nan")),
        ("top_p", 0.0),
        ("top_p", 1.1),
        ("top_k", 0),
        ("top_k", -2),
        ("min_p", 2),
        ("frequency_penalty", 2.5),
        ("presence_penalty", -3),
        ("repetition_penalty", 0),
        ("logit_bias", ((1, 101.0),)),
        ("logit_bias", ((-1, 1.0),)),
        ("seed", -1),
    ],
)
def test_a_wrong_sampling_value_is_named_with_what_is_allowed(name: str, value: Any) -> None:
    changes: dict[str, Any] = {name: value}
    with pytest.raises(RequestError, match=f"{name}=.*, expected "):
        SamplingParams(**changes)


def test_only_one_constraint_may_be_set() -> None:
    with pytest.raises(RequestError, match="regex and json_schema are both set"):
        SamplingParams(regex="a", json_schema="{}")


def test_params_from_a_mapping_take_single_values_and_aliases() -> None:
    params = SamplingParams.from_mapping(
        {"stop": "x", "stop_token_ids": 3, "sampling_seed": 5, "logit_bias": {"7": 1.0, 2: -1}, "stop_regex": None}
    )
    assert (params.stop, params.stop_token_ids, params.seed) == (("x",), (3,), 5)
    assert params.logit_bias == ((2, -1), (7, 1.0))
    assert SamplingParams.from_mapping(None) == SamplingParams()


@pytest.mark.parametrize("bad", [{"tempratur": 1}, {"logit_bias": {"AI": 1}}, {"logit_bias": {"-1": 1}}])
def test_params_from_a_mapping_name_what_is_wrong(bad: dict[str, Any]) -> None:
    with pytest.raises(RequestError, match=r"tempratur|AI|-1"):
        SamplingParams.from_mapping(bad)


STRANGE: list[Any] = [
    5, 1.5, -1, "abc", "", True, None, [], [1], ["a"], [[1]], [["a", 1]], [[1, 2, 3]], {}, {"a": 1}, {"1": "x"}, [None], [{}],
    {"1": None}, float("inf"), 10**400, {"1": 10**400},
]  # fmt: skip


@pytest.mark.parametrize("name", [f.name for f in fields(SamplingParams)])
def test_no_value_of_a_parameter_is_anything_but_right_or_wrong(name: str) -> None:
    """Whatever JSON has for it: it is taken, or refused as the asker's fault."""
    taken = 0
    for value in STRANGE:
        with suppress(RequestError):
            SamplingParams.from_mapping({name: value})
            taken += 1
    assert taken < len(STRANGE)


def test_params_from_a_mapping_leave_the_mapping_alone() -> None:
    given = {"stop": ["a"], "sampling_seed": 1}
    SamplingParams.from_mapping(given)
    assert given == {"stop": ["a"], "sampling_seed": 1}


def test_with_checks_again() -> None:
    assert SamplingParams().with_(temperature=0).is_greedy
    assert SamplingParams(top_k=1).is_greedy
    with pytest.raises(RequestError, match="top_p"):
        SamplingParams().with_(top_p=2)


def test_params_of_a_sample_differ_in_seed_and_number_only() -> None:
    params = SamplingParams(n=3, temperature=0.5, stop=("a",), regex="x", seed=4, thinking=("<", ">"))
    assert params.of_sample(9) == params.with_(n=1, seed=9)
    assert (params.n, params.seed) == (3, 4)


def test_a_backend_is_recognised_by_its_methods() -> None:
    assert isinstance(ScriptedBackend(), Backend)
    assert not isinstance(object(), Backend)


def test_a_reference_needs_a_gen_or_select_from_before() -> None:
    tree = tree_of(GenOp(0, 0, None, SamplingParams()), RefOp(1, 0, 0))
    for target in (1, 7):
        with pytest.raises(ProgramError, match=rf"no gen or select {target}"):
            tree.add(RefOp(9, 0, target))


@pytest.mark.parametrize(
    ("text", "inside", "halves"),
    [
        (" <think> a </think> b ", False, ("a", "b")),
        ("plain ", False, ("", "plain ")),
        ("x <think>a</think>", False, ("", "x <think>a</think>")),
        ("a</think>b", True, ("a", "b")),
        ("cut", True, ("cut", "")),
        ("<think>a</think>b</think>c", False, ("a", "b</think>c")),
    ],
)
def test_thinking_stands_at_the_beginning_between_its_marks(text: str, inside: bool, halves: tuple[str, str]) -> None:
    assert split_thinking(text, ("<think>", "</think>"), starts_inside=inside) == halves
