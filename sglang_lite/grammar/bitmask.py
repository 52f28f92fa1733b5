"""Token bitmasks: int32 [batch, ceil(vocab / 32)], bit i % 32 of word i // 32 is 1 where token i is allowed. The layout is defined here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from sglang_lite.grammar.errors import InvalidBitmaskError

Bitmask = npt.NDArray[np.int32]
_BITS = 32


def num_words(vocab_size: int) -> int:
    """Words of one row: `ceil(vocab_size / 32)`."""
    return -(-vocab_size // _BITS)


def bitmask_shape(batch_size: int, vocab_size: int) -> tuple[int, int]:
    """Shape of the bitmask of a batch: `(batch_size, ceil(vocab_size / 32))`."""
    return batch_size, num_words(vocab_size)


def allocate_token_bitmask(batch_size: int, vocab_size: int) -> Bitmask:
    """A new int32 bitmask `[batch_size, ceil(vocab_size / 32)]` in which every token is allowed."""
    return np.full(bitmask_shape(batch_size, vocab_size), -1, np.int32)


def ids_to_words(token_ids: Iterable[int], vocab_size: int) -> Bitmask:
    """One row, int32 `[ceil(vocab_size / 32)]`, with exactly `token_ids` allowed."""
    flags = np.zeros(num_words(vocab_size) * _BITS, np.uint8)
    flags[list(token_ids)] = 1
    return np.packbits(flags, bitorder="little").view("<i4").astype(np.int32)


def words_to_flags(words: Bitmask, width: int) -> npt.NDArray[np.bool_]:
    """The first `width` bits of one row as bool `[width]`; bits beyond the row are False."""
    flags = np.zeros(width, np.bool_)
    bits = np.unpackbits(
        words.astype("<i4", copy=False).view(np.uint8), bitorder="little", count=min(width, words.size * _BITS)
    )
    flags[: bits.size] = bits
    return flags


def apply_token_bitmask_inplace(
    logits: npt.NDArray[np.float32], bitmask: Bitmask, indices: Sequence[int] | npt.NDArray[np.integer] | None = None
) -> None:
    """Set the logits of tokens that are not allowed to minus infinity, in place.

    Args:
        logits: float32 `[batch, vocab]`; changed. Ids that the bitmask has no bit for are set to minus infinity.
        bitmask: int32 `[batch, words]`; row i masks row i of `logits`.
        indices: the rows to mask; all others stay as they are. None is all rows.

    Raises:
        InvalidBitmaskError: shapes or types do not fit, or an index is out of range.
    """
    if logits.ndim != 2 or bitmask.ndim != 2 or bitmask.dtype != np.int32 or logits.dtype != np.float32:
        raise InvalidBitmaskError(
            "applying a bitmask: expected float32 logits [batch, vocab] and an int32 bitmask [batch, words], "
            f"got {logits.dtype} {logits.shape} and {bitmask.dtype} {bitmask.shape}"
        )
    rows = range(logits.shape[0]) if indices is None else [int(index) for index in indices]
    limit = min(logits.shape[0], bitmask.shape[0])
    for row in rows:
        if not 0 <= row < limit:
            raise InvalidBitmaskError(
                f"applying a bitmask: row {row} is not among the {limit} rows that logits and bitmask share"
            )
        logits[row, ~words_to_flags(bitmask[row], logits.shape[1])] = -np.inf
