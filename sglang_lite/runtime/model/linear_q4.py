"""Linear layers on a device: 4-bit matrices of a GGUF file as they are stored, all others in the model's type.

Which of the two a layer is shows when all its tensors are named. Knows no kernel's inside.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from sglang_lite.runtime.model.tensors import SourceTensor, StoredTensor
from sglang_lite.runtime.model.weights import store_rows

_GROUP = 32

Q4Kind = Literal["Q4_0", "Q4_1"]


class Q4Matrix(Protocol):
    """A 4-bit matrix [N, K] on a device."""

    def multiply(self, x: torch.Tensor) -> torch.Tensor:
        """`x @ matrix.T`, [n, K] -> [n, N] in the type of x."""
        ...


class Q4Packer(Protocol):
    """Brings 4-bit matrices to a device."""

    def __call__(self, raw: np.ndarray, kind: Q4Kind, device: str) -> Q4Matrix:
        """A matrix on the device, from the bytes of a GGUF file: uint8 [N, K / 32 * bytes of a group]."""
        ...


@dataclass(frozen=True)
class _Rows:
    """Rows of a layer that wait for the others."""

    first: int
    tensor: SourceTensor
    order: np.ndarray | None


class DeviceLinear(nn.Module):
    """A `LinearMethod` whose weight is made, on its device, when the last of its rows is named.

    Attributes:
        weight: [out_features, in_features]; None where `packed` is.
        packed: the 4-bit matrix as the kernels have it; None where `weight` is.

    """

    def __init__(
        self, in_features: int, out_features: int, device: str, dtype: torch.dtype, pack_q4: Q4Packer | None = None
    ) -> None:
        """Allocate nothing; `pack_q4`: who keeps 4-bit matrices, None: they are turned into `dtype`."""
        super().__init__()
        self.in_features = in_features
        self.out_features = out_features
        self.weight: nn.Parameter | None = None
        self.packed: Q4Matrix | None = None
        self._device = device
        self._dtype = dtype
        self._pack_q4 = pack_q4
        self._waiting: list[_Rows] = []

    def load_rows(self, first: int, tensor: SourceTensor, order: np.ndarray | None) -> None:
        """See `LinearMethod.load_rows`; nothing is read before all rows are named."""
        self._waiting.append(_Rows(first, tensor, order))
        if sum(rows.tensor.shape[0] for rows in self._waiting) == self.out_features:
            waiting, self._waiting = sorted(self._waiting, key=lambda rows: rows.first), []
            self._make(waiting)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """See `LinearMethod.__call__`."""
        if self.weight is not None:
            return functional.linear(x, self.weight)
        assert self.packed is not None, (
            f"a layer of {self.out_features} rows lacks {self.out_features - sum(r.tensor.shape[0] for r in self._waiting)}"
        )
        return self.packed.multiply(x)

    def _make(self, rows: list[_Rows]) -> None:
        kind = q4_kind([part.tensor for part in rows])
        if self._pack_q4 is not None and kind is not None:
            parts = [part.tensor.raw() for part in rows if isinstance(part.tensor, StoredTensor)]
            ordered = [raw if part.order is None else raw[part.order] for part, raw in zip(rows, parts, strict=True)]
            self.packed = self._pack_q4(np.concatenate(ordered), kind, self._device)
            return
        shape = (self.out_features, self.in_features)
        weight = torch.empty(shape, device=self._device, dtype=self._dtype)
        for part in rows:
            store_rows(weight[part.first : part.first + part.tensor.shape[0]], part.tensor, part.order)
        self.weight = nn.Parameter(weight, requires_grad=False)


def q4_kind(tensors: Sequence[SourceTensor]) -> Q4Kind | None:
    """The one 4-bit storage of a layer's matrices; None: they have another or several."""
    kinds = {tensor.storage if isinstance(tensor, StoredTensor) else "" for tensor in tensors}
    kind = kinds.pop()
    if kinds or kind not in ("Q4_0", "Q4_1") or any(len(t.shape) != 2 or t.shape[1] % _GROUP for t in tensors):
        return None
    return kind
