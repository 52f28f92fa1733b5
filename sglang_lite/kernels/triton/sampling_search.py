"""Where the order "most likely first" is cut, found in a row of logits without sorting it: jit functions that kernels call.

A float32 is compared as its key: a 32-bit number in the same order, so that halving an interval of keys ends after at
most 32 looks at the row, at one value. Sums of weights are float64: what order they are added in changes them by 1e-16.
"""

from __future__ import annotations

import triton
import triton.language as tl

_BY_COUNT = tl.constexpr(False)
_BY_MASS = tl.constexpr(True)


@triton.jit
def to_key(values):
    """int32 in the order of the float32 `values`; both zeros are one."""
    values = tl.where(values == 0, 0.0, values)
    bits = values.to(tl.int32, bitcast=True)
    return tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits)


@triton.jit
def measure(base, size, peak, temperature, key, TILE: tl.constexpr):
    """How many of `size` logits have a key of at least `key`, and their weight `exp((logit - peak) / temperature)`."""
    places = tl.arange(0, TILE)
    counts = tl.zeros((TILE,), tl.int32)
    masses = tl.zeros((TILE,), tl.float64)
    for start in range(0, size, TILE):
        values = tl.load(base + start + places, mask=start + places < size, other=float("-inf"))
        is_in = (values > float("-inf")) & (to_key(values) >= key)
        counts += is_in.to(tl.int32)
        masses += tl.where(is_in, tl.exp((values - peak) / temperature), 0.0).to(tl.float64)
    return tl.sum(counts), tl.sum(masses)


@triton.jit
def lowest_key(base, size, TILE: tl.constexpr):
    """The key of the lowest logit that is not minus infinity."""
    places = tl.arange(0, TILE)
    lowest = tl.full((TILE,), float("inf"), tl.float32)
    for start in range(0, size, TILE):
        values = tl.load(base + start + places, mask=start + places < size, other=float("-inf"))
        lowest = tl.minimum(lowest, tl.where(values > float("-inf"), values, float("inf")))
    return to_key(tl.min(lowest))


@triton.jit
def find_cut(
    base, size, peak, temperature, low, high, count_low, mass_low, target, BY_MASS: tl.constexpr, TILE: tl.constexpr
):
    """Narrow the keys [low, high) down to where the tokens from a key upwards first come to `target` in number or mass.

    From `low` upwards they come to it (`count_low`, `mass_low`), from `high` upwards there are none. In the end the
    logits in [low, high) are equal, or there is one.

    Returns:
        low, high, and the number and the mass from each of them upwards.

    """
    count_high = tl.zeros_like(count_low)
    mass_high = tl.zeros_like(mass_low)
    while (high - low > 1) & (count_low - count_high > 1):
        middle = low + (high - low) // 2
        count, mass = measure(base, size, peak, temperature, middle, TILE)
        is_enough = count >= target
        if BY_MASS:
            is_enough = mass >= target
        low = tl.where(is_enough, middle, low)
        count_low = tl.where(is_enough, count, count_low)
        mass_low = tl.where(is_enough, mass, mass_low)
        high = tl.where(is_enough, high, middle)
        count_high = tl.where(is_enough, count_high, count)
        mass_high = tl.where(is_enough, mass_high, mass)
    return low, high, count_low, mass_low, count_high, mass_high


@triton.jit
def tie_weight(low, peak, temperature):
    """The weight of a logit whose key is `low` (int64)."""
    key = low.to(tl.int32)
    bits = tl.where(key < 0, key ^ 0x7FFFFFFF, key)
    return tl.exp((bits.to(tl.float32, bitcast=True) - peak) / temperature)


@triton.jit
def search(base, size, peak, temperature, top_k, top_p, row_mass, vocab, TILE: tl.constexpr):
    """What top-k and then top-p keep of `size` logits.

    Args:
        base: pointer to float32.
        size: how many there are.
        peak: the largest.
        temperature: above 0.
        top_k: how many stay; `vocab`: all.
        top_p: float64, which share of what top-k left stays; 1: all.
        row_mass: float64, the weight of the whole row, of which these may be the likely part.
        vocab: length of the whole row.
        TILE: logits looked at together.

    Returns:
        low, high, ties: kept is what has a key of at least `high`, and the first `ties` with keys in [low, high).

    """
    low = lowest_key(base, size, TILE).to(tl.int64)
    high = to_key(peak).to(tl.int64) + 1
    count, mass = measure(base, size, peak, temperature, low, TILE)
    cut_low, cut_high, ties = low, low, tl.zeros_like(count)
    total = tl.where(top_k < vocab, mass, row_mass)
    if top_k < count:
        low, cut_high, count, mass, count_above, mass_above = find_cut(
            base, size, peak, temperature, low, high, count, mass, top_k, _BY_COUNT, TILE
        )
        cut_low, ties = low, top_k - count_above
        one = tie_weight(low, peak, temperature).to(tl.float64)
        total = tl.where(ties == count - count_above, mass, mass_above + ties * one)
    if top_p < 1:
        target = top_p * total
        if mass >= target:
            low, high, count, mass, count_above, mass_above = find_cut(
                base, size, peak, temperature, low, high, count, mass, target, _BY_MASS, TILE
            )
            one = tie_weight(low, peak, temperature).to(tl.float64)
            most = count - count_above
            if (cut_high > cut_low) & (low == cut_low):  # of these ties, top-k left but some
                most = tl.minimum(most, tl.maximum(ties, 1))
            wanted = tl.ceil((target - mass_above) / one)
            ties = tl.minimum(tl.maximum(wanted, 1), most.to(tl.float64)).to(tl.int32)
            ties = tl.where(count - count_above == 1, 1, ties)
            cut_low, cut_high = low, high
    return cut_low, cut_high, ties


@triton.jit
def kept_weights(base, start, stop, peak, temperature, low, high, ties, seen, min_p, TILE: tl.constexpr):
    """The weights of the logits `start ...` (below `stop`) that the cut and min-p keep, 0 for others; ties seen so far, these included."""
    places = start + tl.arange(0, TILE)
    values = tl.load(base + places, mask=places < stop, other=float("-inf"))
    keys = to_key(values).to(tl.int64)
    is_tie = (keys >= low) & (keys < high)
    rank = seen + tl.cumsum(is_tie.to(tl.int32)) - 1
    weights = tl.exp((values - peak) / temperature)
    is_kept = ((keys >= high) | (is_tie & (rank < ties))) & (weights >= min_p) & (values > float("-inf"))
    return tl.where(is_kept, weights, 0.0), seen + tl.sum(is_tie.to(tl.int32))
