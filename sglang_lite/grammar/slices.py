"""Token masks made in advance: tokens that consist of characters of one common set, and tries of all the others; knows no grammar.

In a state after which any characters of such a set may follow, these tokens need not be walked one by one. The tokens that begin with
a space are a part of their own, sliced by what comes behind the space: where words and spaces alternate, the state behind the
space is another one.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from sglang_lite.grammar.bitmask import Bitmask, num_words
from sglang_lite.grammar.nfa import ByteDfa, Int32Array, UInt8Array
from sglang_lite.grammar.slice_sets import slice_sets
from sglang_lite.grammar.spelling import char_dfa
from sglang_lite.grammar.trie_kernels import MAX_LEVEL, SliceTables, TrieArrays, count_chars

_SPACE = 0x20


def make_slices(
    data: UInt8Array, offsets: Int32Array, order: Int32Array, lay_out: Callable[[Int32Array], TrieArrays]
) -> SliceTables:
    """The slices of a vocabulary.

    Args:
        data, offsets: the token bytes; uint8 [*], int32 [V + 1].
        order: tokens with bytes, sorted by them, then by id.
        lay_out: makes the trie of tokens in that order.
    """
    automata = [rows for rows in map(char_dfa, slice_sets()) if rows is not None]
    spaced = np.array([data[offsets[token]] == _SPACE for token in order.tolist()], np.bool_)
    tries: list[TrieArrays] = []
    upto: list[list[Bitmask]] = []
    counts: list[list[list[int]]] = []
    for skipped, members in ((0, order[~spaced]), (1, order[spaced])):
        tries.append(lay_out(members))
        masks: list[Bitmask] = []
        sizes: list[list[int]] = []
        for rows in automata:
            chars = np.empty(len(offsets) - 1, np.int32)
            count_chars(data, offsets, skipped, rows, chars)
            chars = chars[members]
            inside = chars >= 0
            levels = [*(inside & (chars <= level) for level in range(MAX_LEVEL + 1)), inside]
            masks.append(np.stack([_words(members[level], len(offsets) - 1) for level in levels]))
            sizes.append([int(np.count_nonzero(level)) for level in levels])
            tries += (lay_out(members[chars > MAX_LEVEL]), lay_out(members[~inside]))
        upto.append(masks)
        counts.append(sizes)
    trie, ends = _one_after_another(tries)
    rows, entries = _side_by_side(automata)
    spans = np.stack([np.append(np.int32(0), ends[:-1]), ends], axis=1)
    return SliceTables(
        rows=rows,
        entries=entries,
        upto=np.array(upto, np.int32),
        counts=np.array(counts, np.int32),
        trie=trie,
        ranges=np.ascontiguousarray(spans.reshape(2, -1, 2), np.int32),
    )


def _one_after_another(tries: list[TrieArrays]) -> tuple[TrieArrays, Int32Array]:
    """All `tries` as one, and where each of them ends."""
    ends = np.cumsum([len(trie.byte) for trie in tries], dtype=np.int32)
    bases = np.append(np.int32(0), ends[:-1])
    joined = TrieArrays(
        byte=np.concatenate([trie.byte for trie in tries]),
        depth=np.concatenate([trie.depth for trie in tries]),
        skip=np.concatenate([trie.skip + base for trie, base in zip(tries, bases, strict=True)]),
        token=np.concatenate([trie.token for trie in tries]),
        next_same=np.maximum.reduce([trie.next_same for trie in tries]),
        max_depth=max(trie.max_depth for trie in tries),
    )
    return joined, ends


def _side_by_side(automata: list[ByteDfa]) -> tuple[ByteDfa, Int32Array]:
    """All `automata` as one, and the state where each of them begins."""
    entries = np.cumsum([0, *(len(rows.offsets) - 1 for rows in automata)], dtype=np.int32)[:-1]
    edges = []
    for base, rows in zip(entries.tolist(), automata, strict=True):
        moved = rows.edges.copy()
        moved[moved[:, 2] >= 0, 2] += base
        edges.append(moved)
    counts = np.concatenate([np.diff(rows.offsets) for rows in automata])
    offsets = np.cumsum([0, *counts.tolist()], dtype=np.int32)
    return ByteDfa(offsets, np.concatenate(edges), accepts_empty=False, covers=0), entries.copy()


def _words(token_ids: npt.NDArray[np.int32], vocab_size: int) -> Bitmask:
    flags = np.zeros(num_words(vocab_size) * 32, np.uint8)
    flags[token_ids] = 1
    return np.packbits(flags, bitorder="little").view("<i4").astype(np.int32)
