from __future__ import annotations

from typing import Annotated, Any

import pydantic
import pytest

from sglang_lite import Limits
from sglang_lite.lang.typed.forms import MismatchError
from sglang_lite.lang.typed.limits import broken_bound, keywords_of
from sglang_lite.lang.typed.of_type import form_of


@pytest.mark.parametrize(
    ("limits", "good", "bad", "words"),
    [
        (Limits(ge=3), 3, 2, "at least 3"),
        (Limits(le=3), 3, 4, "at most 3"),
        (Limits(gt=3), 3.5, 3, "more than 3"),
        (Limits(lt=3), 2.5, 3, "less than 3"),
        (Limits(multiple_of=5), 10, 11, "a multiple of 5"),
        (Limits(min_length=2), "ab", "a", "at least 2 characters"),
        (Limits(max_length=2), "ab", "abc", "at most 2 characters"),
        (Limits(pattern="^a"), "ab", "ba", "a text that has a match of '^a'"),
    ],
)
def test_a_bound_holds_and_says_what_it_is(limits: Limits, good: Any, bad: Any, words: str) -> None:
    keywords = keywords_of([limits], is_list=False)
    assert broken_bound(keywords, good) is None
    assert broken_bound(keywords, bad) == words


def test_lengths_of_lists_are_counts_of_items() -> None:
    form = form_of(Annotated[list[int], Limits(min_length=1, max_length=2)])
    assert form.root_schema() == {"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 2}
    assert form.build([1], ()) == [1]
    with pytest.raises(MismatchError, match="at least 1 items"):
        form.build([], ())


def test_a_bound_of_another_kind_of_value_has_no_say() -> None:
    assert broken_bound({"minimum": 3}, "a") is None
    assert broken_bound({"minimum": 3}, False) is None
    assert broken_bound({"minLength": 3}, 1) is None


def test_bounds_of_pydantic_and_descriptions_count_and_others_are_for_others() -> None:
    found = keywords_of([pydantic.Field(ge=1, max_length=3, description="d"), object(), "text"], is_list=False)
    assert found == {"minimum": 1, "maxLength": 3, "description": "text"}


def test_limits_show_what_is_given() -> None:
    assert repr(Limits(ge=1, pattern="x")) == "Limits(ge=1, pattern='x')"
