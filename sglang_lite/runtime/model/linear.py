"""How a linear layer stores its weight and multiplies by it: one protocol, one class per storage."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from sglang_lite.runtime.model.tensors import SourceTensor
from sglang_lite.runtime.model.weights import store_rows


class LinearMethod(Protocol):
    """A weight matrix `[out_features, in_features]` behind a product. Filled once, by rows, before its first use."""

    out_features: int
    in_features: int

    def load_rows(self, first: int, tensor: SourceTensor, order: np.ndarray | None) -> None:
        """Take `tensor` as rows `first, first + 1, ...`; row i is the tensor's row `order[i]` (None: i).

        Args:
            first: first row of the matrix to fill.
            tensor: `[n, in_features]` in any storage type.
            order: int [n] or None.

        """
        ...

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """`x @ weight.T`, [n, in_features] -> [n, out_features], both in the model's type (float32 on the CPU)."""
        ...


LinearFactory = Callable[[int, int], LinearMethod]
"""(in_features, out_features) -> an empty layer."""


class DenseLinear(nn.Module):
    """The weight in the model's type, multiplied by torch."""

    def __init__(self, in_features: int, out_features: int, weight: nn.Parameter | None = None) -> None:
        """Allocate the weight, or share `weight` (a tied head)."""
        super().__init__()
        self.in_features = in_features
        self.out_features = out_features
        self.weight = (
            nn.Parameter(torch.empty(out_features, in_features), requires_grad=False) if weight is None else weight
        )

    def load_rows(self, first: int, tensor: SourceTensor, order: np.ndarray | None) -> None:
        """See `LinearMethod.load_rows`."""
        store_rows(self.weight.data[first : first + tensor.shape[0]], tensor, order)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """See `LinearMethod.__call__`."""
        return functional.linear(x, self.weight)


class Fp32Linear(DenseLinear):
    """`DenseLinear` on the CPU in float32: the oracle of every other method."""
