"""Masks, penalties and draws over rows of logits in plain torch: any device, full sorts; the oracle of the kernels.

The rules are those of `sampler.py`, whose plain definition is `kernels/reference/sampling.py`.
"""

from __future__ import annotations

import torch

from sglang_lite.runtime.execution.device_sampler import PenaltyTensors, Scored


class TorchSampling:
    """`SamplingOps` in torch."""

    def apply_masks(self, logits: torch.Tensor, bitmask: torch.Tensor) -> None:
        """See `SamplingOps`."""
        tokens = torch.arange(logits.shape[1], device=logits.device)
        words = bitmask.index_select(1, tokens // 32)
        logits[: len(bitmask)].masked_fill_((words >> (tokens % 32).int() & 1) == 0, float("-inf"))

    def apply_penalties(self, logits: torch.Tensor, penalties: PenaltyTensors) -> None:
        """See `SamplingOps`."""
        p = penalties
        at = _repeat(p.starts, len(p.ids))
        rows = p.rows.index_select(0, at)
        values = logits[rows, p.ids]
        repetition = p.repetition.index_select(0, at)
        values = torch.where(values > 0, values / repetition, values * repetition)
        lowered = p.counts.float() * p.frequency.index_select(0, at) + p.presence.index_select(0, at)
        logits[rows, p.ids] = torch.where(p.counts > 0, values - lowered, values)
        bias_rows = p.rows.index_select(0, _repeat(p.bias_starts, len(p.bias_ids)))
        logits[bias_rows, p.bias_ids] += p.biases

    def sample(
        self,
        logits: torch.Tensor,
        temperature: torch.Tensor,
        top_k: torch.Tensor,
        top_p: torch.Tensor,
        min_p: torch.Tensor,
        uniform: torch.Tensor,
        out: torch.Tensor,
    ) -> None:
        """See `SamplingOps`."""
        peak = logits.amax(1, keepdim=True)
        ids = torch.arange(logits.shape[1], device=logits.device)
        best = torch.where(logits == peak, ids, logits.shape[1] - 1).amin(1)
        hot = torch.where(temperature > 0, temperature, 1.0)[:, None]
        weights = torch.exp((logits - peak) / hot)
        order = torch.sort(logits, dim=1, descending=True, stable=True).indices
        kept = _kept(weights.gather(1, order), ids, top_k, top_p, min_p)
        weights = torch.where(torch.zeros_like(kept).scatter(1, order, kept), weights, 0.0)
        mass = weights.double().cumsum(1)
        drawn = torch.searchsorted(mass, (uniform * mass[:, -1])[:, None], right=True)[:, 0]
        out.copy_(torch.where(temperature > 0, drawn.clamp(max=logits.shape[1] - 1), best))

    def score(
        self, logits: torch.Tensor, rows: torch.Tensor, ids: torch.Tensor, top_rows: torch.Tensor, top_num: int
    ) -> Scored:
        """See `SamplingOps`."""
        peak = logits.amax(1)
        log_mass = torch.exp(logits - peak[:, None]).sum(1, dtype=torch.float64).log()
        values = logits[rows, ids].double() - peak.double().index_select(0, rows) - log_mass.index_select(0, rows)
        best = torch.sort(logits.index_select(0, top_rows), dim=1, descending=True, stable=True)
        below = best.values[:, :top_num].double() - peak.double().index_select(0, top_rows)[:, None]
        return Scored(values, best.indices[:, :top_num], below - log_mass.index_select(0, top_rows)[:, None])


def _kept(
    weights: torch.Tensor, ranks: torch.Tensor, top_k: torch.Tensor, top_p: torch.Tensor, min_p: torch.Tensor
) -> torch.Tensor:
    """Which places of the order "most likely first" are kept; `weights`: in that order."""
    by_top_k = (ranks < top_k[:, None]) | (top_k <= 0)[:, None]
    mass = torch.where(by_top_k, weights, 0.0).double().cumsum(1)
    before = torch.cat([torch.zeros_like(mass[:, :1]), mass[:, :-1]], dim=1)
    by_top_p = (before < top_p[:, None] * mass[:, -1:]) | (top_p >= 1)[:, None]
    kept = by_top_k & by_top_p & (weights >= min_p[:, None])
    kept[:, 0] = True
    return kept


def _repeat(starts: torch.Tensor, total: int) -> torch.Tensor:
    """The row of each item, of rows that begin at `starts` `[n + 1]`."""
    return torch.searchsorted(starts[1:], torch.arange(total, device=starts.device, dtype=starts.dtype), right=True)
