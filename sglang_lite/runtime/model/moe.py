"""The MLP of a layer as many experts of which each token takes a few: plain torch, grouped by expert. Knows no file."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from sglang_lite.runtime.model.config import Activation, ExpertsConfig
from sglang_lite.runtime.model.device_ops import gated
from sglang_lite.runtime.model.tensors import SourceTensor
from sglang_lite.runtime.model.weights import store_rows

STATIC_ROWS = 256
"""Up to so many tokens a GPU runs without waiting for the routing, which a recorded graph cannot: `run_every_expert`."""

_CHUNK_NUMBERS = 1 << 22
"""Intermediate values of `run_every_expert` at a time."""


class ExpertWeights(nn.Module):
    """One matrix of every expert, `weight [experts, out_features, in_features]`. Filled once, before its first use."""

    def __init__(self, count: int, in_features: int, out_features: int) -> None:
        super().__init__()
        self.out_features = out_features
        self.weight = nn.Parameter(torch.empty(count, out_features, in_features), requires_grad=False)

    def load_rows(self, first: int, tensor: SourceTensor, order: np.ndarray | None) -> None:
        """Take a tensor of one expert or of all.

        Args:
            first: of all experts, `[experts, n, in_features]`: first row in each; of one, `[n, in_features]`: first row
                where the experts' matrices stand one below the other.
            tensor: in any storage type.
            order: None; rows of experts stay as they are.

        """
        assert order is None, "rows of experts have no other order"
        if len(tensor.shape) == 3:
            target = self.weight.data[:, first : first + tensor.shape[1]]
        else:
            expert, row = divmod(first, self.out_features)
            target = self.weight.data[expert, row : row + tensor.shape[0]]
        store_rows(target, tensor, None)


class SparseMLP(nn.Module):
    """`sum over a token's experts of weight * down(act(gate(x)) * up(x))`.

    Attributes:
        router: scores of the experts, `[experts, hidden]`.
        gate_up: gates above ups.
        down: back to the residual stream.

    """

    def __init__(self, hidden_size: int, experts: ExpertsConfig, activation: Activation) -> None:
        super().__init__()
        self._experts = experts
        self._activation = activation
        self.router = nn.Parameter(torch.empty(experts.count, hidden_size), requires_grad=False)
        self.gate_up = ExpertWeights(experts.count, hidden_size, 2 * experts.intermediate_size)
        self.down = ExpertWeights(experts.count, experts.intermediate_size, hidden_size)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map [T, hidden] -> [T, hidden]."""
        weights, chosen = self.route(x)
        if not x.is_cuda or len(x) > STATIC_ROWS:
            return self.run_grouped(x, weights, chosen).to(x.dtype)
        # Copying the chosen matrices reads and writes them before they are used, which costs three times their size.
        copied = 3 * chosen.numel() <= self._experts.count
        return (self.run_gathered if copied else self.run_every_expert)(x, weights, chosen).to(x.dtype)

    def route(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Which experts each token takes: their weights, float32, and their numbers, int64, both [T, per token]."""
        scores = functional.softmax(functional.linear(x, self.router), dim=-1, dtype=torch.float32)
        weights, chosen = scores.topk(self._experts.per_token, dim=-1)
        return (weights / weights.sum(-1, keepdim=True) if self._experts.renormalise else weights), chosen

    def run_grouped(self, x: torch.Tensor, weights: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
        """Each expert on its own tokens, float32 [T, hidden]; waits for the routing.

        A token's experts are added in the order of their numbers, whatever stands beside it in the batch.
        """
        order = chosen.flatten().argsort(stable=True)
        rows, scale = order // chosen.shape[1], weights.flatten()[order, None]
        out = torch.zeros(x.shape, dtype=torch.float32, device=x.device)
        first = 0
        for expert, count in enumerate(torch.bincount(chosen.flatten(), minlength=self._experts.count).tolist()):
            if count:
                part = slice(first, first + count)
                inner = self._gated(functional.linear(x[rows[part]], self.gate_up.weight[expert]))
                # No token comes twice for one expert, so this is deterministic on a GPU, too.
                out.index_add_(0, rows[part], functional.linear(inner, self.down.weight[expert]) * scale[part])
                first += count
        return out

    def run_gathered(self, x: torch.Tensor, weights: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
        """As `run_grouped`, on copies of the chosen matrices: for few tokens; its launches depend on T only."""
        flat, per_token = chosen.flatten(), chosen.shape[1]
        each = x.repeat_interleave(per_token, dim=0).unsqueeze(-1)
        inner = self._gated(torch.bmm(self.gate_up.weight[flat], each).squeeze(-1))
        values = torch.bmm(self.down.weight[flat], inner.unsqueeze(-1))
        return (values.view(len(x), per_token, x.shape[1]) * weights.unsqueeze(-1)).sum(1)

    def run_every_expert(self, x: torch.Tensor, weights: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
        """As `run_grouped`, every expert on every token, most of it dropped: reads each weight once; its launches depend on T only."""
        count, inner_size = self._experts.count, self._experts.intermediate_size
        scale = (
            torch.zeros(len(x), count, dtype=torch.float32, device=x.device).scatter_(1, chosen, weights).T[..., None]
        )
        step = max(1, _CHUNK_NUMBERS // max(1, len(x) * (2 * inner_size + x.shape[1])))
        out = torch.zeros(x.shape, dtype=torch.float32, device=x.device)
        for first in range(0, count, step):
            gate_up, down = (m.weight[first : first + step].transpose(1, 2) for m in (self.gate_up, self.down))
            inner = self._gated(torch.bmm(x.expand(len(gate_up), *x.shape), gate_up))
            part = scale[first : first + step]
            # What an expert makes of a token that is not its own may be infinite.
            out += torch.bmm(inner, down).masked_fill(part == 0, 0).mul(part).sum(0)
        return out

    def _gated(self, gate_up: torch.Tensor) -> torch.Tensor:
        flat = gated(gate_up.flatten(0, -2), self._activation)
        return flat.view(*gate_up.shape[:-1], self._experts.intermediate_size)
