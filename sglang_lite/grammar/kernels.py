"""The compiled loops over automata: configurations and their lazy determinisation, products of automata.

Tables are changed in place and never grown here: a kernel that runs out of room returns one of the `FULL_*` codes after which
its caller grows the tables and calls again; everything found so far stays. A configuration is a set of items, an item is a place
in the automaton and a stack of return states. Stacks are shared lists whose cells are interned, sets are interned too, so that a
configuration is one int; what a configuration is made of concerns `step`, `_close` and `_intern` alone.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit

from sglang_lite.grammar.nfa import STATE_BITS, ByteNfa, Int32Array, Int64Array, UInt8Array, wide

DEAD = -1  # no text continues from here
UNKNOWN = -2  # a transition not computed yet
FULL_STATES = -3
FULL_ITEMS = -4
FULL_SCRATCH = -5
FULL_CLOSURE = -6
FULL_CELLS = -7
FULL_PRODUCT = -8
FULL_ROWS = -9
FULL_BLOCKS = -10
OPEN_NEXT = -11  # in a slice column: not every character goes on, or not all to one state


BLOCK_BITS = 4
BLOCK = 1 << BLOCK_BITS
_SEVERAL = -2  # in place of an only class
_END_ITEM = -1  # the whole text may end; lower than all others
STATE_MASK = (1 << STATE_BITS) - 1
CELL_SHIFT = 2 * STATE_BITS
_STATES, MARK, _CELLS, SEEN, _ROWS, _BLOCKS = 0, 1, 2, 3, 4, 5  # places in `DfaTables.counters`

_HASH_BASIS = np.uint64(0xCBF29CE484222325)
_HASH_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_HASH_SHIFT = np.uint64(29)


class DfaTables(NamedTuple):
    """Deterministic states found so far (capacity S, C columns and n columns of slices). All hash tables are powers of two long, -1 where free.

    Few transitions of a state are ever asked for. So states that read one byte only have no row, and rows are made of blocks of
    `BLOCK` columns, each there from the first transition in it on. Column C + i is for any one character of set i of the
    vocabulary's slices: the one state behind all of them, `DEAD`, `OPEN_NEXT` or `UNKNOWN`.

    Attributes:
        row_of: Int32 [S]; the row of a state in `blocks`, -1 for a state that reads at most one byte.
        only: Int32 [S, 2]; for a state without a row, the class it reads (-1: none) and the next state, or `UNKNOWN`.
        blocks: Int32 [R, ceil((C + n) / BLOCK)]; rows of `targets`, -1 where nothing is known yet.
        targets: Int32 [K, BLOCK]; next state, `DEAD` or `UNKNOWN`.
        set_offsets: Int32 [S + 1]; state s is the sorted set of items `set_items[set_offsets[s] : set_offsets[s + 1]]`.
        set_items: int64 [*]; (stack cell, inner state, state behind it) in one number, or the end of the text.
        accepting: uint8 [S].
        buckets: Int32 [4 S]; hash table of states.
        counters: int64 [6]; number of states, number of the last step, stack cells, places seen in the last step, rows, blocks.
        cell_parent, cell_return: Int32 [*]; the rest of a stack and its top, a state to return to; cell 0 is the empty stack.
        cell_buckets: Int32 [*]; hash table of cells.
        seen_keys, seen_marks: int64 [*]; hash table of the places (cell, state) passed in the step that the mark numbers.
        stack: int64 [*]; places whose edges are still to be followed; as long as `seen_keys`.
        scratch: int64 [*]; items of the set being built.
    """

    row_of: Int32Array
    only: npt.NDArray[np.int32]
    blocks: npt.NDArray[np.int32]
    targets: npt.NDArray[np.int32]
    set_offsets: Int32Array
    set_items: Int64Array
    accepting: UInt8Array
    buckets: Int32Array
    counters: Int64Array
    cell_parent: Int32Array
    cell_return: Int32Array
    cell_buckets: Int32Array
    seen_keys: Int64Array
    seen_marks: Int64Array
    stack: Int64Array
    scratch: Int64Array


@njit(nogil=True, cache=True)
def _bucket(items: Int64Array, begin: int, end: int, size: int) -> int:
    value = _HASH_BASIS
    for i in range(begin, end):
        value = (value ^ np.uint64(items[i])) * _HASH_FACTOR
        value ^= value >> _HASH_SHIFT
    return wide(value & np.uint64(size - 1))


@njit(nogil=True, cache=True)
def _pair_bucket(key: int, size: int) -> int:
    value = np.uint64(key) * _HASH_FACTOR
    value ^= value >> _HASH_SHIFT
    return wide(value & np.uint64(size - 1))


@njit(nogil=True, cache=True)
def _intern(gathered: int, nfa: ByteNfa, dfa: DfaTables) -> int:
    """The state whose set is `scratch[:gathered]`, in any order and with repetitions; made if it is new."""
    scratch = dfa.scratch
    if gathered > 16:
        scratch[:gathered].sort()
    else:
        for i in range(1, gathered):
            item = scratch[i]
            place = i
            while place > 0 and scratch[place - 1] > item:
                scratch[place] = scratch[place - 1]
                place -= 1
            scratch[place] = item
    count = 1
    for i in range(1, gathered):
        if scratch[i] != scratch[i - 1]:
            scratch[count] = scratch[i]
            count += 1
    size = dfa.buckets.shape[0]
    bucket = _bucket(scratch, wide(0), wide(count), size)
    while dfa.buckets[bucket] >= 0:
        state = wide(dfa.buckets[bucket])
        begin = dfa.set_offsets[state]
        if dfa.set_offsets[state + 1] - begin == count:
            same = True
            for i in range(count):
                if dfa.set_items[begin + i] != scratch[i]:
                    same = False
                    break
            if same:
                return state
        bucket = (bucket + 1) & (size - 1)
    state = wide(dfa.counters[_STATES])
    if state >= dfa.accepting.shape[0]:
        return FULL_STATES
    begin = dfa.set_offsets[state]
    if begin + count > dfa.set_items.shape[0]:
        return FULL_ITEMS
    only = _only_class(wide(count), nfa, dfa)
    if only == _SEVERAL:
        row = wide(dfa.counters[_ROWS])
        if row >= dfa.blocks.shape[0]:
            return FULL_ROWS
        dfa.blocks[row, :] = -1
        dfa.row_of[state] = row
        dfa.counters[_ROWS] = row + 1
    else:
        dfa.row_of[state] = -1
        dfa.only[state, 0] = only
        dfa.only[state, 1] = UNKNOWN
    for i in range(count):
        dfa.set_items[begin + i] = scratch[i]
    dfa.accepting[state] = scratch[0] == _END_ITEM
    dfa.set_offsets[state + 1] = begin + count
    dfa.buckets[bucket] = state
    dfa.counters[_STATES] = state + 1
    return state


@njit(nogil=True, cache=True)
def _only_class(count: int, nfa: ByteNfa, dfa: DfaTables) -> int:
    """The class that the items `scratch[:count]` read, -1 if they read none, `_SEVERAL` if it is not one class of one byte."""
    only = -1
    for i in range(count):
        item = dfa.scratch[i]
        if item == _END_ITEM:
            continue
        inner = (item >> STATE_BITS) & STATE_MASK
        for edge in range(nfa.inner_offsets[inner], nfa.inner_offsets[inner + 1]):
            low = wide(nfa.inner_low[edge])
            if low != nfa.inner_high[edge] or (only >= 0 and only != low) or nfa.class_byte[low] < 0:
                return _SEVERAL
            only = low
    return only


@njit(nogil=True, cache=True)
def _cell(parent: int, behind: int, dfa: DfaTables) -> int:
    """The stack `parent` with the return state `behind` on top, or `FULL_CELLS`."""
    size = dfa.cell_buckets.shape[0]
    bucket = _pair_bucket((wide(parent) << STATE_BITS) | behind, size)
    while dfa.cell_buckets[bucket] >= 0:
        cell = wide(dfa.cell_buckets[bucket])
        if dfa.cell_parent[cell] == parent and dfa.cell_return[cell] == behind:
            return cell
        bucket = (bucket + 1) & (size - 1)
    cell = wide(dfa.counters[_CELLS])
    if cell >= dfa.cell_parent.shape[0]:
        return FULL_CELLS
    dfa.cell_parent[cell] = parent
    dfa.cell_return[cell] = behind
    dfa.cell_buckets[bucket] = cell
    dfa.counters[_CELLS] = cell + 1
    return cell


@njit(nogil=True, cache=True)
def enter(cell: int, state: int, height: int, dfa: DfaTables) -> int:
    """Put the place on the stack unless this step has seen it; returns the new height or `FULL_CLOSURE`."""
    key = (wide(cell) << STATE_BITS) | state
    size = dfa.seen_keys.shape[0]
    mark = dfa.counters[MARK]
    bucket = _pair_bucket(key, size)
    while dfa.seen_marks[bucket] == mark:
        if dfa.seen_keys[bucket] == key:
            return height
        bucket = (bucket + 1) & (size - 1)
    if 2 * dfa.counters[SEEN] >= size:
        return FULL_CLOSURE
    dfa.seen_keys[bucket] = key
    dfa.seen_marks[bucket] = mark
    dfa.counters[SEEN] += 1
    dfa.stack[height] = key
    return height + 1


@njit(nogil=True, cache=True)
def _close(cell: int, origin: int, count: int, nfa: ByteNfa, dfa: DfaTables) -> int:
    """Append the items that `origin` reaches without a byte to `scratch[:count]`; returns the new count or a `FULL_*` code."""
    height = enter(cell, origin, wide(0), dfa)
    if height < 0:
        return height
    while height > 0:
        key = dfa.stack[height - 1]
        cell, state = wide(key >> STATE_BITS), wide(key & STATE_MASK)
        height -= 1
        first, last = nfa.call_offsets[state], nfa.call_offsets[state + 1]
        if count + (last - first) >= dfa.scratch.shape[0]:
            return FULL_SCRATCH
        for i in range(first, last):
            place = (wide(nfa.call_inner[i]) << STATE_BITS) | wide(nfa.call_return[i])
            dfa.scratch[count] = (wide(cell) << CELL_SHIFT) | place
            count += 1
        for i in range(nfa.empty_offsets[state], nfa.empty_offsets[state + 1]):
            height = enter(cell, wide(nfa.empty_targets[i]), height, dfa)
            if height < 0:
                return height
        for i in range(nfa.ref_offsets[state], nfa.ref_offsets[state + 1]):
            behind = wide(nfa.ref_return[i])
            inside = cell if behind < 0 else _cell(cell, behind, dfa)
            if inside < 0:
                return inside
            height = enter(inside, wide(nfa.ref_entry[i]), height, dfa)
            if height < 0:
                return height
        if nfa.pops[state]:
            if cell == 0:
                dfa.scratch[count] = _END_ITEM
                count += 1
            else:
                height = enter(wide(dfa.cell_parent[cell]), wide(dfa.cell_return[cell]), height, dfa)
                if height < 0:
                    return height
    return count


@njit(nogil=True, cache=True)
def start_state(nfa: ByteNfa, dfa: DfaTables) -> int:
    """The state before any byte; the automaton must accept some text."""
    dfa.counters[MARK] += 1
    dfa.counters[SEEN] = 0
    count = _close(wide(0), nfa.start, wide(0), nfa, dfa)
    return count if count < 0 else _intern(wide(count), nfa, dfa)


@njit(nogil=True, cache=True)
def _edge(inner: int, byte_class: int, nfa: ByteNfa) -> int:
    """The step of inner state `inner` that reads `byte_class`, or -1."""
    low, high = nfa.inner_offsets[inner], nfa.inner_offsets[inner + 1]
    while high - low > 4:
        middle = (low + high) >> 1
        if nfa.inner_low[middle] <= byte_class:
            low = middle
        else:
            high = middle
    for edge in range(low, high):
        if nfa.inner_low[edge] <= byte_class <= nfa.inner_high[edge]:
            return edge
    return -1


@njit(nogil=True, cache=True)
def step(state: int, byte_class: int, nfa: ByteNfa, dfa: DfaTables) -> int:
    """Compute and store the transition of `state` on `byte_class`; returns it, or a `FULL_*` code."""
    if dfa.row_of[state] >= 0:
        made = _block(state, byte_class, dfa)
        if made < 0:
            return made
    dfa.counters[MARK] += 1
    dfa.counters[SEEN] = 0
    count = 0
    for i in range(dfa.set_offsets[state], dfa.set_offsets[state + 1]):
        item = dfa.set_items[i]
        if item == _END_ITEM:
            continue
        edge = _edge(wide((item >> STATE_BITS) & STATE_MASK), byte_class, nfa)
        if edge < 0:
            continue
        behind = wide(item & STATE_MASK)
        cell = wide(item >> CELL_SHIFT)
        following = nfa.inner_next[edge]
        if following >= 0:
            if count >= dfa.scratch.shape[0]:
                return FULL_SCRATCH
            place = (wide(following) << STATE_BITS) | wide(behind)
            dfa.scratch[count] = (wide(cell) << CELL_SHIFT) | place
            count += 1
        if nfa.inner_exits[edge]:
            count = _close(cell, behind, count, nfa, dfa)
            if count < 0:
                return count
    target = DEAD
    if count > 0:
        target = _intern(wide(count), nfa, dfa)
        if target < 0:
            return target
    row = dfa.row_of[state]
    if row < 0:
        dfa.only[state, 1] = target
    else:
        dfa.targets[dfa.blocks[row, byte_class >> BLOCK_BITS], byte_class & (BLOCK - 1)] = target
    return target


@njit(nogil=True, cache=True)
def _block(state: int, column: int, dfa: DfaTables) -> int:
    """The block of a column of a state with a row, made if need be, or `FULL_BLOCKS`."""
    row = dfa.row_of[state]
    block = wide(dfa.blocks[row, column >> BLOCK_BITS])
    if block < 0:
        block = wide(dfa.counters[_BLOCKS])
        if block >= dfa.targets.shape[0]:
            return FULL_BLOCKS
        dfa.targets[block, :] = UNKNOWN
        dfa.counters[_BLOCKS] = block + 1
        dfa.blocks[row, column >> BLOCK_BITS] = block
    return block


@njit(nogil=True, cache=True)
def known(state: int, column: int, dfa: DfaTables) -> int:
    """What the tables hold: the next state of `state`, `DEAD` or `UNKNOWN`."""
    row = dfa.row_of[state]
    if row < 0:
        return wide(dfa.only[state, 1]) if dfa.only[state, 0] == column else wide(DEAD)
    block = dfa.blocks[row, column >> BLOCK_BITS]
    return wide(UNKNOWN) if block < 0 else wide(dfa.targets[block, column & (BLOCK - 1)])


@njit(nogil=True, cache=True)
def remember(state: int, column: int, target: int, dfa: DfaTables) -> int:
    """Store what follows a state that has a row; returns 0 or `FULL_BLOCKS`."""
    block = _block(state, column, dfa)
    if block < 0:
        return block
    dfa.targets[block, column & (BLOCK - 1)] = target
    return 0


@njit(nogil=True, cache=True)
def next_state(state: int, byte_class: int, nfa: ByteNfa, dfa: DfaTables) -> int:
    """The transition of `state` on `byte_class`, computed if need be: a state, `DEAD` or a `FULL_*` code."""
    target = known(state, byte_class, dfa)
    return step(state, byte_class, nfa, dfa) if target == UNKNOWN else target


@njit(nogil=True, cache=True)
def expand(begin: int, end: int, nfa: ByteNfa, dfa: DfaTables) -> int:
    """Compute all transitions of the states from `begin` up to `end`, those found on the way included; returns 0 or a `FULL_*` code."""
    state = begin
    while state < min(end, dfa.counters[_STATES]):
        for column in range(nfa.class_byte.shape[0]):
            target = next_state(state, wide(column), nfa, dfa)
            if target < DEAD:
                return target
        state += 1
    return 0


@njit(nogil=True, cache=True)
def advance_known(
    state: int,
    data: UInt8Array,
    begin: int,
    end: int,
    byte_class: UInt8Array,
    row_of: Int32Array,
    only: npt.NDArray[np.int32],
    blocks: npt.NDArray[np.int32],
    targets: npt.NDArray[np.int32],
) -> int:
    """The state after `data[begin:end]`, `DEAD`, or `UNKNOWN` if some transition is not computed yet. Reads only: needs no lock.

    Another thread may fill the tables meanwhile and grow some of them: what lies beyond these arrays is unknown too.
    """
    for i in range(begin, end):
        column = wide(byte_class[data[i]])
        if state >= row_of.shape[0] or row_of[state] >= blocks.shape[0]:
            return UNKNOWN
        row = row_of[state]
        if row < 0:
            state = wide(only[state, 1]) if only[state, 0] == column else wide(DEAD)
        else:
            block = blocks[row, column >> BLOCK_BITS]
            if block < 0 or block >= targets.shape[0]:
                return UNKNOWN
            state = wide(targets[block, column & (BLOCK - 1)])
        if state < 0:
            return state
    return state


@njit(nogil=True, cache=True)
def advance(state: int, data: UInt8Array, begin: int, end: int, nfa: ByteNfa, dfa: DfaTables) -> int:
    """The state after `data[begin:end]`, `DEAD`, or a `FULL_*` code."""
    for i in range(begin, end):
        state = next_state(state, wide(nfa.byte_class[data[i]]), nfa, dfa)
        if state < 0:
            return state
    return state


@njit(nogil=True, cache=True)
def only_byte(state: int, nfa: ByteNfa, dfa: DfaTables) -> int:
    """The byte that must come next in `state`; -1 if the text may end here or several bytes or special tokens may follow."""
    if dfa.accepting[state] or dfa.row_of[state] >= 0 or dfa.only[state, 0] < 0:
        return -1
    return wide(nfa.class_byte[dfa.only[state, 0]])


@njit(nogil=True, cache=True)
def follow_forced(state: int, room: UInt8Array, nfa: ByteNfa, dfa: DfaTables) -> tuple[int, int, int]:
    """Follow singular edges and write their bytes into `room`: (bytes written, state reached, 0 or a `FULL_*` code)."""
    count = 0
    while count < room.shape[0]:
        byte = only_byte(state, nfa, dfa)
        if byte < 0:
            break
        target = next_state(state, wide(nfa.byte_class[byte]), nfa, dfa)
        if target < DEAD:
            return count, state, target
        room[count] = byte
        count += 1
        state = target
    return count, state, 0


@njit(nogil=True, cache=True)
def rehash(dfa: DfaTables) -> None:
    """Enter all states and stack cells into the empty `buckets` and `cell_buckets`."""
    size = dfa.buckets.shape[0]
    for state in range(dfa.counters[_STATES]):
        bucket = _bucket(dfa.set_items, wide(dfa.set_offsets[state]), wide(dfa.set_offsets[state + 1]), size)
        while dfa.buckets[bucket] >= 0:
            bucket = (bucket + 1) & (size - 1)
        dfa.buckets[bucket] = state
    size = dfa.cell_buckets.shape[0]
    for cell in range(1, dfa.counters[_CELLS]):
        bucket = _pair_bucket((wide(dfa.cell_parent[cell]) << STATE_BITS) | dfa.cell_return[cell], size)
        while dfa.cell_buckets[bucket] >= 0:
            bucket = (bucket + 1) & (size - 1)
        dfa.cell_buckets[bucket] = cell


@njit(nogil=True, cache=True)
def product(
    left: Int32Array, right: Int32Array, columns: Int32Array, pairs: Int64Array, buckets: Int32Array, table: Int32Array
) -> int:
    """Pair the states of two complete transition tables; `DEAD` on the right goes on as long as the left side lives.

    Args:
        left, right: Int32 [S, *], [T, *]; transitions, `DEAD` allowed.
        columns: Int32 [J, 2]; the column of `left` and of `right` for each joint column.
        pairs: int64 [P]; filled with `(left << 32) | (right + 1)`; `pairs[0]` is the start, already there.
        buckets: Int32 [power of two, at least 2 P]; all -1.
        table: Int32 [P, J]; filled with the pair that follows, or `DEAD`.

    Returns the number of pairs, or `FULL_PRODUCT` if there are more than P.
    """
    size = buckets.shape[0]
    buckets[_pair_bucket(pairs[0], size)] = 0
    count = 1
    at = 0
    while at < count:
        first, second = wide(pairs[at] >> 32), wide(pairs[at] & 0xFFFFFFFF) - 1
        for column in range(columns.shape[0]):
            target = wide(left[first, columns[column, 0]])
            if target < 0:
                table[at, column] = DEAD
                continue
            other = -1 if second < 0 else wide(right[second, columns[column, 1]])
            key = (wide(target) << 32) | wide(other + 1)
            bucket = _pair_bucket(key, size)
            while buckets[bucket] >= 0 and pairs[buckets[bucket]] != key:
                bucket = (bucket + 1) & (size - 1)
            if buckets[bucket] < 0:
                if count >= pairs.shape[0]:
                    return FULL_PRODUCT
                pairs[count] = key
                buckets[bucket] = count
                count += 1
            table[at, column] = buckets[bucket]
        at += 1
    return count


@njit(nogil=True, cache=True)
def mark_live(table: Int32Array, live: UInt8Array) -> None:
    """Spread `live`, uint8 [P], backwards over `table`, int32 [P, J], until every state that reaches a live one is live."""
    changed = True
    while changed:
        changed = False
        for state in range(table.shape[0] - 1, -1, -1):
            if live[state]:
                continue
            for column in range(table.shape[1]):
                if table[state, column] >= 0 and live[table[state, column]]:
                    live[state] = 1
                    changed = True
                    break
