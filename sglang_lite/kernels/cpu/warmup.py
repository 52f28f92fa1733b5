"""Compiles or loads every CPU kernel before the first request needs it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from sglang_lite.kernels.cpu.jit import is_compiled, mark_compiled
from sglang_lite.kernels.cpu.paged_attention import NO_SOFT_CAP, paged_attention, plan_tiles, scratch_floats
from sglang_lite.kernels.cpu.parallel_attention import worker_address
from sglang_lite.kernels.cpu.store_kv import store_kv

PART = "attention"
_PARTS = {4: (PART, np.float32), 2: (f"{PART}-half", np.int16), 1: (f"{PART}-int8", np.int8)}


def warm_up(notice: Callable[[str], None], item: int = 4) -> None:
    """Run each kernel once on a few floats; afterwards no call compiles anything.

    Args:
        notice: called with one line if the kernels must be compiled (seconds) and not just loaded.
        item: bytes of a stored number of keys and values.

    """
    part, stored = _PARTS[item]
    compiled = is_compiled(part)
    if not compiled:
        notice("compiling the CPU attention kernels (once for this machine, about 5 s)")
    depth, page = 16, 16
    keys = np.zeros((2, 1, depth, page), dtype=stored)
    values = np.zeros((2, 1, page, depth), dtype=stored)
    token = np.zeros((1, 1, depth), dtype=np.float32)
    new = token.astype(stored)
    store_kv(new, new, keys, values, np.array([page], dtype=np.int64))
    lens = np.ones(1, dtype=np.int32)
    paged_attention(
        token,
        keys,
        values,
        np.ones((2, 1, page), dtype=np.float32),
        np.ones((2, 1, page), dtype=np.float32),
        np.array([[1]], dtype=np.int32),
        np.array([0, 1], dtype=np.int32),
        lens,
        plan_tiles(lens, kv_heads=1, group=1),
        np.empty(scratch_floats(1, depth), dtype=np.float32),
        np.empty_like(token),
        np.float32(1.0),
        0,
        NO_SOFT_CAP,
        keys.itemsize,
    )
    worker_address()
    if not compiled:
        mark_compiled(part)
