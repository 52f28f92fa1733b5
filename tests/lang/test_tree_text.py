"""A tree in words, one op a line."""

from __future__ import annotations

from sglang_lite.lang.tree_text import tree_text
from sglang_lite.request_tree import (
    ArgOp,
    DecideOp,
    EndOp,
    ForkOp,
    GenOp,
    JoinOp,
    RefOp,
    RequestTree,
    RoleBeginOp,
    RoleEndOp,
    SamplingParams,
    SelectOp,
    TextOp,
)


def test_every_kind_of_op_has_its_words() -> None:
    tree = RequestTree()
    for op in (
        RoleBeginOp(0, 0, "user"),
        TextOp(1, 0, "x" * 100),
        RoleEndOp(2, 0),
        ForkOp(3, 0, (1, 2)),
        GenOp(4, 1, None, SamplingParams(stop=("\n",), temperature=0)),
        SelectOp(5, 2, "pick", ("a", "b"), "client"),
        DecideOp(6, 2, 5, 1),
        RefOp(7, 0, 4),
        ArgOp(8, 0, "who"),
        JoinOp(9, 0, (1, 2), "concat"),
        EndOp(10, 0),
    ):
        tree.add(op)
    assert tree_text("f", tree).splitlines() == [
        "f:",
        "  0 role_begin user",
        f"  1 text {'x' * 60 + '...'!r}",
        "  2 role_end",
        "  3 fork 2",
        "    branch 1:",
        "      4 gen (no name) (temperature=0, stop=('\\n',))",
        "    branch 2:",
        "      5 select pick of 'a, b'",
        "      6 decide op 5: 1",
        "  7 ref to op 4",
        "  8 arg who",
        "  9 join concat of branches 1, 2",
        "  10 end",
    ]
