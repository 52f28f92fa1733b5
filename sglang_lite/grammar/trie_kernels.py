"""The compiled loops over the token trie: its layout, the walk that makes a mask, slices of it, tokens that span an end.

Like `kernels`, these loops fill tables and return a `FULL_*` code where there is no room.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from sglang_lite.grammar.kernels import (
    CELL_SHIFT,
    DEAD,
    MARK,
    OPEN_NEXT,
    SEEN,
    STATE_MASK,
    UNKNOWN,
    DfaTables,
    enter,
    known,
    next_state,
    remember,
    step,
)
from sglang_lite.grammar.nfa import ANY_TEXT, STATE_BITS, ByteDfa, ByteNfa, Int32Array, Int64Array, UInt8Array, wide

# What is known of texts of one set of characters from a state: all go on for ever; all up to a level and none beyond; all up to a level.
ENDLESS, CUT, OPEN = 2, 1, 0

MAX_LEVEL = 16  # characters; longer tokens are walked where only a bounded number of characters is certain
ALL_LEVELS = MAX_LEVEL + 1
SPACED = 1  # the part of the tokens that begin with a space
_LOOP = -2  # in place of a count
_MAX_PAIRS = 64  # of a slice's places and states; beyond them the slice is given up for the state


class TrieArrays(NamedTuple):
    """All token byte strings as a trie in preorder (n nodes, V tokens).

    Attributes:
        byte: uint8 [n]; the byte that leads to a node.
        depth: Int32 [n]; length of the node's byte string, from 1.
        skip: Int32 [n]; the node that follows the node's whole subtree.
        token: Int32 [n]; lowest token id with exactly the node's bytes, or -1.
        next_same: Int32 [V]; next token id with the same bytes, or -1.
        max_depth: length of the longest token.
    """

    byte: UInt8Array
    depth: Int32Array
    skip: Int32Array
    token: Int32Array
    next_same: Int32Array
    max_depth: int


class SliceTables(NamedTuple):
    """The tokens of a vocabulary for masks, in two parts (those that begin with a space are the second), each in n slices.

    Slice i of a part holds the tokens whose characters, the leading space of the second part left out, are all of set i.

    Attributes:
        rows, entries: spell one character of set i from the state `entries[i]` (int32 [n]).
        upto: Int32 [2, n, MAX_LEVEL + 2, ceil(V / 32)]; tokens of the slice with up to that many characters; the last: with any number.
        counts: Int32 [2, n, MAX_LEVEL + 2]; how many these are.
        trie: several tries one after the other; `next_same` is that of the vocabulary.
        ranges: Int32 [2, 2 n + 1, 2]; first node and end of the tries of: the part; for each slice, its tokens with more than
            MAX_LEVEL characters, and those of the part that are not in it.
    """

    rows: ByteDfa
    entries: Int32Array
    upto: Int32Array
    counts: Int32Array
    trie: TrieArrays
    ranges: Int32Array


@njit(nogil=True, cache=True)
def fill_mask(state: int, slices: SliceTables, words: Int32Array, nfa: ByteNfa, dfa: DfaTables) -> int:
    """Write the tokens that `state` can read into `words`, int32 [ceil(V / 32)]; returns their number or a `FULL_*` code."""
    words[:] = 0
    allowed = 0
    for part in range(2):
        behind = state
        if part == SPACED:
            behind = next_state(state, wide(nfa.byte_class[0x20]), nfa, dfa)
            if behind < DEAD:
                return behind
            if behind == DEAD:
                continue
        index, level, outcome = choose_slice(behind, slices.rows, slices.entries, nfa, dfa)
        if index < DEAD:
            return index
        row = 0
        if index >= 0:
            known = slices.upto[part, index, level]
            for i in range(words.shape[0]):
                words[i] |= known[i]
            allowed += slices.counts[part, index, level]
            if outcome == OPEN:
                found = walk(state, slices.ranges[part, 2 * index + 1], slices.trie, words, nfa, dfa)
                if found < 0:
                    return found
                allowed += found
            row = 2 * index + 2
        found = walk(state, slices.ranges[part, row], slices.trie, words, nfa, dfa)
        if found < 0:
            return found
        allowed += found
    return allowed


@njit(nogil=True, cache=True)
def walk(state: int, span: Int32Array, trie: TrieArrays, words: Int32Array, nfa: ByteNfa, dfa: DfaTables) -> int:
    """Set the bit of every token of the nodes from `span[0]` up to `span[1]` whose bytes keep `state` alive; other bits stay.

    Returns the number of tokens found, or a `FULL_*` code (bits set so far are right).
    """
    path = np.empty(trie.max_depth + 1, np.int32)
    path[0] = state
    allowed = 0
    node = span[0]
    while node < span[1]:
        depth = trie.depth[node]
        byte_class = wide(nfa.byte_class[trie.byte[node]])
        source = wide(path[depth - 1])
        target = known(source, byte_class, dfa)
        if target == UNKNOWN:
            target = step(source, byte_class, nfa, dfa)
            if target < DEAD:
                return target
        if target == DEAD:
            node = wide(trie.skip[node])
            continue
        path[depth] = target
        token = wide(trie.token[node])
        while token >= 0:
            words[token >> 5] |= np.int32(1) << np.int32(token & 31)
            allowed += 1
            token = wide(trie.next_same[token])
        node += 1
    return allowed


@njit(nogil=True, cache=True)
def spans_end(data: UInt8Array, state: int, trie: TrieArrays, spans: UInt8Array, nfa: ByteNfa, dfa: DfaTables) -> int:
    """Mark in `spans`, uint8 [n], each place of `data`, uint8 [n], where a token begins that goes on beyond its end.

    `state` is the one behind `data`; only tokens whose further bytes are legal there count. Returns 0 or a `FULL_*` code.
    """
    path = np.empty(trie.max_depth + 1, np.int32)
    for begin in range(max(0, data.shape[0] - trie.max_depth + 1), data.shape[0]):
        length = data.shape[0] - begin
        path[length] = state
        node, stop, depth = 0, trie.byte.shape[0], 1
        while node < stop and depth <= length:  # down to the node that spells data[begin:]
            if trie.byte[node] == data[begin + depth - 1]:
                stop = wide(trie.skip[node])
                node += 1
                depth += 1
            else:
                node = wide(trie.skip[node])
        if depth <= length:
            continue
        while node < stop:
            target = next_state(wide(path[trie.depth[node] - 1]), wide(nfa.byte_class[trie.byte[node]]), nfa, dfa)
            if target < DEAD:
                return target
            if target == DEAD:
                node = wide(trie.skip[node])
                continue
            if trie.token[node] >= 0:
                spans[begin] = 1
                break
            path[trie.depth[node]] = target
            node += 1
    return 0


@njit(nogil=True, cache=True)
def choose_slice(state: int, rows: ByteDfa, entries: Int32Array, nfa: ByteNfa, dfa: DfaTables) -> tuple[int, int, int]:
    """The first set of characters of which it is certain how many may follow `state`: (index in `entries`, level, outcome).

    The level is `ALL_LEVELS` where the outcome is `ENDLESS`. Index -1 if there is no such set, a `FULL_*` code if there is no room.
    """
    for index in range(entries.shape[0]):
        level, outcome = certain_levels(state, index, nfa, dfa)
        if level == 0 and outcome == OPEN:
            continue
        if level < DEAD:
            return level, 0, 0
        if outcome == OPEN and level < MAX_LEVEL:
            level, outcome = safe_levels(state, rows, index, wide(entries[index]), nfa, dfa)
            if level < DEAD:
                return level, 0, 0
        if outcome != OPEN or level == MAX_LEVEL:
            return index, level, outcome
    return -1, 0, OPEN


@njit(nogil=True, cache=True)
def certain_levels(state: int, index: int, nfa: ByteNfa, dfa: DfaTables) -> tuple[int, int]:
    """What the automaton alone tells of texts of set `index` from `state`, without any configuration: (level, outcome).

    Sound but not complete: the level is a lower bound, and (1, `OPEN`) may stand for nothing but that it is worth looking. (0, `OPEN`)
    is taken for hopeless. Or (a `FULL_*` code, 0).
    """
    bit = 1 << index
    best = 0
    for i in range(dfa.set_offsets[state], dfa.set_offsets[state + 1]):
        item = dfa.set_items[i]
        if item < 0:
            continue
        covers = nfa.inner_covers[(item >> STATE_BITS) & STATE_MASK]
        if not covers & bit:
            continue
        inner = (item >> STATE_BITS) & STATE_MASK
        if nfa.inner_offsets[inner] == nfa.inner_offsets[inner + 1]:  # reads nothing, only tells
            return ALL_LEVELS, ENDLESS
        level, outcome = 1, OPEN
        if not covers & ANY_TEXT:
            behind = wide(item & STATE_MASK)
            cell = wide(item >> CELL_SHIFT)
            if nfa.pops[behind] and cell != 0:  # a rule for one character, as in bounded strings: go on behind it
                behind = wide(dfa.cell_return[cell])
            level, outcome = _covered(behind, bit, nfa, dfa)
        if outcome == ENDLESS or level == MAX_LEVEL or level < DEAD:
            return level, outcome
        best = max(best, level)
    return best, OPEN


@njit(nogil=True, cache=True)
def _covered(behind: int, bit: int, nfa: ByteNfa, dfa: DfaTables) -> tuple[int, int]:
    """One plus the length of a path of edges from the state `behind`, each of which reads any character of the set: (level, outcome)."""
    frontier = np.empty(_MAX_PAIRS, np.int64)
    following = np.empty(_MAX_PAIRS, np.int64)
    frontier[0] = behind
    count = 1
    for level in range(1, MAX_LEVEL):
        dfa.counters[MARK] += 1
        dfa.counters[SEEN] = 0
        found = 0
        for i in range(count):
            origin = frontier[i]
            height = enter(wide(0), origin, wide(0), dfa)
            while height > 0:
                height -= 1
                state = wide(dfa.stack[height])
                found = _behind_one(state, origin, bit, following, wide(found), nfa)
                if found == _LOOP:
                    return ALL_LEVELS, ENDLESS
                if found < 0:
                    return level, OPEN
                for edge in range(nfa.empty_offsets[state], nfa.empty_offsets[state + 1]):
                    height = enter(wide(0), wide(nfa.empty_targets[edge]), height, dfa)
                    if height < 0:
                        return height, OPEN
            if height < 0:
                return height, OPEN
        if found == 0:
            return level, OPEN
        count = found
        frontier[:count] = following[:count]
    return MAX_LEVEL, OPEN


@njit(nogil=True, cache=True)
def _behind_one(state: int, origin: int, bit: int, following: Int64Array, count: int, nfa: ByteNfa) -> int:
    """Add to `following[:count]` the states behind edges of `state` that read any character of the set.

    Returns the new count, -1 if there is no room, `_LOOP` if one of them is `origin`.
    """
    for edge in range(nfa.call_offsets[state], nfa.call_offsets[state + 1]):
        if _covers_one(wide(nfa.call_inner[edge]), bit, nfa):
            if nfa.call_return[edge] == origin:
                return _LOOP
            count = _add_once(wide(nfa.call_return[edge]), following, wide(count))
            if count < 0:
                return count
    for edge in range(nfa.ref_offsets[state], nfa.ref_offsets[state + 1]):
        after = wide(nfa.ref_return[edge])
        if after >= 0 and _reads_one(wide(nfa.ref_entry[edge]), bit, nfa):
            if after == origin:
                return _LOOP
            count = _add_once(after, following, wide(count))
            if count < 0:
                return count
    return count


@njit(nogil=True, cache=True)
def _covers_one(inner: int, bit: int, nfa: ByteNfa) -> bool:
    """Whether an edge that begins at `inner` reads one character, and any of the set."""
    covers = nfa.inner_covers[inner]
    return (covers & bit) != 0 and (covers & ANY_TEXT) == 0 and nfa.inner_offsets[inner] < nfa.inner_offsets[inner + 1]


@njit(nogil=True, cache=True)
def _reads_one(entry: int, bit: int, nfa: ByteNfa) -> bool:
    """Whether the rule that begins at `entry` is seen at once to have every single character of the set as a text."""
    for edge in range(nfa.call_offsets[entry], nfa.call_offsets[entry + 1]):
        if _covers_one(wide(nfa.call_inner[edge]), bit, nfa) and nfa.pops[nfa.call_return[edge]]:
            return True
    return False


@njit(nogil=True, cache=True)
def safe_levels(state: int, rows: ByteDfa, index: int, entry: int, nfa: ByteNfa, dfa: DfaTables) -> tuple[int, int]:
    """How many characters of set `index` (`rows` spells one from its state `entry`) may follow `state`, whatever they are.

    Returns (level, outcome), or (a `FULL_*` code, 0). Stays at (level, `OPEN`) where different characters lead to different states.
    """
    level = 0
    while level < MAX_LEVEL:
        if dfa.row_of[state] < 0:  # one byte at most
            return level, OPEN
        target = known(state, wide(nfa.class_byte.shape[0] + index), dfa)
        if target == UNKNOWN:
            target = _read_one(state, rows, entry, nfa, dfa)
            if target < DEAD and target != OPEN_NEXT:
                return target, 0
            full = remember(state, wide(nfa.class_byte.shape[0] + index), wide(target), dfa)
            if full < 0:
                return full, 0
        if target == state:
            return ALL_LEVELS, ENDLESS
        if target < 0:
            return level, CUT if target == DEAD else OPEN
        state = target
        level += 1
    return MAX_LEVEL, OPEN


@njit(nogil=True, cache=True)
def _read_one(state: int, rows: ByteDfa, entry: int, nfa: ByteNfa, dfa: DfaTables) -> int:
    """The one state after any one character of a set, `DEAD` if none can be read, `OPEN_NEXT` otherwise, or a `FULL_*` code."""
    current = np.empty(_MAX_PAIRS, np.int64)  # (state << 32) | state of `rows`
    current[0] = (wide(state) << 32) | wide(entry)
    count = 1
    reached = UNKNOWN
    dead = False
    at = 0
    while at < count:
        source, place = wide(current[at] >> 32), wide(current[at] & 0xFFFFFFFF)
        for edge in range(rows.offsets[place], rows.offsets[place + 1]):
            following = wide(rows.edges[edge, 2])
            for byte_class in range(nfa.byte_class[rows.edges[edge, 0]], nfa.byte_class[rows.edges[edge, 1]] + 1):
                target = next_state(source, wide(byte_class), nfa, dfa)
                if target < DEAD:
                    return target
                dead = dead or target == DEAD
                if dead:
                    if target >= 0 or count > 1 or reached != UNKNOWN:
                        return OPEN_NEXT
                elif following >= 0:
                    count = _add_once((wide(target) << 32) | following, current, wide(count))
                    if count < 0:
                        return OPEN_NEXT
                elif reached in (UNKNOWN, target):
                    reached = target
                else:
                    return OPEN_NEXT
        at += 1
    return DEAD if dead else reached


@njit(nogil=True, cache=True)
def _add_once(value: int, values: Int64Array, count: int) -> int:
    """The new count of `values[:count]` with `value` among them, or -1 if there is no room."""
    for i in range(count):
        if values[i] == value:
            return count
    if count >= values.shape[0]:
        return -1
    values[count] = value
    return count + 1


@njit(nogil=True, cache=True)
def count_chars(data: UInt8Array, offsets: Int32Array, skipped: int, rows: ByteDfa, counts: Int32Array) -> None:
    """Write into `counts`, int32 [V], of how many characters of a set each token consists, its first `skipped` bytes left out.

    -1 for a token that is shorter, empty, or has other bytes.
    """
    for token in range(offsets.shape[0] - 1):
        counts[token] = -1
        begin, end = offsets[token] + skipped, offsets[token + 1]
        if end < begin or offsets[token] == end:
            continue
        chars, place = 0, 0
        for i in range(begin, end):
            found = -1
            for edge in range(rows.offsets[place], rows.offsets[place + 1]):
                if rows.edges[edge, 0] <= data[i] <= rows.edges[edge, 1]:
                    found = edge
                    break
            if found < 0:
                chars = -1
                break
            place = rows.edges[found, 2]
            if place < 0:
                chars += 1
                place = 0
        if chars >= 0 and place == 0:
            counts[token] = chars


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
        token = wide(trie.token[node])
        while token >= 0:
            begin = offsets[token]
            if offsets[token + 1] - begin != depth:
                return token
            for i in range(depth):
                if path[i] != data[begin + i]:
                    return token
            seen[token] = 1
            token = wide(trie.next_same[token])
    return -1
