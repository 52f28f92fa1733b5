"""The lazily filled deterministic tables of one automaton, their growth and their lock; knows no vocabulary but a trie to walk.

A configuration of the grammar is one int, `DEAD` when nothing can follow. All requests of a grammar share its tables.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from sglang_lite.grammar.errors import GrammarTooLargeError
from sglang_lite.grammar.kernels import (
    DEAD,
    FULL_CELLS,
    FULL_CLOSURE,
    FULL_ITEMS,
    FULL_SCRATCH,
    FULL_STATES,
    UNKNOWN,
    DfaTables,
    advance,
    advance_known,
    expand,
    follow_forced,
    next_state,
    rehash,
    start_state,
)
from sglang_lite.grammar.nfa import ByteNfa, Int32Array, UInt8Array
from sglang_lite.grammar.trie_kernels import SliceTables, TrieArrays, fill_mask, spans_end, walk

DEFAULT_MAX_ITEMS = 50_000
_FIRST_STATES = 64
_FIRST_ITEMS = 256
_FIRST_CELLS = 64
_FORCED_ROOM = 256
_SLICES = 8


class ForcedRun(NamedTuple):
    """Bytes that must come next, and the state behind them."""

    data: bytes
    state: int


class LazyTables:
    """Deterministic states of `nfa`, found when they are first needed. Safe to call from several threads.

    `max_bytes` bounds the arrays and `max_items` the places at which one configuration may stand at once; what would outgrow them
    raises GrammarTooLargeError and stays usable for what it holds.
    """

    def __init__(self, nfa: ByteNfa, *, max_bytes: int, max_items: int = DEFAULT_MAX_ITEMS) -> None:
        self.nfa = nfa
        self._max_bytes = max_bytes
        self._max_items = max_items
        self._lock = threading.Lock()
        self._dfa = _new_tables(nfa)
        self._forced: dict[int, ForcedRun] = {}
        self.start = DEAD if nfa.start < 0 else self._grown(start_state)

    @property
    def num_states(self) -> int:
        """Deterministic states found so far."""
        return int(self._dfa.counters[0])

    @property
    def num_cells(self) -> int:
        """Stack cells found so far, the empty stack included."""
        return int(self._dfa.counters[2])

    @property
    def num_bytes(self) -> int:
        """Memory of all arrays, the automaton's own included."""
        return sum(part.nbytes for part in self._dfa) + self.nfa.num_bytes

    def is_accepting(self, state: int) -> bool:
        """Whether the text may end in `state`."""
        return state >= 0 and bool(self._dfa.accepting[state])

    def advance(self, state: int, data: UInt8Array, begin: int, end: int) -> int:
        """The state after the bytes `data[begin:end]` (uint8), or `DEAD`."""
        if state < 0:
            return DEAD
        # Transitions are only ever filled in, so what is known may be read while another thread adds to it.
        target = advance_known(state, data, begin, end, self.nfa.byte_class, self._dfa.transitions)
        if target == UNKNOWN:
            with self._lock:
                target = self._grown(advance, state, data, begin, end)
        return target

    def after_special(self, state: int, index: int) -> int:
        """The state after the special token `nfa.special_ids[index]`, or `DEAD`."""
        if state < 0:
            return DEAD
        with self._lock:
            return self._grown(next_state, state, self.nfa.num_classes + index)

    def fill_mask(self, state: int, slices: SliceTables, words: Int32Array) -> int:
        """Write the tokens allowed in `state` into `words`, int32 [ceil(V / 32)]; returns their number."""
        with self._lock:
            return self._grown(fill_mask, state, slices, words)

    def walk(self, state: int, trie: TrieArrays, words: Int32Array) -> int:
        """Add the tokens of `trie` allowed in `state` to `words`, int32 [ceil(V / 32)], one by one; returns their number."""
        with self._lock:
            return self._grown(walk, state, np.array([0, len(trie.byte)], np.int32), trie, words)

    def spans_end(self, data: UInt8Array, state: int, trie: TrieArrays) -> list[int]:
        """Places of `data`, which leads to `state`, where a token begins that goes on legally beyond its end; ascending."""
        spans = np.zeros(len(data), np.uint8)
        with self._lock:
            self._grown(spans_end, data, state, trie, spans)
        return np.flatnonzero(spans).tolist()

    def forced(self, state: int) -> ForcedRun:
        """The singular edges from `state` in one: the bytes that must follow, and where they lead."""
        found = self._forced.get(state)
        if found is None:
            with self._lock:
                found = self._forced[state] = self._follow(state)
        return found

    def row(self, state: int) -> list[int]:
        """The next state (or `DEAD`) of `state` on each byte class and special token, all computed."""
        with self._lock:
            self._grown(expand, state, state + 1)
            return self._dfa.transitions[state].tolist()

    def expand_all(self, max_states: int) -> tuple[Int32Array, UInt8Array] | None:
        """All transitions (int32 [S, C]) and accepting states (uint8 [S]), the start first; None if S is over `max_states`."""
        with self._lock:
            self._grown(expand, 0, max_states)
            count = self.num_states
            return None if count > max_states else (self._dfa.transitions[:count], self._dfa.accepting[:count])

    def _follow(self, state: int) -> ForcedRun:
        pieces: list[bytes] = []
        room = np.empty(_FORCED_ROOM, np.uint8)
        while True:
            count, state, code = follow_forced(state, room, self.nfa, self._dfa)
            pieces.append(room[:count].tobytes())
            if code:
                self._grow(code)
            elif count < len(room):
                return ForcedRun(b"".join(pieces), state)

    def _grown(self, kernel: Callable[..., int], *args: object) -> int:
        """`kernel(*args, nfa, dfa)`, called again after growth for as long as it runs out of room."""
        while (result := kernel(*args, self.nfa, self._dfa)) <= FULL_STATES:
            self._grow(result)
        return result

    def _grow(self, code: int) -> None:
        old = self._dfa
        grown = _grown_tables(old, code)
        if len(grown.scratch) > 2 * self._max_items or len(grown.stack) > 8 * self._max_items:
            raise GrammarTooLargeError(
                f"filling the tables of a grammar: one configuration stands at more than {self._max_items} places at once; "
                "make the grammar less ambiguous"
            )
        size = sum(part.nbytes for part in grown)
        if size > self._max_bytes:
            raise GrammarTooLargeError(
                f"filling the tables of a grammar: {self.num_states} states need more than {self._max_bytes} bytes; "
                "simplify the grammar (nested or overlapping repeats) or raise max_table_bytes"
            )
        self._dfa = grown


