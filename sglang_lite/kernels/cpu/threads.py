"""The threads that the CPU kernels run on: those of torch's own OpenMP runtime.

A second pool beside torch's loses: after every torch operation OpenMP's workers spin for a while and keep the cores that
the other pool needs (measured on two cores: Python threads between matrix products give 1.0x of one thread, with the
OpenMP workers asleep 1.8x). So kernels enter the same team that torch uses, through the runtime that torch has loaded.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

_WORKER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class KernelThreads:
    """A team of `count` threads; `count` is 1 where torch's OpenMP runtime cannot be reached.

    Regions started from one Python thread use that thread's team, the one of its torch operations.
    """

    def __init__(self, count: int) -> None:
        assert count >= 1, f"the number of threads must be at least 1, got {count}"
        self._parallel = _openmp_parallel() if count > 1 else None
        self.count = count if self._parallel is not None else 1

    def run(self, worker: int, data: np.ndarray) -> None:
        """Call the C function `void worker(int64_t *data)` on every thread of the team; returns when all are done.

        Args:
            worker: its address.
            data: int64, contiguous; the workers share it.

        """
        if self._parallel is None:
            _WORKER(worker)(data.ctypes.data)
        else:
            self._parallel(worker, data.ctypes.data, self.count, 0)


def configure_threads(count: int) -> KernelThreads:
    """Set torch to `count` threads and return the team for the kernels. Called once by whoever owns the computation."""
    torch.set_num_threads(count)
    return KernelThreads(count)


def _openmp_parallel() -> Callable[[int, int, int, int], None] | None:
    """`GOMP_parallel` of the runtime that torch is linked with; None where there is none (LLVM's has it on Linux only)."""
    for name in ("libtorch_cpu.so", "libtorch_cpu.dylib"):
        library = Path(torch.__file__).parent / "lib" / name
        if library.exists():
            # A symbol is looked up in the library's dependencies too: torch's own copy, whatever its file is called.
            parallel = getattr(ctypes.CDLL(str(library)), "GOMP_parallel", None)
            if parallel is not None:
                parallel.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint]
                parallel.restype = None
            return parallel
    return None
