"""Sets of Unicode code points and their spelling as UTF-8 byte automata; knows nothing of regex syntax."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby

from sglang_lite.grammar.hashing import Hashed, hashed_once

MAX_CODE_POINT = 0x10FFFF
# Intervals of code points whose UTF-8 form has one length; the gap is the surrogates, which UTF-8 cannot spell.
_SAME_LENGTH = ((0x0, 0x7F), (0x80, 0x7FF), (0x800, 0xD7FF), (0xE000, 0xFFFF), (0x10000, MAX_CODE_POINT))

Range = tuple[int, int]
ByteSequence = tuple[Range, ...]


@hashed_once
@dataclass(frozen=True, slots=True)
class CharSet(Hashed):
    """A set of code points as sorted, disjoint, non-adjacent inclusive ranges."""

    ranges: tuple[Range, ...]

    @classmethod
    def of(cls, ranges: Iterable[Range]) -> CharSet:
        """The set of all code points in `ranges`, which may overlap and come in any order."""
        merged: list[Range] = []
        for low, high in sorted(ranges):
            if merged and low <= merged[-1][1] + 1:
                merged[-1] = (merged[-1][0], max(high, merged[-1][1]))
            else:
                merged.append((low, high))
        return cls(tuple(merged))

    @classmethod
    def single(cls, code_point: int) -> CharSet:
        """The set of one code point."""
        return cls(((code_point, code_point),))

    def __contains__(self, code_point: int) -> bool:
        at = bisect_right(self.ranges, (code_point, MAX_CODE_POINT + 1)) - 1
        return at >= 0 and self.ranges[at][0] <= code_point <= self.ranges[at][1]

    def __len__(self) -> int:
        return sum(high - low + 1 for low, high in self.ranges)

    def union(self, *others: CharSet) -> CharSet:
        """All code points of this set and of `others`."""
        return CharSet.of([*self.ranges, *(span for other in others for span in other.ranges)])

    def negate(self) -> CharSet:
        """All code points up to U+10FFFF that are not in this set."""
        gaps: list[Range] = []
        begin = 0
        for low, high in self.ranges:
            if low > begin:
                gaps.append((begin, low - 1))
            begin = high + 1
        if begin <= MAX_CODE_POINT:
            gaps.append((begin, MAX_CODE_POINT))
        return CharSet(tuple(gaps))


ANY = CharSet(((0, MAX_CODE_POINT),))
NOTHING = CharSet(())


def utf8_sequences(charset: CharSet) -> Iterator[ByteSequence]:
    """Sequences of byte ranges, in code point order, that together spell exactly the characters of `charset`.

    Surrogates have no UTF-8 form and are left out.
    """
    for low, high in charset.ranges:
        for first, last in _SAME_LENGTH:
            begin, end = max(low, first), min(high, last)
            if begin <= end:
                yield from _between(chr(begin).encode(), chr(end).encode())


def _between(low: bytes, high: bytes) -> Iterator[ByteSequence]:
    """Byte range sequences of all well-formed strings from `low` to `high`, two encodings of one length."""
    if len(low) == 1:
        yield ((low[0], high[0]),)
        return
    if low[0] == high[0]:
        for rest in _between(low[1:], high[1:]):
            yield ((low[0], low[0]), *rest)
        return
    tail = len(low) - 1
    smallest, largest = b"\x80" * tail, b"\xbf" * tail
    begin, end = low[0], high[0]
    if low[1:] != smallest:
        for rest in _between(low[1:], largest):
            yield ((low[0], low[0]), *rest)
        begin += 1
    whole_end = high[1:] == largest
    if not whole_end:
        end -= 1
    if begin <= end:
        yield ((begin, end), *[(0x80, 0xBF)] * tail)
    if not whole_end:
        for rest in _between(smallest, high[1:]):
            yield ((high[0], high[0]), *rest)


@dataclass(frozen=True, slots=True, eq=False)
class Utf8Fragment:
    """The minimal acyclic byte automaton of a character set, as edges between local states.

    Local state 0 is the entry, 1 the exit, 2 and up are `interior` states between. `edges` holds (source, low byte, high byte, target).
    """

    interior: int
    edges: tuple[tuple[int, int, int, int], ...]


ENTRY, EXIT, FIRST_INTERIOR = 0, 1, 2


@lru_cache(maxsize=512)
def utf8_fragment(charset: CharSet) -> Utf8Fragment | None:
    """The byte automaton of one character of `charset`; None if no encodable character is in it."""
    sequences = list(utf8_sequences(charset))
    if not sequences:
        return None
    known: dict[tuple[tuple[int, int, int], ...], int] = {}
    edges: list[tuple[int, int, int, int]] = []

    def outgoing(rows: list[ByteSequence]) -> tuple[tuple[int, int, int], ...]:
        """Edges (low, high, target) that spell `rows`; sequences come sorted, so equal heads are neighbours."""
        out: list[tuple[int, int, int]] = []
        for head, group in groupby(rows, key=lambda row: row[0]):
            tails = [row[1:] for row in group]
            target = state(tails) if tails[0] else EXIT
            if out and out[-1][2] == target and out[-1][1] + 1 == head[0]:
                out[-1] = (out[-1][0], head[1], target)
            else:
                out.append((*head, target))
        return tuple(out)

    def state(rows: list[ByteSequence]) -> int:
        """The interior state with exactly the suffixes `rows`, made once for equal suffix sets."""
        key = outgoing(rows)
        if key not in known:
            known[key] = FIRST_INTERIOR + len(known)
            edges.extend((known[key], *edge) for edge in key)
        return known[key]

    edges.extend((ENTRY, *edge) for edge in outgoing(sequences))
    return Utf8Fragment(interior=len(known), edges=tuple(edges))
