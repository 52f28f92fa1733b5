"""The order in which packed weights lie in memory: blocks of eight outputs by 32 inputs. Knows no file format."""

from __future__ import annotations

import numpy as np


def split_nibbles(packed: np.ndarray) -> np.ndarray:
    """Bytes [..., n] -> [..., 2 n]: all low halves, then all high ones."""
    return np.concatenate([packed & 15, packed >> 4], axis=-1)


def pack_nibbles(q: np.ndarray, d: np.ndarray, m: np.ndarray) -> np.ndarray:
    """Blocks for `make_nibble_tile`.

    Args:
        q: uint8 [N, groups, 32], below 16.
        d: float16 or float32 [N, groups].
        m: as d.

    """
    eights = _eights(q)
    values = eights[..., :4, :, :] | eights[..., 4:, :, :] << 4
    return _join(values, d, m)


def pack_bytes(q: np.ndarray, d: np.ndarray) -> np.ndarray:
    """Blocks for `make_byte_tile`.

    Args:
        q: uint8 [N, groups, 32], the bits of int8.
        d: float16 or float32 [N, groups, factors of a group].

    """
    return _join(_eights(q), *np.moveaxis(d, -1, 0))


def _eights(q: np.ndarray) -> np.ndarray:
    """[N, groups, 32] -> [N / 8, groups, 8 fours of inputs, 8 outputs, 4], N filled up to a multiple of 16."""
    q = _filled(q)
    return q.reshape(len(q) // 8, 8, q.shape[1], 8, 4).transpose(0, 2, 3, 1, 4)


def _join(values: np.ndarray, *factors: np.ndarray) -> np.ndarray:
    eights, groups = values.shape[:2]
    parts = [values.reshape(eights, groups, -1)]
    for factor in factors:
        lanes = _filled(factor).reshape(eights, 8, groups).transpose(0, 2, 1)
        parts.append(np.ascontiguousarray(lanes).view(np.uint8))
    return np.concatenate(parts, axis=-1)


def _filled(rows: np.ndarray) -> np.ndarray:
    missing = -len(rows) % 16
    return np.concatenate([rows, np.zeros((missing, *rows.shape[1:]), dtype=rows.dtype)]) if missing else rows
