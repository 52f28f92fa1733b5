"""What the model asks of an attention implementation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch

from sglang_lite.runtime.attention.forward_batch import ForwardBatch


@dataclass(frozen=True)
class LayerAttention:
    """What one layer's attention does beyond plain causal attention; the same at every step.

    Attributes:
        scale: factor on the scores; None: `head_dim ** -0.5`.
        window: a token sees itself and the `window - 1` tokens before it; None: all before it.
        soft_cap: scaled scores become `soft_cap * tanh(score / soft_cap)`; None: they stay.

    """

    scale: float | None = None
    window: int | None = None
    soft_cap: float | None = None


PLAIN = LayerAttention()


class AttentionBackend(Protocol):
    """Attention over a paged KV pool. One thread uses a backend at a time."""

    def plan(self, fb: ForwardBatch) -> None:
        """Prepare what all layers of this step share. Called once before the step's first `forward`."""
        ...

    def forward(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, layer: int, options: LayerAttention = PLAIN
    ) -> torch.Tensor:
        """Store the new tokens' keys and values, then attend; causal over absolute positions.

        Args:
            q: float32 [T, query heads, head_dim], rotated.
            k: float32 [T, kv_heads, head_dim], rotated.
            v: float32 [T, kv_heads, head_dim].
            layer: index of the layer in the pool, whose pages are written.
            options: what this layer does differently.

        Returns:
            float32 [T, query heads, head_dim]. A row's values do not depend on which other rows are in the batch.

        """
        ...
