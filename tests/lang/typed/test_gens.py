from __future__ import annotations

import pytest

from sglang_lite import RETRY_TEXT
from sglang_lite.errors import RequestError
from sglang_lite.lang.ir import SglGen
from sglang_lite.lang.typed.gens import Retries, SglTypedGen, as_typed, check_can_differ, read_retries


def test_the_text_after_a_rejected_try_names_it_and_its_fault() -> None:
    retries = Retries(1, "No: {text}! {error}. {text}")
    assert not retries.keeps_rejected
    assert retries.text_after("A{error}", "B{text}") == "No: A{error}! B{text}. A{error}"


def test_a_rejected_text_at_the_beginning_stays_as_it_was_generated() -> None:
    retries = Retries(1, RETRY_TEXT)
    assert retries.keeps_rejected
    assert retries.text_after("A", "B") == "\nThis is not valid: B\nOnce more: "


def test_retries_are_read_with_their_text() -> None:
    assert read_retries(None, None, None) == Retries(0, None)
    assert read_retries(2, True, 0) == Retries(2, RETRY_TEXT)
    assert read_retries(2, "x", 0.5) == Retries(2, "x")
    assert read_retries(2, False, 0.5) == Retries(2, None)


@pytest.mark.parametrize("count", [-1, True, "2", 1.0])
def test_retries_that_are_no_count_are_refused(count: object) -> None:
    with pytest.raises(RequestError, match="whole number"):
        read_retries(count, None, None)  # type: ignore[arg-type]


def test_a_text_without_retries_and_tries_that_are_all_the_same_are_refused() -> None:
    with pytest.raises(RequestError, match="without retries"):
        read_retries(None, "x", None)
    with pytest.raises(RequestError, match="temperature 0"):
        read_retries(1, None, 0)
    check_can_differ(Retries(0), is_greedy=True)
    check_can_differ(Retries(1), is_greedy=False)


def test_only_a_gen_that_is_judged_is_typed() -> None:
    assert as_typed(SglGen("x")) is None
    gen: SglTypedGen[int] = SglTypedGen("x")
    assert as_typed(gen) is gen
