"""The sets of characters by which vocabularies are sliced: those that large parts of patterns and schemas are made of."""

from __future__ import annotations

from bisect import bisect_right
from functools import cache

from sglang_lite.grammar.charset import MAX_CODE_POINT, CharSet
from sglang_lite.grammar.unicode_sets import shorthand

_SURROGATES = (0xD800, 0xDFFF)


@cache
def slice_sets() -> tuple[CharSet, ...]:
    """At most seven sets, the largest first, without surrogates. Each leaves out what some spellings of the same class leave out."""
    line_ends = [(0x0A, 0x0A), (0x0D, 0x0D), (0x2028, 0x2029)]
    quote, backslash = (0x22, 0x22), (0x5C, 0x5C)
    sets = (
        CharSet(((0, MAX_CODE_POINT),)),
        CharSet.of(line_ends).negate(),
        CharSet.of([(0, 0x1F), (0x7F, 0x7F), quote, backslash]).negate(),
        CharSet.of([(0x20, 0x21), (0x23, 0x5B), (0x5D, 0x7E)]),
        shorthand("w", ascii_only=False),
        shorthand("w", ascii_only=True),
        CharSet.of([(0x30, 0x39), (0x61, 0x7A)]),
    )
    return tuple(CharSet.of([*charset.negate().ranges, _SURROGATES]).negate() for charset in sets)


def covered_sets(charset: CharSet) -> int:
    """Bit i is set if `charset` has all characters of slice set i."""
    if len(charset.ranges) == 1 and charset.ranges[0][0] == charset.ranges[0][1]:
        return 0
    return sum(1 << i for i, part in enumerate(slice_sets()) if _contains(charset, part))


def _contains(charset: CharSet, part: CharSet) -> bool:
    for low, high in part.ranges:
        at = bisect_right(charset.ranges, (low, MAX_CODE_POINT + 1)) - 1
        if at < 0 or charset.ranges[at][1] < high:
            return False
    return True
