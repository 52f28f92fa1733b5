from __future__ import annotations

from sglang_lite.request_tree import (
    ArgOp,
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
from sglang_lite.runtime.executor.lengths import Lengths, LengthWalk, unknown_arguments
from tests.support.toy_text import toy_text

PARAMS = SamplingParams(max_new_tokens=10)


def lengths(*ops: Op, context: int = 1000) -> Lengths:
    tree = RequestTree()
    for op in ops:
        tree.add(op)
    return LengthWalk(toy_text(), context).walk(tree)


def needs(*ops: Op) -> list[tuple[int, int, int]]:
    return [(need.prompt_low, need.prompt_high, need.output_high) for need in lengths(*ops).needs]


def test_what_is_generated_and_referred_to_counts_from_nothing_to_its_limit() -> None:
    ops = [
        TextOp(0, 0, "abc"),
        GenOp(1, 0, "x", PARAMS),
        TextOp(2, 0, "de"),
        RefOp(3, 0, 1),
        SelectOp(4, 0, "s", ("yes", "n")),
    ]
    assert needs(*ops) == [(3, 3, 10), (5, 25, 3)]


def test_children_begin_with_their_parents_tokens_and_joined_text_comes_back() -> None:
    ops = [
        TextOp(0, 0, "abcd"), ForkOp(1, 0, (1, 2)), TextOp(2, 1, "x"), GenOp(3, 1, "g", PARAMS), TextOp(4, 2, "yz"),
        JoinOp(5, 0, (1, 2), "concat"), GenOp(6, 0, "all", PARAMS),
    ]  # fmt: skip
    assert needs(*ops) == [(5, 5, 10), (7, 17, 10)]
    found = lengths(*ops)
    assert found.output_high == 20
    assert found.kv_high == 4 + (1 + 10) + 2 + (3 + 10 + 10)


def test_a_rewound_branch_is_what_it_was() -> None:
    ops = [TextOp(0, 0, "ab"), MarkOp(1, 0), GenOp(2, 0, "x", PARAMS), RewindOp(3, 0, 1), GenOp(4, 0, "y", PARAMS)]
    assert needs(*ops) == [(2, 2, 10), (2, 2, 10)]
    assert lengths(*ops).kv_high == 2 + 10 + 10


def test_templates_count_as_they_are_rendered() -> None:
    ops = [
        RoleBeginOp(0, 0, "user"),
        TextOp(1, 0, "hi"),
        RoleEndOp(2, 0),
        RoleBeginOp(3, 0, "assistant"),
        GenOp(4, 0, "x", PARAMS),
    ]
    ((low, _, _),) = needs(*ops)
    assert low > len("hi") + 2 * 2


def test_a_gen_without_a_limit_may_fill_the_context_and_more_samples_count() -> None:
    open_ended = lengths(TextOp(0, 0, "abcd"), GenOp(1, 0, "x", PARAMS.with_(max_new_tokens=None)), context=50)
    assert (open_ended.needs[0].output_low, open_ended.needs[0].output_high) == (1, 46)
    assert lengths(TextOp(0, 0, "a"), GenOp(1, 0, "x", PARAMS.with_(n=3))).output_high == 30


def test_arguments_are_not_counted_and_named() -> None:
    tree = RequestTree()
    for op in (ArgOp(0, 0, "q"), ArgOp(1, 0, "a"), ArgOp(2, 0, "q")):
        tree.add(op)
    assert unknown_arguments(tree) == ", the arguments ['a', 'q'] not counted"
    assert unknown_arguments(RequestTree()) == ""
