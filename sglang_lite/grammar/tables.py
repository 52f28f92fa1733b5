"""The lazily filled deterministic tables of one automaton, their growth and their lock; knows no vocabulary but a trie to walk.

A configuration of the grammar is one int, `DEAD` when nothing can follow. All requests of a grammar share its tables.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from sglang_lite.grammar.automata import ByteNfa, Int32Array, UInt8Array
from sglang_lite.grammar.errors import GrammarTooLargeError
from sglang_lite.grammar.kernels import (
    DEAD,
    FULL_STATES,
    UNKNOWN,
    DfaTables,
    TrieArrays,
    advance,
    advance_known,
    expand,
    follow_forced,
    rehash,
    start_state,
    walk,
)

_FIRST_STATES = 64
_FIRST_ITEMS = 1024
_FORCED_ROOM = 256


class ForcedRun(NamedTuple):
    """Bytes that must come next, and the state behind them."""

    data: bytes
    state: int


class LazyTables:
    """Deterministic states of `nfa`, found when they are first needed. Safe to call from several threads.

    `max_bytes` bounds the arrays; a table that would outgrow it raises GrammarTooLargeError and stays usable for what it holds.
    """

    def __init__(self, nfa: ByteNfa, *, max_bytes: int) -> None:
        self.nfa = nfa
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._dfa = _new_tables(nfa)
        self._forced: dict[int, ForcedRun] = {}
        self.start = DEAD if nfa.start < 0 else self._grown(start_state)

    @property
    def num_states(self) -> int:
        """Deterministic states found so far."""
        return int(self._dfa.counters[0])

    @property
    def num_bytes(self) -> int:
        """Memory of all arrays, the automaton's own included."""
        return sum(part.nbytes for part in (*self._dfa, *self.nfa) if isinstance(part, np.ndarray))

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

    def walk(self, state: int, trie: TrieArrays, words: Int32Array) -> int:
        """Write the tokens allowed in `state` into `words`, int32 [ceil(V / 32)]; returns their number."""
        with self._lock:
            return self._grown(walk, state, trie, words)

    def forced(self, state: int) -> ForcedRun:
        """The singular edges from `state` in one: the bytes that must follow, and where they lead."""
        found = self._forced.get(state)
        if found is None:
            with self._lock:
                found = self._forced[state] = self._follow(state)
        return found

    def row(self, state: int) -> list[int]:
        """The next state (or `DEAD`) of `state` on each byte class, all computed."""
        with self._lock:
            self._grown(expand, state)
            return self._dfa.transitions[state].tolist()

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
        if code == FULL_STATES:
            capacity = 2 * len(old.accepting)
            grown = old._replace(
                transitions=np.full((capacity, self.nfa.num_classes), UNKNOWN, np.int32),
                set_offsets=np.zeros(capacity + 1, np.int32),
                accepting=np.zeros(capacity, np.uint8),
                buckets=np.full(4 * capacity, -1, np.int32),
            )
            count = self.num_states
            grown.transitions[:count] = old.transitions[:count]
            grown.set_offsets[: count + 1] = old.set_offsets[: count + 1]
            grown.accepting[:count] = old.accepting[:count]
            rehash(grown)
        else:
            items = np.zeros(2 * len(old.set_items), np.int32)
            items[: len(old.set_items)] = old.set_items
            grown = old._replace(set_items=items)
        size = sum(part.nbytes for part in grown)
        if size > self._max_bytes:
            raise GrammarTooLargeError(
                f"filling the tables of a grammar: {self.num_states} states need more than {self._max_bytes} bytes; "
                "simplify the grammar (nested or overlapping repeats) or raise max_table_bytes"
            )
        self._dfa = grown


def _new_tables(nfa: ByteNfa) -> DfaTables:
    return DfaTables(
        transitions=np.full((_FIRST_STATES, nfa.num_classes), UNKNOWN, np.int32),
        set_offsets=np.zeros(_FIRST_STATES + 1, np.int32),
        set_items=np.zeros(_FIRST_ITEMS, np.int32),
        accepting=np.zeros(_FIRST_STATES, np.uint8),
        buckets=np.full(4 * _FIRST_STATES, -1, np.int32),
        counters=np.zeros(2, np.int64),
        marks=np.zeros(nfa.num_states, np.int64),
        scratch=np.zeros(nfa.max_items, np.int32),
        stack=np.zeros(nfa.num_states + 1, np.int32),
    )
