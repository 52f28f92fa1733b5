from __future__ import annotations

from typing import Any, Literal

import pytest

from sglang_lite.errors import RequestError, TruncatedError, ValidationError
from sglang_lite.lang.ir import SglGen
from sglang_lite.lang.typed.attempts import Attempts, Wanted, answer_of, wanted_of
from sglang_lite.lang.typed.gens import Retries, SglTypedGen
from sglang_lite.lang.typed.spec import typed
from sglang_lite.request_tree import AcceptOp, GenOp, RefuseOp, RetryOp, SamplingParams
from tests.lang.typed.types_used import Pet, Positive

CUT = {"finish_reason": {"type": "length", "length": 3}}
STOP = {"finish_reason": {"type": "stop", "matched": None}}
BAD, GOOD = '{"number":-1}', '{"number":1}'


def op_of(**params: Any) -> GenOp:
    return GenOp(5, 0, "x", SamplingParams(**{"max_new_tokens": None, **params}), hold=True)


def judged(annotation: Any, text: str | list[str], meta: dict[str, Any] | None = None, **params: Any) -> Attempts:
    attempts = Attempts(Wanted(None if annotation is None else typed(annotation)), "x")
    attempts.judge(op_of(**params), text, STOP if meta is None else meta)
    return attempts


def test_a_good_text_is_its_value_and_a_bad_one_its_error() -> None:
    assert judged(Positive, GOOD).value == Positive(1)
    assert isinstance(judged(Positive, BAD).error, ValidationError)


@pytest.mark.parametrize(
    ("annotation", "text"),
    [(Pet, '{"name":"a"'), (int, "12"), (list[int], "[1"), (int | None, "12"), (None, "{"), (Literal["ab", "c"], "a")],
)
def test_what_was_cut_is_no_value(annotation: Any, text: str) -> None:
    error = judged(annotation, text, CUT, max_new_tokens=3).error
    assert isinstance(error, TruncatedError)
    assert error.text == text
    assert "'x': max_tokens=3 ended it" in str(error)


def test_the_complete_parts_of_what_was_cut_are_kept() -> None:
    error = judged(list[Positive], '[{"number":1},{"number":2},{"nu', CUT).error
    assert isinstance(error, TruncatedError)
    assert error.parts == [Positive(1), Positive(2)]
    assert "the context ended" in str(error)


@pytest.mark.parametrize(
    ("annotation", "text", "value"),
    [
        (list[int], "[1]", [1]),
        (bool, "true", True),
        (Literal["ab", "c"], "c", "c"),
        (None, "{}", "{}"),
        (str, "a b", "a b"),
    ],
)
def test_a_text_that_is_complete_at_the_limit_is_a_value(annotation: Any, text: str, value: Any) -> None:
    assert judged(annotation, text, CUT).value == value


def test_several_samples_are_a_list_of_values_each_with_its_own_end() -> None:
    assert judged(int, ["1", "2"], {"samples": [STOP, STOP]}, n=2).value == [1, 2]
    assert isinstance(judged(int, ["1", "2"], {"samples": [STOP, CUT]}, n=2).error, TruncatedError)


def test_thinking_is_no_part_of_the_answer() -> None:
    params = SamplingParams(thinking=("<think>", "</think>"))
    assert answer_of("<think>[</think>\n\n[1]", params) == "[1]"
    assert answer_of("[1]", params) == "[1]"
    assert answer_of("a</think>", SamplingParams()) == "a</think>"
    assert judged(int, "<think>9</think>4", thinking=("<think>", "</think>")).value == 4


def tried(
    retries: Retries, tries: list[tuple[str, dict[str, Any]]], annotation: Any = Positive, **params: Any
) -> list[Any]:
    """The answers to the results of one gen, one after the other."""
    attempts, op = Attempts(Wanted(typed(annotation), retries), "x"), op_of(**params)
    answers: list[Any] = []
    for text, meta in tries:
        attempts.judge(op, text, meta)
        answers.append(attempts.next_op(op, 9))
    return answers


