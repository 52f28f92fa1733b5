"""Which tensors the GPU's kernels work on; the one place that decides it."""

from __future__ import annotations

import torch


def is_on_gpu(x: torch.Tensor) -> bool:
    """Whether operations on `x` go to the kernels for GPUs, else to torch."""
    return x.is_cuda
