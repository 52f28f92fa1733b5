"""4-bit matrices on a GPU, by Triton's kernels; imported only where there is one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from sglang_lite.kernels.triton.linear_q4 import PackedQ4, linear_q4, pack_q4
from sglang_lite.runtime.model.linear_q4 import Q4Kind


@dataclass(frozen=True)
class TritonMatrix:
    """A `Q4Matrix`. `deterministic`: a row's result does not depend on how many there are."""

    packed: PackedQ4
    deterministic: bool

    def multiply(self, x: torch.Tensor) -> torch.Tensor:
        """See `Q4Matrix`."""
        return linear_q4(x, self.packed, deterministic=self.deterministic)


@dataclass(frozen=True)
class TritonPacker:
    """A `Q4Packer`."""

    deterministic: bool = False

    def __call__(self, raw: np.ndarray, kind: Q4Kind, device: str) -> TritonMatrix:
        """See `Q4Packer`."""
        return TritonMatrix(pack_q4(raw, kind, device), self.deterministic)
