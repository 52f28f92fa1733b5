"""Arrays as grammar nodes: unique items and machines over items."""

from __future__ import annotations

import itertools

import pytest

from sglang_lite.grammar import UnsupportedGrammarError
from sglang_lite.grammar.json_schema import schema_to_grammar
from tests.grammar.json_schema.verdicts import check, notes, written
from tests.support.grammar_oracle import recognises


def test_unique_items_of_a_finite_set_come_in_any_order() -> None:
    grammar = schema_to_grammar(
        {"type": "array", "items": {"enum": [1, "1", None, True]}, "uniqueItems": True, "minItems": 2}
    ).grammar
    values = [1, "1", None, True]
    for size in range(4):
        for chosen in itertools.product(values, repeat=size):
            distinct = len({written(value) for value in chosen}) == size
            assert recognises(grammar, written(list(chosen))) == (distinct and size >= 2)


def test_unique_items_of_many_values_come_in_order_and_it_is_noted() -> None:
    schema = {"type": "array", "items": {"enum": list("abcdefghijk")}, "uniqueItems": True}
    check([(schema, [[], ["a", "c", "k"]], [["a", "a"], ["b", "a"]])])
    assert [note.effect for note in notes(schema)] == ["narrower"]


def test_items_that_differ_anyway_are_unique() -> None:
    check(
        [
            ({"type": "array", "uniqueItems": True, "maxItems": 1}, [[], [{"a": 1}]], [[1, 2]]),
            (
                {
                    "type": "array",
                    "uniqueItems": True,
                    "prefixItems": [{"type": "string"}, {"type": "null"}],
                    "items": False,
                },
                [["a", None]],
                [["a", "a"]],
            ),
        ]
    )


def test_unique_items_of_an_endless_set_are_refused() -> None:
    with pytest.raises(UnsupportedGrammarError, match="give items an enum"):
        schema_to_grammar({"properties": {"a": {"type": "array", "items": {"type": "string"}, "uniqueItems": True}}})


def test_two_demands_are_counted_apart() -> None:
    schema = {
        "type": "array",
        "allOf": [{"contains": {"const": 1}}, {"contains": {"minimum": 2}, "maxContains": 1}],
        "maxItems": 3,
    }
    check([(schema, [[1, 2], [5, 1, 1]], [[1], [2], [1, 2, 3]])])