def _grown_tables(old: DfaTables, code: int) -> DfaTables:
    """A copy of `old` with twice the room of the kind that `code` names."""
    if code == FULL_STATES:
        capacity = 2 * len(old.accepting)
        transitions = np.full((capacity, old.transitions.shape[1]), UNKNOWN, np.int32)
        transitions[: len(old.accepting)] = old.transitions
        grown = old._replace(
            transitions=transitions,
            set_offsets=np.concatenate([old.set_offsets, np.zeros(capacity - len(old.accepting), np.int32)]),
            accepting=_doubled(old.accepting),
            slice_next=np.concatenate([old.slice_next, np.full_like(old.slice_next, UNKNOWN)]),
            buckets=np.full(4 * capacity, -1, np.int32),
            cell_buckets=np.full_like(old.cell_buckets, -1),
        )
        rehash(grown)
        return grown
    if code == FULL_CELLS:
        grown = old._replace(
            cell_parent=_doubled(old.cell_parent),
            cell_return=_doubled(old.cell_return),
            cell_buckets=np.full(2 * len(old.cell_buckets), -1, np.int32),
            buckets=np.full_like(old.buckets, -1),
        )
        rehash(grown)
        return grown
    if code == FULL_ITEMS:
        return old._replace(set_items=_doubled(old.set_items))
    if code == FULL_SCRATCH:
        return old._replace(scratch=_doubled(old.scratch))
    assert code == FULL_CLOSURE, f"no table grows on the code {code}"
    size = 2 * len(old.stack)
    return old._replace(
        seen_keys=np.zeros(size, np.int64), seen_marks=np.zeros(size, np.int64), stack=np.zeros(size, np.int64)
    )


def _doubled(array: np.ndarray) -> np.ndarray:
    return np.concatenate([array, np.zeros_like(array)])


def _new_tables(nfa: ByteNfa) -> DfaTables:
    return DfaTables(
        transitions=np.full((_FIRST_STATES, nfa.num_columns), UNKNOWN, np.int32),
        set_offsets=np.zeros(_FIRST_STATES + 1, np.int32),
        set_items=np.zeros(_FIRST_ITEMS, np.int64),
        accepting=np.zeros(_FIRST_STATES, np.uint8),
        slice_next=np.full((_FIRST_STATES, _SLICES), UNKNOWN, np.int32),
        buckets=np.full(4 * _FIRST_STATES, -1, np.int32),
        counters=np.array([0, 0, 1, 0], np.int64),
        cell_parent=np.zeros(_FIRST_CELLS, np.int32),
        cell_return=np.zeros(_FIRST_CELLS, np.int32),
        cell_buckets=np.full(4 * _FIRST_CELLS, -1, np.int32),
        seen_keys=np.zeros(_FIRST_ITEMS, np.int64),
        seen_marks=np.zeros(_FIRST_ITEMS, np.int64),
        stack=np.zeros(_FIRST_ITEMS, np.int64),
        scratch=np.zeros(_FIRST_ITEMS, np.int64),
    )
