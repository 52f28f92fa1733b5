"""Unions by type and their algebra."""

from __future__ import annotations

from functools import reduce

import pytest

from sglang_lite.grammar import GrammarTooLargeError
from sglang_lite.grammar.json_schema.forms import EVERYTHING, MAX_ALTERNATIVES, NOTHING, Form, intersect, negate, unite
from sglang_lite.grammar.json_schema.members import ObjectSet
from sglang_lite.grammar.json_schema.scalars import values_form
from sglang_lite.grammar.json_schema.terms import FALSE, TRUE


def test_complements_come_back() -> None:
    assert negate(EVERYTHING).is_bare
    assert negate(NOTHING) == EVERYTHING
    words = Form(null=True, true=True)
    assert negate(negate(words)) == words


def test_listed_values_are_joined_and_met() -> None:
    both = unite([values_form([1, "a"]), values_form(["b", 2])])
    assert len(both.numbers) == len(both.texts) == 1
    assert intersect(both, values_form(["b", 1, None])) == values_form([1, "b"])


def test_everything_swallows_the_rest_of_a_union() -> None:
    assert unite([EVERYTHING, values_form([{"a": 1}, [1]])]) == EVERYTHING


def test_too_many_alternatives_are_an_error() -> None:
    many = [
        Form(objects=(ObjectSet(((f"a{i}", FALSE),)), ObjectSet(((f"a{i}", TRUE),), required=(f"a{i}",))))
        for i in range(12)
    ]
    with pytest.raises(GrammarTooLargeError, match=str(MAX_ALTERNATIVES)):
        reduce(intersect, many, EVERYTHING)
