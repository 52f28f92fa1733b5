"""What the model asks of an attention implementation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

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
            q: [T, query heads, head_dim], rotated; float32, or on GPUs the pool's type too.
            k: [T, kv_heads, head_dim], rotated; of the type of `q`.
            v: [T, kv_heads, head_dim]; of the type of `q`.
            layer: index of the layer in the pool, whose pages are written.
            options: what this layer does differently.

        Returns:
            [T, query heads, head_dim] of the type of `q`. A row's values do not depend on which other rows are in the batch.

        """
        ...


@runtime_checkable
class GraphAttention(AttentionBackend, Protocol):
    """A backend whose launches may be recorded once and replayed for other batches of the same size.

    A recorded batch is made of buffers that stay where they are: `fb.page_table`, `fb.out_slots` and the others are
    overwritten before each replay, and `fb.host` holds the numpy side of the batch that is in them.
    """

    def plan_capture(self, fb: ForwardBatch) -> None:
        """As `plan`, but the `forward`s until the next plan may be recorded.

        Args:
            fb: rows of one new token each. What is recorded holds for every batch of as many such rows, up to the
                width of its page table.

        """
        ...

    def plan_replay(self, fb: ForwardBatch) -> None:
        """Prepare a replay of what was recorded after `plan_capture` of as many rows and as wide a page table.

        Called before each replay, on the stream of the replay.

        """
        ...
