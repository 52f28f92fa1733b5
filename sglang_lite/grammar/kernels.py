"""All compiled loops of the package: lazy determinisation, the walk of the token trie, the layout of a trie.

Tables are changed in place and never grown here: a kernel that runs out of room returns one of the `FULL_*` codes after which
its caller grows the tables and calls again; everything found so far stays. Sets of automaton states are interned, so that
a configuration is one int; what a configuration is made of concerns `step` and `intern` alone.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit

from sglang_lite.grammar.automata import ByteNfa, Int32Array, UInt8Array

DEAD = -1  # no text continues from here
UNKNOWN = -2  # a transition not computed yet
FULL_STATES = -3
FULL_ITEMS = -4

_HASH_BASIS = np.uint64(0xCBF29CE484222325)
_HASH_PRIME = np.uint64(0x100000001B3)
_HASH_SHIFT = np.uint64(29)


class DfaTables(NamedTuple):
    """Deterministic states found so far (capacity S, C byte classes, N automaton states, room for M items).

    Attributes:
        transitions: int32 [S, C]; next state, `DEAD` or `UNKNOWN`.
        set_offsets: int32 [S + 1]; state s is the sorted set of items `set_items[set_offsets[s] : set_offsets[s + 1]]`.
        set_items: int32 [*].
        accepting: uint8 [S].
        buckets: int32 [power of two]; open-addressing hash table of states, -1 where free.
        counters: int64 [2]; number of states, number of the last mark.
        marks: int64 [N]; a state was passed in this step if its mark is the last one.
        scratch: int32 [M]; items of the set being built.
        stack: int32 [N + 1]; states whose empty edges are still to be followed.
    """

    transitions: npt.NDArray[np.int32]
    set_offsets: Int32Array
    set_items: Int32Array
    accepting: UInt8Array
    buckets: Int32Array
    counters: npt.NDArray[np.int64]
    marks: npt.NDArray[np.int64]
    scratch: Int32Array
    stack: Int32Array


class TrieArrays(NamedTuple):
    """All token byte strings as a trie in preorder (n nodes, V tokens).

    Attributes:
        byte: uint8 [n]; the byte that leads to a node.
        depth: int32 [n]; length of the node's byte string, from 1.
        skip: int32 [n]; the node that follows the node's whole subtree.
        token: int32 [n]; lowest token id with exactly the node's bytes, or -1.
        next_same: int32 [V]; next token id with the same bytes, or -1.
        max_depth: length of the longest token.
    """

    byte: UInt8Array
    depth: Int32Array
    skip: Int32Array
    token: Int32Array
    next_same: Int32Array
    max_depth: int


@njit(nogil=True, cache=True)
def _bucket(items: Int32Array, begin: int, end: int, size: int) -> np.int64:
    value = _HASH_BASIS
    for i in range(begin, end):
        value = (value ^ np.uint64(items[i])) * _HASH_PRIME
    value ^= value >> _HASH_SHIFT
    return np.int64(value & np.uint64(size - 1))


@njit(nogil=True, cache=True)
def _end_item(nfa: ByteNfa) -> int:
    """The item of having reached the end, higher than all others."""
    return (nfa.inner_offsets.shape[0] - 1) * (nfa.call_offsets.shape[0] - 1)


@njit(nogil=True, cache=True)
def _intern(gathered: int, nfa: ByteNfa, dfa: DfaTables) -> int:
    """The state whose set is `scratch[:gathered]`, in any order and with repetitions; made if it is new."""
    dfa.scratch[:gathered].sort()
    count = 1
    for i in range(1, gathered):
        if dfa.scratch[i] != dfa.scratch[i - 1]:
            dfa.scratch[count] = dfa.scratch[i]
            count += 1
    size = dfa.buckets.shape[0]
    place = _bucket(dfa.scratch, 0, count, size)
    while dfa.buckets[place] >= 0:
        state = int(dfa.buckets[place])
        begin = dfa.set_offsets[state]
        if dfa.set_offsets[state + 1] - begin == count:
            same = True
            for i in range(count):
                if dfa.set_items[begin + i] != dfa.scratch[i]:
                    same = False
                    break
            if same:
                return state
        place = (place + 1) & (size - 1)
    state = int(dfa.counters[0])
    if state >= dfa.accepting.shape[0]:
        return FULL_STATES
    begin = dfa.set_offsets[state]
    if begin + count > dfa.set_items.shape[0]:
        return FULL_ITEMS
    for i in range(count):
        dfa.set_items[begin + i] = dfa.scratch[i]
    dfa.accepting[state] = dfa.scratch[count - 1] == _end_item(nfa)
    dfa.set_offsets[state + 1] = begin + count
    dfa.buckets[place] = state
    dfa.counters[0] = state + 1
    return state


@njit(nogil=True, cache=True)
def _close(origin: int, count: int, nfa: ByteNfa, dfa: DfaTables) -> int:
    """Append the items that `origin` reaches without a byte to `scratch[:count]`; returns the new count."""
    mark = dfa.counters[1]
    if dfa.marks[origin] == mark:
        return count
    num_states = nfa.call_offsets.shape[0] - 1
    dfa.marks[origin] = mark
    dfa.stack[0] = origin
    height = 1
    while height > 0:
        height -= 1
        state = dfa.stack[height]
        if state == nfa.accept:
            dfa.scratch[count] = _end_item(nfa)
            count += 1
        for i in range(nfa.call_offsets[state], nfa.call_offsets[state + 1]):
            dfa.scratch[count] = nfa.call_inner[i] * num_states + nfa.call_return[i]
            count += 1
        for i in range(nfa.empty_offsets[state], nfa.empty_offsets[state + 1]):
            target = nfa.empty_targets[i]
            if dfa.marks[target] != mark:
                dfa.marks[target] = mark
                dfa.stack[height] = target
                height += 1
    return count


@njit(nogil=True, cache=True)
def start_state(nfa: ByteNfa, dfa: DfaTables) -> int:
    """The state before any byte; the automaton must accept some text."""
    dfa.counters[1] += 1
    return _intern(_close(nfa.start, 0, nfa, dfa), nfa, dfa)


@njit(nogil=True, cache=True)
def step(state: int, byte_class: int, nfa: ByteNfa, dfa: DfaTables) -> int:
    """Compute and store the transition of `state` on `byte_class`; returns it, or a `FULL_*` code."""
    dfa.counters[1] += 1
    num_states = nfa.call_offsets.shape[0] - 1
    end_item = _end_item(nfa)
    count = 0
    for i in range(dfa.set_offsets[state], dfa.set_offsets[state + 1]):
        item = dfa.set_items[i]
        if item == end_item:
            continue
        inner = item // num_states
        behind = item - inner * num_states
        for edge in range(nfa.inner_offsets[inner], nfa.inner_offsets[inner + 1]):
            if byte_class > nfa.inner_high[edge]:
                continue
            if byte_class >= nfa.inner_low[edge]:
                following = nfa.inner_next[edge]
                if following >= 0:
                    dfa.scratch[count] = following * num_states + behind
                    count += 1
                else:
                    count = _close(behind, count, nfa, dfa)
            break
    target = DEAD
    if count > 0:
        target = _intern(count, nfa, dfa)
        if target < 0:
            return target
    dfa.transitions[state, byte_class] = target
    return target


@njit(nogil=True, cache=True)
def expand(state: int, nfa: ByteNfa, dfa: DfaTables) -> int:
    """Compute all transitions of `state`; returns 0 or a `FULL_*` code."""
    for byte_class in range(dfa.transitions.shape[1]):
        if dfa.transitions[state, byte_class] == UNKNOWN:
            target = step(state, byte_class, nfa, dfa)
            if target < DEAD:
                return target
    return 0


@njit(nogil=True, cache=True)
def advance_known(
    state: int, data: UInt8Array, begin: int, end: int, byte_class: UInt8Array, transitions: npt.NDArray[np.int32]
) -> int:
    """The state after `data[begin:end]`, `DEAD`, or `UNKNOWN` if some transition is not computed yet. Reads only: needs no lock."""
    for i in range(begin, end):
        state = int(transitions[state, byte_class[data[i]]])
        if state < 0:
            return state
    return state


@njit(nogil=True, cache=True)
def advance(state: int, data: UInt8Array, begin: int, end: int, nfa: ByteNfa, dfa: DfaTables) -> int:
    """The state after `data[begin:end]`, `DEAD`, or a `FULL_*` code."""
    for i in range(begin, end):
        byte_class = int(nfa.byte_class[data[i]])
        target = int(dfa.transitions[state, byte_class])
        if target == UNKNOWN:
            target = step(state, byte_class, nfa, dfa)
        if target < 0:
            return target
        state = target
    return state


@njit(nogil=True, cache=True)
def only_byte(state: int, nfa: ByteNfa, dfa: DfaTables) -> int:
    """The byte that must come next in `state`; -1 if the text may end here or several bytes may follow."""
    if dfa.accepting[state]:
        return -1
    only = -1
    num_states = nfa.call_offsets.shape[0] - 1
    for i in range(dfa.set_offsets[state], dfa.set_offsets[state + 1]):
        inner = dfa.set_items[i] // num_states
        for edge in range(nfa.inner_offsets[inner], nfa.inner_offsets[inner + 1]):
            low = int(nfa.inner_low[edge])
            if low != nfa.inner_high[edge] or (only >= 0 and only != low):
                return -1
            only = low
    return int(nfa.class_byte[only])


@njit(nogil=True, cache=True)
def follow_forced(state: int, room: UInt8Array, nfa: ByteNfa, dfa: DfaTables) -> tuple[int, int, int]:
    """Follow singular edges and write their bytes into `room`: (bytes written, state reached, 0 or a `FULL_*` code)."""
    count = 0
    while count < room.shape[0]:
        byte = only_byte(state, nfa, dfa)
        if byte < 0:
            break
        byte_class = int(nfa.byte_class[byte])
        target = int(dfa.transitions[state, byte_class])
        if target == UNKNOWN:
            target = step(state, byte_class, nfa, dfa)
            if target < 0:
                return count, state, target
        room[count] = byte
        count += 1
        state = target
    return count, state, 0


@njit(nogil=True, cache=True)
def walk(state: int, trie: TrieArrays, words: Int32Array, nfa: ByteNfa, dfa: DfaTables) -> int:
    """Set the bit of every token whose bytes keep `state` alive; `words`, int32 [ceil(V / 32)], is overwritten.

    Returns the number of tokens allowed, or a `FULL_*` code (the words then mean nothing).
    """
    words[:] = 0
    path = np.empty(trie.max_depth + 1, np.int32)
    path[0] = state
    allowed = 0
    node = 0
    while node < trie.byte.shape[0]:
        depth = trie.depth[node]
        byte_class = int(nfa.byte_class[trie.byte[node]])
        source = int(path[depth - 1])
        target = int(dfa.transitions[source, byte_class])
        if target == UNKNOWN:
            target = step(source, byte_class, nfa, dfa)
            if target < DEAD:
                return target
        if target == DEAD:
            node = int(trie.skip[node])
            continue
        path[depth] = target
        token = int(trie.token[node])
        while token >= 0:
            words[token >> 5] |= np.int32(1) << np.int32(token & 31)
            allowed += 1
            token = int(trie.next_same[token])
        node += 1
    return allowed


@njit(nogil=True, cache=True)
def rehash(dfa: DfaTables) -> None:
    """Enter all states into the empty `buckets`."""
    size = dfa.buckets.shape[0]
    for state in range(dfa.counters[0]):
        place = _bucket(dfa.set_items, dfa.set_offsets[state], dfa.set_offsets[state + 1], size)
        while dfa.buckets[place] >= 0:
            place = (place + 1) & (size - 1)
        dfa.buckets[place] = state


@njit(nogil=True, cache=True)
def lay_out_trie(order: Int32Array, data: UInt8Array, offsets: Int32Array, trie: TrieArrays) -> int:
    """Fill `trie` from tokens in `order` (by bytes, then id); its node arrays have room for all bytes. Returns the number of nodes."""
    count = 0
    open_nodes = np.empty(trie.max_depth + 1, np.int32)
    height = 0
    previous = -1
    for token in order:
        begin, end = offsets[token], offsets[token + 1]
        shared = 0
        if previous >= 0:
            earlier, limit = offsets[previous], min(end - begin, offsets[previous + 1] - offsets[previous])
            while shared < limit and data[earlier + shared] == data[begin + shared]:
                shared += 1
        if previous >= 0 and shared == end - begin == offsets[previous + 1] - offsets[previous]:
            trie.next_same[previous] = token
            previous = token
            continue
        while height > shared:
            height -= 1
            trie.skip[open_nodes[height]] = count
        for i in range(begin + shared, end):
            trie.byte[count] = data[i]
            trie.depth[count] = i - begin + 1
            trie.token[count] = -1
            open_nodes[height] = count
            height += 1
            count += 1
        trie.token[count - 1] = token
        previous = token
    while height > 0:
        height -= 1
        trie.skip[open_nodes[height]] = count
    return count


@njit(nogil=True, cache=True)
def check_trie(trie: TrieArrays, data: UInt8Array, offsets: Int32Array, seen: UInt8Array) -> int:
    """Read every token back from the trie and mark it in `seen`, uint8 [V]; returns the first id whose bytes differ, or -1."""
    path = np.empty(trie.max_depth + 1, np.uint8)
    for node in range(trie.byte.shape[0]):
        depth = trie.depth[node]
        path[depth - 1] = trie.byte[node]
        token = int(trie.token[node])
        while token >= 0:
            begin = offsets[token]
            if offsets[token + 1] - begin != depth:
                return token
            for i in range(depth):
                if path[i] != data[begin + i]:
                    return token
            seen[token] = 1
            token = int(trie.next_same[token])
    return -1
