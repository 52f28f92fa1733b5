"""Going back to a mark: text, ids, roles and forks of a branch, against a port that the test answers by hand."""

from __future__ import annotations

from sglang_lite.errors import CancelledError, ProgramError
from sglang_lite.request_tree import (
    ForkOp,
    GenOp,
    JoinOp,
    MarkOp,
    RefOp,
    RewindOp,
    RoleBeginOp,
    RoleEndOp,
    TextOp,
)
from sglang_lite.runtime.scheduler.messages import AbortReq
from tests.runtime.executor.test_program import PARAMS, Bench


def test_a_rewound_branch_goes_on_from_the_mark() -> None:
    bench = Bench()
    bench.append(TextOp(1, 0, "Q"), MarkOp(2, 0), TextOp(3, 0, "a"), GenOp(4, 0, "x", PARAMS), RewindOp(5, 0, 2))
    bench.append(TextOp(6, 0, "b"), RefOp(7, 0, 4), GenOp(8, 0, "y", PARAMS))
    assert bench.prompt("r0") == b"Qa"
    bench.port.answer("r0", "one")
    assert bench.done(4).value == "one"
    assert bench.prompt("r1") == b"Qbone"
    assert bench.port.requests["r1"].is_continuing
    assert bench.port.requests["r1"].sampling.seed != bench.port.requests["r0"].sampling.seed


def test_a_rewind_waits_for_what_is_before_it() -> None:
    bench = Bench()
    bench.append(TextOp(1, 0, "Q"), MarkOp(2, 0), GenOp(3, 0, "x", PARAMS), RewindOp(4, 0, 2))
    assert not [event for event in bench.events if event.op == 4]


def test_the_open_text_of_a_mark_is_text_again() -> None:
    bench = Bench(add_bos=True)
    bench.append(
        TextOp(1, 0, "a<|im_end|>b"), MarkOp(2, 0), TextOp(3, 0, "x"), GenOp(4, 0, "x", PARAMS), RewindOp(5, 0, 2)
    )
    bench.append(TextOp(6, 0, "c"), GenOp(7, 0, "y", PARAMS))
    bench.port.answer("r0", "one")
    assert bench.prompt("r1") == b"<256>a<257>bc"


def test_an_open_role_is_as_it_was() -> None:
    bench = Bench()
    bench.append(RoleBeginOp(1, 0, "user"), TextOp(2, 0, "Hi"), MarkOp(3, 0), TextOp(4, 0, "!"), RoleEndOp(5, 0))
    bench.append(RoleBeginOp(6, 0, "assistant"), GenOp(7, 0, "x", PARAMS), RoleEndOp(8, 0), RewindOp(9, 0, 3))
    bench.append(TextOp(10, 0, "?"), RoleEndOp(11, 0), RoleBeginOp(12, 0, "assistant"), GenOp(13, 0, "y", PARAMS))
    bench.port.answer("r0", "one")
    plain = Bench()
    plain.append(RoleBeginOp(1, 0, "user"), TextOp(2, 0, "Hi?"), RoleEndOp(3, 0), RoleBeginOp(4, 0, "assistant"))
    plain.append(GenOp(5, 0, "y", PARAMS))
    assert bench.prompt("r1") == plain.prompt("r0")


def test_live_children_of_later_forks_are_cancelled() -> None:
    bench = Bench()
    bench.append(TextOp(1, 0, "Q"), ForkOp(2, 0, (1,)), GenOp(3, 1, "x", PARAMS), MarkOp(4, 0), ForkOp(5, 0, (2,)))
    bench.append(GenOp(6, 2, "x", PARAMS), ForkOp(7, 2, (3,)), GenOp(8, 3, "x", PARAMS), RewindOp(9, 0, 4))
    assert [m.rid for m in bench.port.messages if isinstance(m, AbortReq)] == ["r1"]
    assert isinstance(bench.failed(6), CancelledError)
    assert isinstance(bench.failed(8), CancelledError)
    bench.append(TextOp(10, 2, "more"))
    assert isinstance(bench.failed(10), CancelledError)
    bench.port.answer("r0", "one")
    assert bench.done(3).value == "one"


def test_joined_children_are_not_touched_and_their_text_goes() -> None:
    bench = Bench()
    bench.append(
        TextOp(1, 0, "Q"), MarkOp(2, 0), ForkOp(3, 0, (1,)), GenOp(4, 1, "x", PARAMS), JoinOp(5, 0, (1,), "concat")
    )
    bench.append(
        RewindOp(6, 0, 2), ForkOp(7, 0, (2,)), GenOp(8, 2, "x", PARAMS), JoinOp(9, 0, (2,)), RewindOp(10, 0, 2)
    )
    bench.append(GenOp(11, 0, "y", PARAMS))
    bench.port.answer("r0", "one")
    assert bench.done(5).text == "one"
    assert bench.prompt("r1") == b"Q"
    assert bench.prompt("r2") == b"Q"
    bench.port.answer("r2", "two")
    assert bench.done(8).value == "two"


def test_a_child_joined_by_text_gives_what_its_rewind_left() -> None:
    bench = Bench()
    bench.append(TextOp(1, 0, "Q"), ForkOp(2, 0, (1,)), TextOp(3, 1, "a"), MarkOp(4, 1), TextOp(5, 1, "b"))
    bench.append(RewindOp(6, 1, 4), TextOp(7, 1, "c"), JoinOp(8, 0, (1,), "concat"))
    assert bench.done(8).text == "ac"


def test_marks_that_were_rewound_past_and_those_of_other_branches_are_refused() -> None:
    bench = Bench()
    bench.append(
        TextOp(1, 0, "Q"), MarkOp(2, 0), MarkOp(3, 0), RewindOp(4, 0, 2), ForkOp(5, 0, (1, 2)), RewindOp(6, 1, 2)
    )
    assert isinstance(bench.failed(6), ProgramError)
    bench.append(RewindOp(7, 0, 2), RewindOp(8, 0, 2))
    bench.append(RewindOp(9, 0, 3))
    assert bench.done(8).text == ""
    assert "rewound past" in str(bench.failed(9))


def test_a_rewind_of_a_failed_branch_fails() -> None:
    bench = Bench()
    bench.append(MarkOp(1, 0), GenOp(2, 0, "x", PARAMS), RewindOp(3, 0, 1))
    assert bench.failed(3) is bench.failed(2)
