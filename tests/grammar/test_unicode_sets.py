from __future__ import annotations

import random
import re
import unicodedata

import pytest

from sglang_lite.grammar.charset import CharSet
from sglang_lite.grammar.unicode_sets import category, fold_case, shorthand

SAMPLE = [*range(0x3000), *random.Random(0).sample(range(0x3000, 0x110000), 3000)]
ODD_CASES = "siIkKſKµμẞßİıΐΐÅåÅσςΣﬅﬆдᲁ"


@pytest.mark.parametrize("ascii_only", [False, True])
@pytest.mark.parametrize("letter", "dDsSwW")
def test_shorthands_are_those_of_re(letter: str, ascii_only: bool) -> None:
    oracle = re.compile(f"\\{letter}", re.ASCII if ascii_only else 0)
    charset = shorthand(letter, ascii_only=ascii_only)
    assert [code for code in SAMPLE if code in charset] == [code for code in SAMPLE if oracle.match(chr(code))]


def test_case_folding_is_that_of_re_for_every_partner() -> None:
    """Every cased letter below U+0600 and the odd ones, against all code points that could be partners."""
    everything = "".join(map(chr, range(0x1F000)))
    letters = [chr(code) for code in range(0x80, 0x600) if chr(code).lower() != chr(code).upper()]
    for letter in [*random.Random(0).sample(letters, 40), *ODD_CASES]:
        expected = {ord(found) for found in re.findall(letter, everything, re.IGNORECASE)}
        charset = fold_case(CharSet.single(ord(letter)), ascii_only=False)
        assert {code for low, high in charset.ranges for code in range(low, high + 1)} == expected


def test_ascii_folding_knows_ascii_letters_only() -> None:
    assert fold_case(CharSet.single(ord("k")), ascii_only=True) == CharSet.of([(75, 75), (107, 107)])


def test_large_and_small_sets_fold_alike() -> None:
    lower = CharSet.of([(0x61, 0x7A), (0x10000, 0x1FFFF)])
    assert fold_case(lower, ascii_only=False) == fold_case(CharSet.of([(0x61, 0x7A)]), ascii_only=False).union(
        fold_case(CharSet.of([(0x10000, 0x1FFFF)]), ascii_only=False)
    )


@pytest.mark.parametrize("name", ["Lu", "Nd", "L", "Zs", "Cs"])
def test_categories_are_those_of_unicodedata(name: str) -> None:
    charset = category(name)
    assert charset is not None
    assert [code for code in SAMPLE if code in charset] == [
        code for code in SAMPLE if unicodedata.category(chr(code)).startswith(name)
    ]


def test_an_unknown_category_is_none() -> None:
    assert category("Greek") is None
