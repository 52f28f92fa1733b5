"""What the model asks of an attention implementation."""

from __future__ import annotations

from typing import Protocol

import torch

from sglang_lite.runtime.attention.forward_batch import ForwardBatch


class AttentionBackend(Protocol):
    """Attention over a paged KV pool. One thread uses a backend at a time."""

    def plan(self, fb: ForwardBatch) -> None:
        """Prepare what all layers of this step share. Called once before the step's first `forward`."""
        ...

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, layer: int) -> torch.Tensor:
        """Store the new tokens' keys and values, then attend; causal over absolute positions.

        Args:
            q: float32 [T, query heads, head_dim], rotated.
            k: float32 [T, kv_heads, head_dim], rotated.
            v: float32 [T, kv_heads, head_dim].
            layer: index of the layer in the pool, whose pages are written.

        Returns:
            float32 [T, query heads, head_dim]. A row's values do not depend on which other rows are in the batch.

        """
        ...
