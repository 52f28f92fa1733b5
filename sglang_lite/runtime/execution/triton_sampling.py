"""Masks, penalties, draws and log-probabilities over rows of logits by the kernels for GPUs; imported where a GPU is."""

from __future__ import annotations

import torch

from sglang_lite.kernels.triton import logprobs, sampling, token_mask
from sglang_lite.kernels.triton import penalties as penalty_kernels
from sglang_lite.runtime.execution.device_sampler import PenaltyTensors, Scored
from sglang_lite.runtime.execution.torch_sampling import TorchSampling


class TritonSampling:
    """`SamplingOps` by kernels; the same tokens as torch, but where a sum meets a bound to about 1e-7 of it."""

    def apply_masks(self, logits: torch.Tensor, bitmask: torch.Tensor) -> None:
        """See `SamplingOps`."""
        rows = torch.arange(len(bitmask), device=logits.device)
        token_mask.apply_token_mask(logits[: len(bitmask)], bitmask, rows)

    def apply_penalties(self, logits: torch.Tensor, penalties: PenaltyTensors) -> None:
        """See `SamplingOps`."""
        p = penalties
        penalty_kernels.apply(logits, p.rows, p.starts, p.ids, p.counts, p.repetition, p.frequency, p.presence)
        penalty_kernels.add_bias(logits, p.rows, p.bias_starts, p.bias_ids, p.biases)

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
        sampling.sample(logits, temperature, top_k, top_p, min_p, uniform, out)

    def score(
        self, logits: torch.Tensor, rows: torch.Tensor, ids: torch.Tensor, top_rows: torch.Tensor, top_num: int
    ) -> Scored:
        """See `SamplingOps`; more most likely tokens than the kernel finds are found by a sort."""
        if top_num > logprobs.MAX_TOP:
            return TorchSampling().score(logits, rows, ids, top_rows, top_num)
        return Scored(*logprobs.logprobs(logits, rows, ids, top_rows, top_num))
