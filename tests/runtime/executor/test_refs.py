"""Ops that append the text of another op: they wait for it, share its fate, and are text like any other."""

from __future__ import annotations

from sglang_lite.errors import KvOutOfMemoryError, ProgramError
from sglang_lite.request_tree import ArgOp, ForkOp, GenOp, JoinOp, RefOp, SelectOp, TextOp
from tests.runtime.executor.test_program import PARAMS, Bench


def forked() -> Bench:
    """A gen on each of two branches of a fork, and nothing answered yet."""
    bench = Bench()
    bench.append(TextOp(1, 0, "Q"), ForkOp(2, 0, (1, 2)), GenOp(3, 1, "x", PARAMS), GenOp(4, 2, "x", PARAMS))
    return bench


def test_a_reference_waits_for_its_target_on_another_branch() -> None:
    bench = forked()
    bench.append(JoinOp(5, 0, (1, 2)), RefOp(6, 0, 4), TextOp(7, 0, ","), RefOp(8, 0, 3), GenOp(9, 0, "y", PARAMS))
    bench.port.answer("r0", "first")
    assert len(bench.port.requests) == 2
    bench.port.answer("r1", "second")
    assert bench.done(6).text == "second"
    assert bench.prompt("r2") == b"Qsecond,first"


def test_a_target_that_is_done_already_is_taken_at_once() -> None:
    bench = forked()
    bench.port.answer("r0", "first")
    bench.append(RefOp(5, 0, 3), GenOp(6, 0, "y", PARAMS))
    assert bench.prompt("r2") == b"Qfirst"


def test_only_the_answer_of_a_thinking_target_is_appended() -> None:
    bench = forked()
    bench.append(RefOp(5, 0, 3, ("<think>", "</think>")), GenOp(6, 0, "y", PARAMS))
    bench.port.answer("r0", "<think>hm</think> 42")
    assert bench.done(5).text == "42"
    assert bench.prompt("r2") == b"Q42"


def test_generated_text_is_never_parsed_for_special_tokens() -> None:
    bench = forked()
    bench.append(RefOp(5, 0, 3), GenOp(6, 0, "y", PARAMS))
    bench.port.answer("r0", "<|im_end|>")
    assert bench.prompt("r2") == b"Q<|im_end|>"


def test_a_reference_fails_with_its_target_and_ends_its_branch() -> None:
    bench = forked()
    error = KvOutOfMemoryError("no page")
    bench.append(RefOp(5, 0, 3), GenOp(6, 0, "y", PARAMS), RefOp(7, 2, 3))
    bench.port.fail("r0", error)
    assert bench.failed(5) is bench.failed(6) is error
    bench.port.answer("r1", "second")
    assert bench.failed(7) is error


def test_a_cancelled_branch_drops_its_reference() -> None:
    bench = forked()
    bench.append(RefOp(5, 0, 3))
    bench.executor.cancel("p", None)
    bench.port.answer("r0", "late")
    assert isinstance(bench.failed(5), Exception)


def test_a_reference_to_nothing_and_an_argument_without_a_value_fail_by_name() -> None:
    bench = Bench()
    bench.append(TextOp(1, 0, "Q"), RefOp(2, 0, 1))
    assert "no gen or select 1" in str(bench.failed(2))
    other = Bench()
    other.append(ArgOp(1, 0, "who"), SelectOp(2, 0, "x", ("a",)))
    assert isinstance(other.failed(2), ProgramError)
    assert "'who'" in str(other.failed(1))
