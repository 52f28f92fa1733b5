"""Sets of arrays: what follows at once from bounds and items without a value."""

from __future__ import annotations

import pytest

from sglang_lite.grammar import UnsupportedGrammarError
from sglang_lite.grammar.json_schema.sequences import (
    ALL_ARRAYS,
    ArraySet,
    Contained,
    complement_arrays,
    meet_arrays,
    trimmed,
)
from sglang_lite.grammar.json_schema.terms import FALSE, Located, all_of

A, B = Located("/a"), Located("/b")


def test_an_intersection_meets_items_by_place() -> None:
    met = meet_arrays(ArraySet((A,), B, low=1), ArraySet((), A, high=5))
    assert met == ArraySet((A,), all_of([A, B]), 1, 5)
    assert meet_arrays(ArraySet(low=3), ArraySet(high=2)) is None


def test_an_item_without_a_value_ends_the_array() -> None:
    assert trimmed(ArraySet((A, FALSE, B))) == ArraySet((A,), high=1)
    assert trimmed(ArraySet((A,), FALSE, low=2)) is None


def test_a_complement_is_a_union_of_violations() -> None:
    found = complement_arrays(ArraySet((A,), B, low=1, high=3))
    assert ArraySet(high=0) in found
    assert ArraySet(low=4) in found
    assert len(found) == 4
    assert complement_arrays(ALL_ARRAYS) == []
    counted = complement_arrays(ArraySet(contained=frozenset([Contained(0, A, 1, 2)])))
    assert {next(iter(part.contained)).low for part in counted} == {0, 3}


def test_unique_items_have_no_complement() -> None:
    with pytest.raises(UnsupportedGrammarError):
        complement_arrays(ArraySet(unique="/uniqueItems"))
