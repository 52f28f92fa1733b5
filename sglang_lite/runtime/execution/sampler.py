"""One token from one row of logits; a row's token depends on that row alone. Knows no batch, no model and no clock.

Order of work: penalties and bias (`penalties.py`); tokens that may not come (grammar, `min_new_tokens`) are taken out;
greedy, or temperature, then top-k, then top-p, then min-p, each over the distribution that the one before it left
(as in vLLM and transformers; top-k and top-p cut one order, most likely first and lower id first on ties).
The plain definition is `kernels/reference/sampling.py`.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from sglang_lite.errors import ExecutionError
from sglang_lite.request_tree import SamplingParams
from sglang_lite.runtime.execution.penalties import adjust_logits
from sglang_lite.runtime.execution.random_numbers import uniform
from sglang_lite.runtime.execution.ranking import top_indices
from sglang_lite.runtime.execution.token_masks import TokenMasks, bad_logits, bad_penalties, dead_end, where_drawn
from sglang_lite.runtime.scheduler.plan import SampleSpec

MIN_TEMPERATURE = 1e-6
"""Below it, sampling is greedy: a float32 distribution that sharp has one token, or ties."""
_MAX_TEMPERATURE = (
    1e30  # so that a quotient of float32 numbers is never inf / inf; the distribution is uniform long before
)
FEW_IDS = 512
"""Up to so many tokens that may come are looked at alone: their logits can be had without those of all others."""
_FIRST_K = 64
_FIRST_ROW = np.zeros(1, dtype=np.int64)
_GROWTH = 16
_FLAT = 8


class Sampler:
    """Draws tokens for a vocabulary of `vocab_size`. `eos_ids` end a text unless `min_new_tokens` are still missing."""

    def __init__(self, vocab_size: int, eos_ids: Iterable[int] = ()) -> None:
        self._vocab_size = vocab_size
        # A compiled kernel: only once its folder is named.
        from sglang_lite.kernels.cpu.token_mask import apply_token_mask, list_legal_ids

        self._apply_mask, self._list_ids = apply_token_mask, list_legal_ids
        self._masks = TokenMasks(vocab_size, eos_ids)
        self._bitmask = np.zeros((1, -(-vocab_size // 32)), dtype=np.int32)
        self._ids = np.zeros(FEW_IDS, dtype=np.int64)

    def sample(self, logits: NDArray[np.float32], spec: SampleSpec, rid: str) -> int:
        """The next token id.

        Args:
            logits: float32 `[V]`, not changed.
            spec: how to draw; its grammar is asked for its mask and not advanced.
            rid: the request, for messages.

        Raises:
            DeadEndError: no token may follow.
            ExecutionError: NaN or infinite logits, or a token id outside the vocabulary in the request.

        """
        where = where_drawn(spec, rid)
        _check_finite(logits, where)
        values = _adjusted(logits, spec, where)
        if not self._masks.fill(spec, self._bitmask, 0, where):
            return _choose(values, spec, where)
        if (ids := self._few_ids(spec, where)) is not None:
            return int(ids[_choose(values[ids], spec, where)])
        masked = values.copy() if values is logits else values
        self._apply_mask(masked.reshape(1, -1), self._bitmask, _FIRST_ROW)
        return _choose(masked, spec, where)

    def few_ids(self, spec: SampleSpec, rid: str) -> NDArray[np.int64] | None:
        """The ids that may come, ascending, where a grammar leaves `FEW_IDS` or fewer: `sample_among` needs their logits only.

        None where it does not, and where there is an error, which `sample` raises.
        """
        if spec.grammar is None:
            return None
        where = where_drawn(spec, rid)
        try:
            self._masks.fill(spec, self._bitmask, 0, where)
            return self._few_ids(spec, where)
        except ExecutionError:
            return None

    def sample_among(self, logits: NDArray[np.float32], ids: NDArray[np.int64], spec: SampleSpec, rid: str) -> int:
        """As `sample` where `few_ids` gave `ids`; `logits` are theirs, float32 `[len(ids)]`. Raises ExecutionError as there."""
        where = where_drawn(spec, rid)
        _check_finite(logits, where)
        whole = np.zeros(self._vocab_size, dtype=np.float32)
        whole[ids] = logits
        return int(ids[_choose(_adjusted(whole, spec, where)[ids], spec, where)])

    def _few_ids(self, spec: SampleSpec, where: str) -> NDArray[np.int64] | None:
        """The ids of the mask; None: there are many."""
        count = self._list_ids(self._bitmask[0], self._vocab_size, self._ids)
        if not count:
            raise dead_end(spec.params, where)
        return self._ids[:count].copy() if count <= FEW_IDS else None


def draw(logits: NDArray[np.float32], params: SamplingParams, number: float, *, first_k: int = _FIRST_K) -> int:
    """The index that `number` in [0, 1) selects: inverse CDF over the kept indices in ascending order.

    Weights are float32, sums float64. `first_k`: where the search for the top-p set begins.

    Args:
        logits: float32 `[n]`, finite, at least one.
        params: temperature (above 0), top_k, top_p, min_p.
        number: the random number.
        first_k: at least 1; changes speed only.

    """
    weights = _weights(logits, params)
    kept = keep_indices(logits, weights, params, first_k=first_k)
    if kept is not None:
        weights = weights[kept]
    cumulative = np.cumsum(weights, dtype=np.float64)
    chosen = int(np.searchsorted(cumulative, number * cumulative[-1], side="right"))
    return chosen if kept is None else int(kept[chosen])


def keep_indices(
    logits: NDArray[np.float32], weights: NDArray[np.float32], params: SamplingParams, *, first_k: int = _FIRST_K
) -> NDArray[np.intp] | None:
    """What top-k, top-p and min-p keep, ascending; None for all.

    Without top-k, the top-p set is found by looking at the `first_k` most likely, then at 16 times as many, until they
    hold the mass: exact. Where the distribution is so flat that this comes to an eighth of all, the values (not the
    indices, which is several times dearer) are sorted once.

    Args:
        logits: float32 `[n]`, fixes the order.
        weights: float32 `[n]`, proportional to the probabilities, 1 at the most likely.
        params: top_k, top_p, min_p.
        first_k: at least 1.

    """
    n = len(logits)
    has_top_k, has_top_p = 0 < params.top_k < n, params.top_p < 1
    if not has_top_k and not has_top_p:
        return np.flatnonzero(weights >= params.min_p) if params.min_p > 0 else None
    if has_top_k:
        order = top_indices(logits, params.top_k)
        if has_top_p:
            order = order[: _mass_end(weights[order], params.top_p, weights[order].sum(dtype=np.float64))]
    else:
        order = _top_p_indices(logits, weights, params, first_k)
    return np.sort(order[weights[order] >= params.min_p])


def _top_p_indices(
    logits: NDArray[np.float32], weights: NDArray[np.float32], params: SamplingParams, first_k: int
) -> NDArray[np.intp]:
    """The shortest beginning of the order that holds `top_p` of all the weight, in any sequence."""
    total, k = weights.sum(dtype=np.float64), first_k
    while k * _FLAT <= len(logits):
        order = top_indices(logits, k)
        end = _mass_end(weights[order], params.top_p, total)
        if end <= k:
            return order[:end]
        k *= _GROWTH
    values = np.sort(logits)[::-1]
    end = min(_mass_end(_weights(values, params), params.top_p, total), len(logits))
    above = np.flatnonzero(logits > values[end - 1])
    ties = np.flatnonzero(logits == values[end - 1])[: end - len(above)]
    return np.concatenate([above, ties])


def _weights(logits: NDArray[np.float32], params: SamplingParams) -> NDArray[np.float32]:
    temperature = np.float32(min(params.temperature, _MAX_TEMPERATURE))
    return np.exp((logits - logits.max()) / temperature)


def _mass_end(ordered: NDArray[np.float32], share: float, total: float) -> int:
    """How many from the first on it takes to hold `share` of `total`; one more than there are where they do not."""
    return int(np.searchsorted(np.cumsum(ordered, dtype=np.float64), share * total, side="left")) + 1


def _choose(values: NDArray[np.float32], spec: SampleSpec, where: str) -> int:
    """The index of the token that comes; minus infinity: it may not."""
    with np.errstate(over="ignore", under="ignore"):
        best = int(values.argmax())
        if not np.isfinite(values[best]):
            raise bad_penalties(where)
        if spec.params.is_greedy or spec.params.temperature < MIN_TEMPERATURE:
            return best
        return draw(values, spec.params, uniform(spec.seed, spec.position))


def _adjusted(logits: NDArray[np.float32], spec: SampleSpec, where: str) -> NDArray[np.float32]:
    with np.errstate(over="ignore", under="ignore"):
        try:
            return adjust_logits(logits, spec)
        except ExecutionError as error:
            raise ExecutionError(f"{where}: {error}") from error


def _check_finite(logits: NDArray[np.float32], where: str) -> None:
    if not np.isfinite(logits).all():
        raise bad_logits(where)
