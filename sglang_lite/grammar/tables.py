"""The lazily filled deterministic tables of one automaton, their growth and their lock; knows no vocabulary but a trie to walk.

A configuration of the grammar is one int, `DEAD` when nothing can follow. All requests of a grammar share its tables. Where these
outgrow what is worth keeping, they begin anew and older states are stale: who holds one finds its way again by the tokens it accepted.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np

from sglang_lite.grammar.errors import GrammarTooLargeError
from sglang_lite.grammar.kernels import (
    BLOCK,
    DEAD,
    FULL_BLOCKS,
    FULL_CELLS,
    FULL_CLOSURE,
    FULL_ITEMS,
    FULL_ROWS,
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
_FIRST_STATES = 256
_FIRST_ROWS = 128
_FIRST_BLOCKS = 256
_FIRST_ITEMS = 1024
_FIRST_CELLS = 64
_FORCED_ROOM = 256
_SLICES = 8


class ForcedRun(NamedTuple):
    """Bytes that must come next, and the state behind them."""

    data: bytes
    state: int


class StaleStateError(Exception):
    """A state of tables that have begun anew since."""


class LazyTables:
    """Deterministic states of `nfa`, found when they are first needed. Safe to call from several threads.

    `max_bytes` bounds the arrays and `max_items` the places at which one configuration may stand at once; what would outgrow them
    raises GrammarTooLargeError and stays usable for what it holds. Beyond `keep_bytes` (None: never) the tables begin anew with the next
    call outside `pinned`: the numbers of states go on from where they were, and a smaller one raises StaleStateError.
    """

    def __init__(
        self, nfa: ByteNfa, *, max_bytes: int, max_items: int = DEFAULT_MAX_ITEMS, keep_bytes: int | None = None
    ) -> None:
        self.nfa = nfa
        self._max_bytes = max_bytes
        self._max_items = max_items
        self._keep_bytes = max_bytes if keep_bytes is None else keep_bytes
        self._lock = threading.RLock()
        self._pins = 0
        self._forced: dict[int, ForcedRun] = {}
        self._base = 0
        self._dfa = _new_tables(nfa)
        self._view = (self._base, self._dfa)
        self.start = DEAD if nfa.start < 0 else self._grown(start_state)

    @property
    def num_states(self) -> int:
        """Deterministic states found so far and not forgotten."""
        return int(self._dfa.counters[0])

    @property
    def num_cells(self) -> int:
        """Stack cells found so far, the empty stack included."""
        return int(self._dfa.counters[2])

    @property
    def num_bytes(self) -> int:
        """Memory of all arrays, the automaton's own included."""
        return sum(part.nbytes for part in self._dfa) + self.nfa.num_bytes

    def fresh(self) -> LazyTables:
        """Empty tables of the same automaton with the same limits, that never begin anew."""
        return LazyTables(self.nfa, max_bytes=self._max_bytes, max_items=self._max_items)

    @contextmanager
    def pinned(self, *, needed: bool = False) -> Iterator[None]:
        """States found inside stay valid inside. With `needed`, what is held at the end counts as worth keeping."""
        with self._lock:
            self._pins += 1
        try:
            yield
        finally:
            with self._lock:
                self._pins -= 1
                if needed:
                    self._keep_bytes = max(self._keep_bytes, self._size() * 3 // 2)

    def is_accepting(self, state: int) -> bool:
        """Whether the text may end in `state`."""
        if state < 0:
            return False
        base, dfa = self._view
        if state < base:
            raise StaleStateError
        return bool(dfa.accepting[state - base])

    def advance(self, state: int, data: UInt8Array, begin: int, end: int) -> int:
        """The state after the bytes `data[begin:end]` (uint8), or `DEAD`."""
        if state < 0:
            return DEAD
        base, dfa = self._view
        if state < base:
            raise StaleStateError
        # Transitions are only ever filled in, so what is known may be read while another thread adds to it.
        target = advance_known(
            state - base, data, begin, end, self.nfa.byte_class, dfa.row_of, dfa.only, dfa.blocks, dfa.targets
        )
        if target != UNKNOWN:
            return target if target < 0 else base + target
        with self._lock:
            return self._numbered(self._grown(advance, self._local(state), data, begin, end))

    def after_special(self, state: int, index: int) -> int:
        """The state after the special token `nfa.special_ids[index]`, or `DEAD`."""
        if state < 0:
            return DEAD
        with self._lock:
            return self._numbered(self._grown(next_state, self._local(state), self.nfa.num_classes + index))

    def fill_mask(self, state: int, slices: SliceTables, words: Int32Array) -> int:
        """Write the tokens allowed in `state` into `words`, int32 [ceil(V / 32)]; returns their number."""
        if state < 0:
            words[:] = 0
            return 0
        with self._lock:
            return self._grown(fill_mask, self._local(state), slices, words)

    def walk(self, state: int, trie: TrieArrays, words: Int32Array) -> int:
        """Add the tokens of `trie` allowed in `state` to `words`, int32 [ceil(V / 32)], one by one; returns their number."""
        if state < 0:
            return 0
        with self._lock:
            return self._grown(walk, self._local(state), np.array([0, len(trie.byte)], np.int32), trie, words)

    def spans_end(self, data: UInt8Array, state: int, trie: TrieArrays) -> list[int]:
        """Places of `data`, which leads to `state`, where a token begins that goes on legally beyond its end; ascending."""
        spans = np.zeros(len(data), np.uint8)
        with self._lock:
            self._grown(spans_end, data, self._local(state), trie, spans)
        return np.flatnonzero(spans).tolist()

    def forced(self, state: int) -> ForcedRun:
        """The singular edges from `state` in one: the bytes that must follow, and where they lead."""
        with self._lock:
            local = self._local(state)
            found = self._forced.get(state)
            if found is None:
                found = self._forced[state] = self._follow(local)
        return found

    def row(self, state: int) -> list[int]:
        """The next state (or `DEAD`) of `state` on each byte class and special token, all computed."""
        with self._lock:
            local = self._local(state)
            self._grown(expand, local, local + 1)
            return [self._numbered(target) for target in self._dense(local, local + 1)[0].tolist()]

    def expand_all(self, max_states: int) -> tuple[Int32Array, UInt8Array] | None:
        """All transitions (int32 [S, C]) and accepting states (uint8 [S]), the start first; None if S is over `max_states`."""
        with self._lock:
            self._grown(expand, 0, max_states)
            count = self.num_states
            return None if count > max_states else (self._dense(0, count), self._dfa.accepting[:count])

    def _local(self, state: int) -> int:
        """The place of a state in the arrays, which begin anew first if they are due; the lock is held."""
        if not self._pins and self._size() > self._keep_bytes:
            self._base += self.num_states
            self._dfa = _new_tables(self.nfa)
            self._forced.clear()
            self._view = (self._base, self._dfa)
            self.start = self._numbered(self._grown(start_state))
        if state < self._base:
            raise StaleStateError
        return state - self._base

    def _numbered(self, local: int) -> int:
        return local if local < 0 else self._base + local

    def _size(self) -> int:
        return sum(part.nbytes for part in self._dfa)

    def _dense(self, begin: int, end: int) -> Int32Array:
        """The transitions between places in the arrays, of those from `begin` up to `end`: int32 [end - begin, C]."""
        dfa, width = self._dfa, self.nfa.num_columns
        rows, only = dfa.row_of[begin:end], dfa.only[begin:end]
        table = np.full((end - begin, width), DEAD, np.int32)
        blocks = dfa.blocks[rows[rows >= 0]]
        targets = np.where(blocks[:, :, None] >= 0, dfa.targets[blocks], UNKNOWN)
        table[rows >= 0] = targets.reshape(len(blocks), blocks.shape[1] * BLOCK)[:, :width]
        narrow = np.flatnonzero((rows < 0) & (only[:, 0] >= 0))
        table[narrow, only[narrow, 0]] = only[narrow, 1]
        return table

    def _follow(self, state: int) -> ForcedRun:
        pieces: list[bytes] = []
        room = np.empty(_FORCED_ROOM, np.uint8)
        while True:
            count, state, code = follow_forced(state, room, self.nfa, self._dfa)
            pieces.append(room[:count].tobytes())
            if code:
                self._grow(code)
            elif count < len(room):
                return ForcedRun(b"".join(pieces), self._numbered(state))

    def _grown(self, kernel: Callable[..., int], *args: object) -> int:
        """`kernel(*args, nfa, dfa)`, called again after growth for as long as it runs out of room."""
        while (result := kernel(*args, self.nfa, self._dfa)) <= FULL_STATES:
            self._grow(result)
        return result

    def _grow(self, code: int) -> None:
        grown = _grown_tables(self._dfa, code)
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
        self._view = (self._base, grown)


def _grown_tables(old: DfaTables, code: int) -> DfaTables:
    """A copy of `old` with twice the room of the kind that `code` names."""
    if code == FULL_ROWS:
        return old._replace(blocks=_longer(old.blocks, 3))
    if code == FULL_BLOCKS:
        return old._replace(targets=_longer(old.targets, 3))
    if code == FULL_STATES:
        grown = old._replace(
            row_of=_longer(old.row_of),
            only=_longer(old.only),
            set_offsets=_longer(old.set_offsets),
            accepting=_longer(old.accepting),
            buckets=np.full(2 * len(old.buckets), -1, np.int32),
            cell_buckets=np.full_like(old.cell_buckets, -1),
        )
        rehash(grown)
        return grown
    if code == FULL_CELLS:
        grown = old._replace(
            cell_parent=_longer(old.cell_parent),
            cell_return=_longer(old.cell_return),
            cell_buckets=np.full(2 * len(old.cell_buckets), -1, np.int32),
            buckets=np.full_like(old.buckets, -1),
        )
        rehash(grown)
        return grown
    if code == FULL_ITEMS:
        return old._replace(set_items=_longer(old.set_items))
    if code == FULL_SCRATCH:
        return old._replace(scratch=_longer(old.scratch))
    assert code == FULL_CLOSURE, f"no table grows on the code {code}"
    size = 2 * len(old.stack)
    return old._replace(
        seen_keys=np.zeros(size, np.int64), seen_marks=np.zeros(size, np.int64), stack=np.zeros(size, np.int64)
    )


def _longer(array: np.ndarray, halves: int = 4) -> np.ndarray:
    """Longer by `halves` / 2, twice unless said otherwise; what is new has no value yet."""
    grown = np.empty((halves * len(array) // 2, *array.shape[1:]), array.dtype)
    grown[: len(array)] = array
    return grown


def _new_tables(nfa: ByteNfa) -> DfaTables:
    return DfaTables(
        row_of=np.empty(_FIRST_STATES, np.int32),
        only=np.empty((_FIRST_STATES, 2), np.int32),
        blocks=np.empty((_FIRST_ROWS, -(-(nfa.num_columns + _SLICES) // BLOCK)), np.int32),
        targets=np.empty((_FIRST_BLOCKS, BLOCK), np.int32),
        set_offsets=np.zeros(2 * _FIRST_STATES, np.int32),
        set_items=np.empty(_FIRST_ITEMS, np.int64),
        accepting=np.empty(_FIRST_STATES, np.uint8),
        buckets=np.full(4 * _FIRST_STATES, -1, np.int32),
        counters=np.array([0, 0, 1, 0, 0, 0], np.int64),
        cell_parent=np.zeros(_FIRST_CELLS, np.int32),
        cell_return=np.zeros(_FIRST_CELLS, np.int32),
        cell_buckets=np.full(4 * _FIRST_CELLS, -1, np.int32),
        seen_keys=np.zeros(_FIRST_ITEMS, np.int64),
        seen_marks=np.zeros(_FIRST_ITEMS, np.int64),
        stack=np.empty(_FIRST_ITEMS, np.int64),
        scratch=np.empty(_FIRST_ITEMS, np.int64),
    )
