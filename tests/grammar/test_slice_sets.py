from __future__ import annotations

from sglang_lite.grammar.charset import ANY, CharSet
from sglang_lite.grammar.slice_sets import covered_sets, slice_sets


def test_sets_cover_what_they_contain() -> None:
    sets = slice_sets()
    for index, charset in enumerate(sets):
        assert covered_sets(charset) >> index & 1
        for other, part in enumerate(sets):
            contained = len(charset.union(part)) == len(charset)
            assert bool(covered_sets(charset) >> other & 1) == contained
    assert covered_sets(ANY) == (1 << len(sets)) - 1
    assert covered_sets(CharSet.single(0x61)) == 0


def test_there_are_few_enough_sets_for_one_byte() -> None:
    assert 0 < len(slice_sets()) <= 7


def test_surrogates_make_no_difference() -> None:
    """Patterns leave them out or not; no text has them."""
    encodable = CharSet(((0, 0xD7FF), (0xE000, 0x10FFFF)))
    assert covered_sets(encodable) == covered_sets(ANY)