def test_a_further_try_has_a_new_seed_or_the_error_as_text() -> None:
    assert tried(Retries(1), [(BAD, STOP), (GOOD, STOP)]) == [RetryOp(9, 0, 5), AcceptOp(9, 0, 5)]
    assert tried(Retries(1, "No: {error} "), [(BAD, STOP)]) == [RetryOp(9, 0, 5, "No: number must be above 0 ")]
    assert tried(Retries(1, "{text}!"), [(BAD, STOP)]) == [RetryOp(9, 0, 5, "!", keep=True)]
    assert tried(Retries(2), [(BAD, STOP), (BAD, STOP)], seed=7) == [
        RetryOp(9, 0, 5, params=op_of(seed=8).params),
        RetryOp(9, 0, 5, params=op_of(seed=9).params),
    ]


def test_after_the_last_try_it_is_refused() -> None:
    refused = tried(Retries(1), [(BAD, STOP), (BAD, STOP)])[-1]
    assert refused == RefuseOp(9, 0, 5, "ValidationError: reading a Positive: $: number must be above 0")


def test_one_that_was_cut_gets_twice_the_limit_and_keeps_it() -> None:
    answers = tried(Retries(3, "{error}"), [("{", CUT), ("{", CUT), (BAD, STOP)], max_new_tokens=3)
    assert [answer.params.max_new_tokens for answer in answers] == [6, 12, 12]
    assert [answer.text for answer in answers] == ["", "", "number must be above 0"]


def test_one_that_the_context_cut_is_tried_again_only_where_it_can_come_out_otherwise() -> None:
    assert isinstance(tried(Retries(1), [("{", CUT)])[0], RetryOp)
    assert isinstance(tried(Retries(1, "{error}"), [("{", CUT)], temperature=0.0)[0], RefuseOp)


def test_an_error_of_the_programs_own_code_ends_the_tries() -> None:
    def fails(value: object) -> None:
        raise KeyError("a bug")

    attempts = Attempts(Wanted(typed(int, check=fails), Retries(5)), "x")
    assert not attempts.judge(op_of(), "1", STOP)
    assert isinstance(attempts.next_op(op_of(), 9), RefuseOp)
    assert isinstance(attempts.error, KeyError)


def test_each_try_is_told_with_what_became_of_it() -> None:
    attempts = Attempts(Wanted(typed(Positive), Retries(1)), "x")
    attempts.judge(op_of(), BAD, STOP | {"completion_tokens": 4})
    attempts.judge(op_of(), GOOD, STOP)
    assert [entry["text"] for entry in attempts.tries] == [BAD, GOOD]
    assert attempts.tries[0]["error"] == "reading a Positive: $: number must be above 0"
    assert attempts.tries[0]["completion_tokens"] == 4
    assert attempts.tries[1]["error"] is None
    assert len(attempts.metas) == 2


def wanted(annotation: Any, retries: int = 0, **params: Any) -> tuple[Wanted | None, bool]:
    gen: SglTypedGen[Any] = SglTypedGen("x", typed=typed(annotation), retries=Retries(retries))
    return wanted_of(gen, SamplingParams(**params))


def test_a_branch_waits_only_where_a_text_may_be_taken_back() -> None:
    assert [wanted(int)[1], wanted(Pet)[1], wanted(Positive)[1], wanted(int, retries=1)[1]] == [
        False,
        False,
        True,
        True,
    ]
    assert wanted(Positive, n=2)[1] is False


def test_what_calls_tools_is_never_complete_at_a_limit() -> None:
    assert wanted_of(SglGen("x"), SamplingParams(), is_call=True) == (Wanted(None, is_call=True), False)
    assert wanted_of(SglGen("x", max_tokens=5), SamplingParams(), is_call=True) == (None, False)
    attempts = Attempts(Wanted(None, is_call=True), "x")
    assert not attempts.judge(op_of(), "[1]", CUT)
    assert attempts.judge(op_of(), "no JSON", STOP)


def test_of_other_gens_only_a_schema_without_a_limit_of_its_own_is_judged() -> None:
    assert wanted_of(SglGen("x"), SamplingParams()) == (None, False)
    assert wanted_of(SglGen("x", json_schema="{}", max_tokens=5), SamplingParams()) == (None, False)
    assert wanted_of(SglGen("x", json_schema="{}"), SamplingParams()) == (Wanted(None), False)


def test_retries_that_have_no_use_are_refused() -> None:
    with pytest.raises(RequestError, match="temperature 0"):
        wanted(int, retries=1, temperature=0.0)
    with pytest.raises(RequestError, match="n=2 and retries"):
        wanted(int, retries=1, n=2)
