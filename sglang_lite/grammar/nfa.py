"""The byte automaton as arrays: what a grammar is after its front end and before anything is determinised."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt

Int32Array = npt.NDArray[np.int32]
Int64Array = npt.NDArray[np.int64]
UInt8Array = npt.NDArray[np.uint8]

# In compiled loops all numbers are 64 bits wide: an argument of another type would compile the callee once more.
wide = cast("Callable[[Any], int]", np.int64)

STATE_BITS = 20  # states and inner states are below 2**20, so that an item is one int64


ANY_TEXT = 1 << 7  # in `covers`: the automaton reads more than one character, what it covers must be looked for


class ByteNfa(NamedTuple):
    """A trimmed non-deterministic pushdown automaton (N states, A inner states, C byte classes, K special tokens), in compressed sparse rows.

    All rules of a grammar stand side by side. An edge reads bytes by running a deterministic inner automaton and then
    names the state behind it, or it enters another rule and names the state to return to, or it is empty.

    Attributes:
        empty_offsets, empty_targets: int32 [N + 1], [*]; the states that a state reaches without a byte.
        call_offsets: int32 [N + 1]; rows of the two arrays below.
        call_inner, call_return: int32 [*]; the inner state where an edge begins to read, and the state behind it.
        ref_offsets: int32 [N + 1]; rows of the two arrays below.
        ref_entry, ref_return: int32 [*]; first state of the rule entered, and the state to return to; -1 where
            nothing but the end of the rule follows, so that nothing need be remembered.
        pops: uint8 [N]; 1 where a rule ends; the end of the rule that began the text is the end of the text.
        inner_offsets: int32 [A + 1]; rows of the four arrays below, in ascending order of bytes, which do not overlap.
        inner_low, inner_high: int32 [*]; first and last byte class of a step; C + k for the k-th special token.
        inner_next: int32 [*]; the next inner state, -1 where nothing more may be read by this edge.
        inner_exits: uint8 [*]; 1 where the edge may end after the step.
        inner_covers: uint8 [A]; bit i where any character of slice set i can be read from here to the end of the edge; see `slice_sets`.
        byte_class: uint8 [256]; bytes of one class behave alike everywhere. Classes are ranges, numbered in ascending order.
        class_byte: int32 [C + K]; the byte of a class that has one byte only, else -1.
        special_ids: int32 [K]; the special tokens that the grammar names.
        start: the state before any text; -1 if no text is accepted at all.
    """

    empty_offsets: Int32Array
    empty_targets: Int32Array
    call_offsets: Int32Array
    call_inner: Int32Array
    call_return: Int32Array
    ref_offsets: Int32Array
    ref_entry: Int32Array
    ref_return: Int32Array
    pops: UInt8Array
    inner_offsets: Int32Array
    inner_low: Int32Array
    inner_high: Int32Array
    inner_next: Int32Array
    inner_exits: UInt8Array
    inner_covers: UInt8Array
    byte_class: UInt8Array
    class_byte: Int32Array
    special_ids: Int32Array
    start: int

    @property
    def num_states(self) -> int:
        """States, inner ones not counted."""
        return len(self.pops)

    @property
    def num_columns(self) -> int:
        """Byte classes and special tokens; the width of a row of the deterministic tables."""
        return len(self.class_byte)

    @property
    def num_classes(self) -> int:
        """Byte classes alone."""
        return len(self.class_byte) - len(self.special_ids)

    @property
    def num_bytes(self) -> int:
        """Memory of all arrays."""
        return sum(part.nbytes for part in self if isinstance(part, np.ndarray))


class ByteDfa(NamedTuple):
    """A trimmed deterministic automaton over bytes (S states, the first is the start), to be an inner automaton of a `ByteNfa`.

    Attributes:
        offsets: int32 [S + 1]; rows of `edges`.
        edges: int32 [*, 4]; (low byte, high byte, next state or -1, 1 if the text may end after it), ascending in a row.
        accepts_empty: whether the empty text is accepted.
        covers: bit i if it reads one character and any of slice set i; all bits and `ANY_TEXT` if it reads longer texts. Of an
            automaton without edges: bit i if texts of characters of slice set i may follow without end.
    """

    offsets: Int32Array
    edges: Int32Array
    accepts_empty: bool
    covers: int
