"""Gens that wait for their program's answer: accepted, tried again, refused."""

from __future__ import annotations

import pytest

from sglang_lite.errors import CancelledError, ContextLengthError, ExecutionError
from sglang_lite.request_tree import (
    AcceptOp,
    CountOp,
    DecideOp,
    ForkOp,
    GenOp,
    JoinOp,
    OpDelta,
    OpHeld,
    OpScored,
    RefOp,
    RefuseOp,
    RetryOp,
    SamplingParams,
    SelectOp,
    TextOp,
)
from tests.runtime.executor.test_program import PARAMS, Bench


def held(bench: Bench) -> list[str]:
    return [event.text for event in bench.events if isinstance(event, OpHeld)]


def begun(*, stream: bool = False, params: SamplingParams = PARAMS) -> Bench:
    """A held gen behind some text and in front of another gen; its first attempt is there."""
    bench = Bench()
    bench.append(
        TextOp(1, 0, "Q"),
        GenOp(2, 0, "x", params, stream=stream, hold=True),
        TextOp(3, 0, "!"),
        GenOp(4, 0, "y", PARAMS),
    )
    bench.port.answer("r0", "one")
    return bench


def test_nothing_goes_on_before_the_answer() -> None:
    bench = begun(stream=True)
    assert held(bench) == ["one"]
    assert list(bench.port.requests) == ["r0"]
    assert not any(isinstance(event, OpDelta) for event in bench.events)
    bench.executor.close("p")
    assert bench.executor.num_programs == 1


def test_an_accepted_attempt_is_the_value_and_the_branch_goes_on() -> None:
    bench = begun()
    bench.append(AcceptOp(9, 0, 2))
    assert bench.done(9).text == ""
    done = bench.done(2)
    assert (done.value, done.text, done.meta["attempts"]) == ("one", "one", 1)
    assert bench.prompt("r1") == b"Qone!"
    assert bench.port.requests["r1"].is_continuing


def test_a_retry_takes_the_attempt_off_and_has_a_seed_of_its_own() -> None:
    bench = begun()
    bench.append(RetryOp(9, 0, 2))
    assert bench.prompt("r1") == b"Q"
    seeds = [bench.port.requests[rid].sampling.seed for rid in ("r0", "r1")]
    assert seeds[0] != seeds[1]
    bench.port.answer("r1", "two")
    assert held(bench) == ["one", "two"]
    bench.append(AcceptOp(10, 0, 2))
    assert bench.done(2).value == "two"
    assert bench.done(2).meta["attempts"] == 2
    assert bench.prompt("r2") == b"Qtwo!"


def test_a_gen_with_a_seed_tries_again_with_another_one_each_time() -> None:
    bench = begun(params=PARAMS.with_(seed=5))
    bench.append(RetryOp(9, 0, 2))
    bench.port.answer("r1", "two")
    bench.append(RetryOp(10, 0, 2))
    bench.port.answer("r2", "three")
    bench.append(RetryOp(11, 0, 2, params=PARAMS.with_(seed=77)))
    seeds = [req.sampling.seed for req in bench.port.requests.values()]
    assert (seeds[0], seeds[3], len(set(seeds))) == (5, 77, 4)
    again = begun(params=PARAMS.with_(seed=5))
    again.append(RetryOp(9, 0, 2))
    assert again.port.requests["r1"].sampling.seed == seeds[1]


def test_the_text_of_a_retry_is_literal_and_part_of_the_branch() -> None:
    bench = begun()
    bench.append(RetryOp(9, 0, 2, text="<|im_end|>"))
    assert bench.prompt("r1") == b"Q<|im_end|>"
    bench.port.answer("r1", "two")
    bench.append(AcceptOp(10, 0, 2))
    assert (bench.done(2).text, bench.done(2).value) == ("<|im_end|>two", "two")


def test_a_kept_attempt_stays_before_the_text() -> None:
    bench = begun()
    bench.append(RetryOp(9, 0, 2, text=" no: ", keep=True))
    assert bench.prompt("r1") == b"Qone no: "
    bench.port.answer("r1", "two")
    bench.append(AcceptOp(10, 0, 2))
    assert bench.done(2).text == "one no: two"
    assert bench.prompt("r2") == b"Qone no: two!"


def test_a_retry_may_change_the_parameters() -> None:
    bench = begun()
    bench.append(RetryOp(9, 0, 2, params=SamplingParams(max_new_tokens=99)))
    assert bench.port.requests["r1"].sampling.max_new_tokens == 99


