"""Draws with the package flashinfer: it cuts the distributions, the random numbers are those of the requests."""

from __future__ import annotations

import torch

from sglang_lite.runtime.attention.flashinfer_library import load_flashinfer
from sglang_lite.runtime.execution.device_sampler import PenaltyTensors, SamplingOps, Scored


class FlashInferSampling:
    """`SamplingOps` whose `sample` cuts by FlashInfer's kernels; all else is done by `others`.

    FlashInfer's own draws take their numbers from a generator. Here the cut distribution is walked with the number of the
    request, so a seed gives the same tokens in any batch. Tokens as likely as the last one that top-k or top-p keeps are
    all kept, where the rules of `sampler.py` keep those with lower ids.
    """

    def __init__(self, others: SamplingOps) -> None:
        """Import the package.

        Raises:
            UnsupportedError: it is not installed or too old.

        """
        self._others = others
        self._library = load_flashinfer("sampling_backend='flashinfer'", "sampling_backend='auto'")

    def apply_masks(self, logits: torch.Tensor, bitmask: torch.Tensor) -> None:
        """See `SamplingOps`."""
        self._others.apply_masks(logits, bitmask)

    def apply_penalties(self, logits: torch.Tensor, penalties: PenaltyTensors) -> None:
        """See `SamplingOps`."""
        self._others.apply_penalties(logits, penalties)

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
        vocab = logits.shape[1]
        peak = logits.amax(1, keepdim=True)
        ids = torch.arange(vocab, device=logits.device)
        best = torch.where(logits == peak, ids, vocab - 1).amin(1)
        is_hot = temperature > 0
        weights = torch.exp((logits - peak) / torch.where(is_hot, temperature, 1.0)[:, None])
        probs = weights / weights.sum(1, keepdim=True)
        probs = self._library.top_k_renorm_probs(probs, torch.where(top_k > 0, top_k, vocab))
        probs = self._library.top_p_renorm_probs(probs, top_p.float())
        kept = torch.where(weights >= min_p[:, None], probs, 0.0)
        mass = kept.double().cumsum(1)
        drawn = torch.searchsorted(mass, (uniform.double() * mass[:, -1])[:, None], right=True)[:, 0]
        out.copy_(torch.where(is_hot, drawn.clamp(max=vocab - 1), best))

    def score(
        self, logits: torch.Tensor, rows: torch.Tensor, ids: torch.Tensor, top_rows: torch.Tensor, top_num: int
    ) -> Scored:
        """See `SamplingOps`."""
        return self._others.score(logits, rows, ids, top_rows, top_num)
