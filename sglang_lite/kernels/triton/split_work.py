"""A plan of split attention as tensors that kernels read. Knows no attention; its buffers keep their addresses."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from sglang_lite.kernels.triton.split_plan import ITEM_FIELDS, SplitPlan

_ALIGN = 4
"""Numbers of 16 bytes: every part begins on them, so that the kernels are compiled for one alignment."""


class SplitWork:
    """Room for `queries` queries and `max_items` work items; `fill` overwrites it in place.

    Attributes:
        queries: Q.
        splits: pieces of a query that the partial results have room for.
        max_items: items that there is room for.
        num_items: int32 [1], the items that there are.
        tokens, limits, pieces: int32 [Q], as in `SplitPlan`.
        items: int32 [max_items, ITEM_FIELDS].
        sums: float32 [Q, splits, heads, head_dim], partial weighted values.
        tops: float32 [Q, splits, heads], partial largest exponents.
        totals: float32 [Q, splits, heads], partial sums of weights.

    """

    def __init__(
        self,
        queries: int,
        max_items: int,
        splits: int,
        heads: int,
        head_dim: int,
        device: torch.device,
        partials: torch.Tensor | None = None,
    ) -> None:
        """Allocate; partial results go into `partials` (float32, of `partial_floats` or more) where given."""
        self.queries = queries
        self.splits = splits
        self.max_items = max_items
        room = _aligned(queries)
        self._items_at = _ALIGN + 3 * room
        self._numbers = torch.zeros(self._items_at + max_items * ITEM_FIELDS, dtype=torch.int32, device=device)
        self.num_items = self._numbers[:1]
        starts = [_ALIGN + i * room for i in range(3)]
        self.tokens, self.limits, self.pieces = (self._numbers[start : start + queries] for start in starts)
        self.items = self._numbers[self._items_at :].view(max_items, ITEM_FIELDS)
        cells = queries * splits * heads
        floats = self.partial_floats(queries, splits, heads, head_dim)
        if partials is None:
            partials = torch.empty(floats, dtype=torch.float32, device=device)
        assert len(partials) >= floats, f"room for {len(partials)} floats of partial results, {floats} are needed"
        self.sums, self.tops, self.totals = partials[:floats].split((cells * head_dim, cells, cells))

    @staticmethod
    def partial_floats(queries: int, splits: int, heads: int, head_dim: int) -> int:
        """Float32 numbers of partial results."""
        return queries * splits * heads * (head_dim + 2)

    @staticmethod
    def of(plan: SplitPlan, heads: int, head_dim: int, device: torch.device) -> SplitWork:
        """Exactly the room that `plan` needs, filled."""
        work = SplitWork(len(plan.tokens), len(plan.items), plan.splits, heads, head_dim, device)
        work.fill(plan)
        return work

    @torch.inference_mode()  # the buffers may have been made in that mode, and then are written in it only
    def fill(self, plan: SplitPlan) -> None:
        """Overwrite with `plan`, which has as many queries, and items and pieces that there is room for."""
        count = len(plan.items)
        assert len(plan.tokens) == self.queries and count <= self.max_items and plan.splits <= self.splits, (
            f"{len(plan.tokens)} queries, {count} items, {plan.splits} pieces; "
            f"there is room for {self.queries}, {self.max_items}, {self.splits}"
        )
        used = self._items_at + count * ITEM_FIELDS
        staged = _staging(used, self._numbers.device)
        numbers = staged.numpy()
        numbers[0] = count
        room = _aligned(self.queries)
        for i, part in enumerate((plan.tokens, plan.limits, plan.pieces)):
            numbers[_ALIGN + i * room :][: self.queries] = part
        numbers[self._items_at :] = plan.items.reshape(-1)
        self._numbers[:used].copy_(staged, non_blocking=True)


def to_device(numbers: NDArray[np.int32], device: torch.device) -> torch.Tensor:
    """A copy on the device, which the host does not wait for."""
    staged = _staging(numbers.size, device)
    staged.numpy()[:] = numbers.reshape(-1)
    return staged.to(device, non_blocking=True).view(numbers.shape)


def _staging(count: int, device: torch.device) -> torch.Tensor:
    """Room in main memory; for a GPU pinned, of torch's cache, which hands it out again only once its copies are through."""
    return torch.empty(count, dtype=torch.int32, pin_memory=device.type == "cuda")


def _aligned(count: int) -> int:
    return -(-count // _ALIGN) * _ALIGN
