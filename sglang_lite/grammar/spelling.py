"""Characters and bytes as small deterministic byte automata, the labels of the edges of a graph; each is made once."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from sglang_lite.grammar.charset import ENTRY, EXIT, CharSet, utf8_fragment
from sglang_lite.grammar.nfa import ByteDfa
from sglang_lite.grammar.slice_sets import covered_sets


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


def _byte_dfa(rows: list[list[tuple[int, int, int, int]]], covers: int) -> ByteDfa:
    """The automaton with the edges `rows[i]` (low byte, high byte, next or -1, exits) at state i."""
    return ByteDfa(
        offsets=np.cumsum([0, *map(len, rows)], dtype=np.int32),
        edges=np.array([edge for row in rows for edge in row], np.int32).reshape(-1, 4),
        accepts_empty=False,
        covers=covers,
    )


def _row(local: int) -> int:
    """Number of a fragment's local state: the entry first, the exit left out."""
    return 0 if local == ENTRY else local - 1


BYTES = tuple(_byte_dfa([[(byte, byte, -1, 1)]], 0) for byte in range(256))
