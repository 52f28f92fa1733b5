"""Characters and bytes as small deterministic byte automata, the labels of the edges of a graph; each is made once."""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise

import numpy as np

from sglang_lite.grammar.charset import ENTRY, EXIT, CharSet, utf8_fragment
from sglang_lite.grammar.nfa import ByteDfa
from sglang_lite.grammar.slice_sets import covered_sets
from sglang_lite.grammar.syntax import shared_length


@lru_cache(maxsize=512)
def char_dfa(charset: CharSet) -> ByteDfa | None:
    """One character of `charset` in UTF-8; None if no encodable character is in it."""
    fragment = utf8_fragment(charset)
    if fragment is None:
        return None
    rows: list[list[tuple[int, int, int, int]]] = [[] for _ in range(1 + fragment.interior)]
    for source, low, high, target in fragment.edges:
        following = -1 if target == EXIT else _row(target)
        rows[_row(source)].append((low, high, following, int(target == EXIT)))
    return _byte_dfa(rows, covered_sets(charset))


def _byte_dfa(rows: list[list[tuple[int, int, int, int]]], covers: int, *, accepts_empty: bool = False) -> ByteDfa:
    """The automaton with the edges `rows[i]` (low byte, high byte, next or -1, exits) at state i."""
    return ByteDfa(
        offsets=np.cumsum([0, *map(len, rows)], dtype=np.int32),
        edges=np.array([edge for row in rows for edge in row], np.int32).reshape(-1, 4),
        accepts_empty=accepts_empty,
        covers=covers,
    )


def _row(local: int) -> int:
    """Number of a fragment's local state: the entry first, the exit left out."""
    return 0 if local == ENTRY else local - 1


@lru_cache(maxsize=4096)
def literal_dfa(data: bytes) -> ByteDfa:
    """Exactly the text `data`, which is not empty."""
    if len(data) == 1:
        return BYTES[data[0]]
    edges = np.empty((len(data), 4), np.int32)
    edges[:, 0] = edges[:, 1] = np.frombuffer(data, np.uint8)
    edges[:, 2] = np.arange(1, len(data) + 1)
    edges[:, 3] = 0
    edges[-1, 2:] = -1, 1
    return ByteDfa(np.arange(len(data) + 1, dtype=np.int32), edges, accepts_empty=False, covers=0)


@lru_cache(maxsize=512)
def open_dfa(charset: CharSet) -> ByteDfa:
    """An automaton that reads nothing and only tells, to who makes masks, which characters may follow without end."""
    return ByteDfa(np.zeros(2, np.int32), np.empty((0, 4), np.int32), accepts_empty=False, covers=covered_sets(charset))


def choices_dfa(texts: tuple[bytes, ...]) -> ByteDfa:
    """Exactly the sorted, distinct `texts` as a tree: common beginnings share their states."""
    rows: list[list[tuple[int, int, int, int]]] = [[]]
    path = [0]  # path[i] is the state behind the first i bytes of the text before, -1 where it has no edges
    for before, text in pairwise((b"", *texts)):
        shared = shared_length(before, text)
        if shared == len(text):
            continue  # the empty text
        if path[shared] < 0:  # the text before ends here, and this one goes on
            path[shared] = len(rows)
            low, high, _, exits = rows[path[shared - 1]][-1]
            rows[path[shared - 1]][-1] = (low, high, path[shared], exits)
            rows.append([])
        del path[shared + 1 :]
        for at in range(shared, len(text)):
            last = at == len(text) - 1
            rows[path[at]].append((text[at], text[at], -1 if last else len(rows), int(last)))
            path.append(-1 if last else len(rows))
            if not last:
                rows.append([])
    return _byte_dfa(rows, 0, accepts_empty=not texts[0])


BYTES = tuple(_byte_dfa([[(byte, byte, -1, 1)]], 0) for byte in range(256))
