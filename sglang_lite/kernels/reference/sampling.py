"""Which tokens may be drawn and which one is drawn, by full sorts in plain numpy: the oracle of the sampler."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def kept_tokens(
    logits: NDArray[np.floating[Any]], temperature: float, top_k: int, top_p: float, min_p: float
) -> NDArray[np.intp]:
    """The ids that top-k, then top-p, then min-p leave of the distribution `softmax(logits / temperature)`.

    All three cut the order "most likely first, lower id first on ties". Top-k keeps the first `top_k`. Top-p keeps
    the shortest beginning whose share of what top-k left is at least `top_p`. Min-p keeps what is at least `min_p`
    times as likely as the most likely token. The first token of the order is always kept.

    Args:
        logits: `[V]`, finite or -inf (never kept), at least one finite.
        temperature: above 0.
        top_k: at least 1, or -1 for all.
        top_p: in (0, 1].
        min_p: in [0, 1].

    Returns:
        The kept ids, ascending.

    """
    order = np.argsort(-logits, kind="stable")
    order = order[np.isfinite(logits[order])]
    weights = np.exp((logits[order] - logits[order[0]]) / temperature)
    if top_k != -1:
        order, weights = order[:top_k], weights[:top_k]
    mass_before = np.concatenate([[0.0], np.cumsum(weights, dtype=np.float64)[:-1]])
    by_top_p = (mass_before < top_p * weights.sum(dtype=np.float64)) | (top_p >= 1)
    by_min_p = weights >= min_p
    keep = by_top_p & by_min_p
    keep[0] = True
    return np.sort(order[keep])


def draw_token(logits: NDArray[np.floating[Any]], temperature: float, kept: NDArray[np.intp], number: float) -> int:
    """The kept token at which the cumulative distribution over ascending ids first exceeds `number` in [0, 1)."""
    weights = np.exp((logits[kept] - logits[kept].max()) / temperature)
    total = 0.0
    target = number * float(weights.sum(dtype=np.float64))
    for token, weight in zip(kept.tolist(), weights.tolist(), strict=True):
        total += weight
        if total > target:
            return token
    return int(kept[np.flatnonzero(weights)[-1]])