def test_a_refused_gen_fails_with_the_message_and_its_branch_with_it() -> None:
    bench = begun()
    bench.append(RefuseOp(9, 0, 2, "none was good"))
    assert isinstance(bench.failed(2), ExecutionError)
    assert str(bench.failed(2)) == "none was good"
    assert bench.failed(4) is bench.failed(2)


def test_a_reference_sees_what_was_accepted_alone() -> None:
    bench = Bench()
    bench.append(TextOp(1, 0, "Q"), ForkOp(2, 0, (1,)), GenOp(3, 1, "x", PARAMS, hold=True), JoinOp(4, 0, (1,)))
    bench.append(RefOp(5, 0, 3), GenOp(6, 0, "y", PARAMS))
    bench.port.answer("r0", "one")
    bench.append(RetryOp(7, 1, 3, text="no", keep=True))
    bench.port.answer("r1", "two")
    assert len(bench.port.requests) == 2
    bench.append(AcceptOp(8, 1, 3))
    assert bench.prompt("r2") == b"Qtwo"


@pytest.mark.parametrize("answer", [AcceptOp(9, 0, 2), RetryOp(9, 0, 2), RefuseOp(9, 0, 2, "no")])
def test_an_answer_to_what_does_not_wait_fails_alone(answer: AcceptOp) -> None:
    """Before the first attempt is there, and after the op is over."""
    bench = Bench()
    bench.append(TextOp(1, 0, "Q"), GenOp(2, 0, "x", PARAMS, hold=True), answer)
    assert isinstance(bench.failed(9), CancelledError)
    bench.port.answer("r0", "one")
    bench.append(AcceptOp(10, 0, 2), AcceptOp(11, 0, 2))
    assert bench.done(2).value == "one"
    assert isinstance(bench.failed(11), CancelledError)


def test_a_decision_before_the_scores_fails_alone() -> None:
    bench = Bench()
    bench.append(TextOp(1, 0, "Q"), SelectOp(2, 0, "x", ("a", "b"), "client"), DecideOp(3, 0, 2, 0))
    assert isinstance(bench.failed(3), CancelledError)
    bench.port.score("r0", ((-1.0,), (-2.0,)))
    assert any(isinstance(event, OpScored) for event in bench.events)


def test_a_cancelled_branch_gives_up_what_is_held() -> None:
    bench = begun()
    bench.executor.cancel("p", [0])
    assert isinstance(bench.failed(2), CancelledError)
    bench.append(AcceptOp(9, 0, 2))
    assert isinstance(bench.failed(9), CancelledError)


def test_an_end_of_a_replaced_attempt_is_not_read() -> None:
    bench = begun()
    bench.append(RetryOp(9, 0, 2))
    bench.port.answer("r0", "late")
    assert held(bench) == ["one"]


def test_a_gen_that_cannot_fit_the_context_is_refused_before_it_starts() -> None:
    bench = Bench(context_len=10)
    bench.append(TextOp(1, 0, "12345"), GenOp(2, 0, "x", SamplingParams(max_new_tokens=6)))
    assert not bench.port.requests
    assert isinstance(bench.failed(2), ContextLengthError)
    for part in ("5 tokens", "max_tokens=6", "context of 10", "by 1 tokens", "max_tokens=5"):
        assert part in str(bench.failed(2))


@pytest.mark.parametrize("count", [5, None])
def test_a_gen_that_fits_or_takes_what_is_left_starts(count: int | None) -> None:
    bench = Bench(context_len=10)
    bench.append(TextOp(1, 0, "12345"), GenOp(2, 0, "x", SamplingParams(max_new_tokens=count)))
    assert len(bench.port.requests) == 1


def test_a_retry_that_does_not_fit_fails_the_gen() -> None:
    bench = Bench(context_len=14)
    bench.append(TextOp(1, 0, "12345"), GenOp(2, 0, "x", PARAMS, hold=True))
    bench.port.answer("r0", "no")
    bench.append(RetryOp(3, 0, 2, text="try again"))
    assert bench.done(3).text == ""
    assert isinstance(bench.failed(2), ContextLengthError)


def test_a_count_tells_the_tokens_and_leaves_the_span_open() -> None:
    bench = Bench(context_len=50, add_bos=True)
    bench.append(CountOp(1, 0), TextOp(2, 0, "ab"), CountOp(3, 0), TextOp(4, 0, "c"), GenOp(5, 0, "x", PARAMS))
    assert bench.done(1).meta == {"num_tokens": 1, "context_len": 50}
    assert bench.done(3).meta == {"num_tokens": 3, "context_len": 50}
    assert len(bench.port.requests["r0"].input_ids) == 4
    bench.append(CountOp(6, 0))
    bench.port.answer("r0", "xyz")
    assert bench.done(6).meta["num_tokens"] == 7
