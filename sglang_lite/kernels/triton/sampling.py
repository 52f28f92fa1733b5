"""Draw one token a row, on a GPU: Triton. Oracle: `kernels/reference/sampling.py`; knows no grammar and no request.

Rows are split at fixed places, so that a row alone uses many programs, and nothing depends on the other rows:

1. `stats`: the best token of each split.
2. `count`: each split's weight, and how many of its logits lie how far below the row's best (in steps of 1 / 8 of the
   exponent): a histogram.
3. `cut`: from the histogram, how far down top-k, top-p or min-p can reach at most.
4. `gather`: these candidates, in the order of their ids, where they are few.
5. `draw`: the exact cut among them (or, where the row is flat, in the whole row), then the inverse CDF over ids.

Weights are float32, sums float64, as in the reference. The two can differ where a sum meets a bound or the drawn number
to about 1e-7 of it, as `exp` differs in its last place.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from sglang_lite.kernels.triton.compile_case import CompileCase
from sglang_lite.kernels.triton.sampling_search import kept_weights, search

MIN_TEMPERATURE = 1e-6
"""Below it, the most likely token is taken."""

NO_TOKEN = -1
"""Drawn where all logits are minus infinity."""

DAMAGED = -2
"""Drawn where a logit is NaN or infinite."""

SPLIT = 4096
BINS = 256
CANDIDATES = 4096
TILE = 2048
_FAR = tl.constexpr(2**31 - 1)
_HOTTEST = tl.constexpr(1e30)  # so that a quotient of float32 numbers is never inf / inf
_BINS_PER_NAT = tl.constexpr(8.0)
_SLACK = tl.constexpr(1e-4)  # far above the rounding of bins and weights


@triton.jit
def stats_kernel(logits, peaks, best, stride, vocab, splits, SPLIT: tl.constexpr):
    """Program (i, j): the largest logit of split j of row i and the lowest id that has it, NO_TOKEN or DAMAGED."""
    row = tl.program_id(0).to(tl.int64)
    places = tl.program_id(1) * SPLIT + tl.arange(0, SPLIT)
    values = tl.load(logits + row * stride + places, mask=places < vocab, other=float("-inf"))
    is_damaged = (values != values) | (values == float("inf"))
    peak = tl.max(tl.where(is_damaged, float("-inf"), values))
    token = tl.min(tl.where((values == peak) & (values > float("-inf")), places, _FAR))
    token = tl.where(token == _FAR, -1, token)
    token = tl.where(tl.sum(is_damaged.to(tl.int32)) > 0, -2, token)  # pyright: ignore[reportOperatorIssue] - a reduction gives a tensor
    tl.store(peaks + row * splits + tl.program_id(1), peak)
    tl.store(best + row * splits + tl.program_id(1), token)


@triton.jit
def best_of_row(peaks, best, row, splits, SPLITS: tl.constexpr):
    """The row's largest logit and its lowest id, NO_TOKEN or DAMAGED."""
    places = tl.arange(0, SPLITS)
    tops = tl.load(peaks + row * splits + places, mask=places < splits, other=float("-inf"))
    tokens = tl.load(best + row * splits + places, mask=places < splits, other=-1)
    peak = tl.max(tops)
    token = tl.min(tl.where((tops == peak) & (tokens >= 0), tokens, _FAR))
    token = tl.where(token == _FAR, -1, token)
    return peak, tl.where(tl.min(tokens) == -2, -2, token)


@triton.jit
def greedy_kernel(peaks, best, out, splits, SPLITS: tl.constexpr):
    """Program i writes the best token of row i."""
    row = tl.program_id(0).to(tl.int64)
    _, token = best_of_row(peaks, best, row, splits, SPLITS)
    tl.store(out + row, token.to(tl.int64))


@triton.jit
def bins_of(values, peak, temperature, BINS: tl.constexpr):
    """How far below the peak, rising as the logits fall (each step is rounded correctly); the last bin is all the rest."""
    steps = (peak - values) * (_BINS_PER_NAT / temperature)
    return tl.minimum(steps, BINS - 1.0).to(tl.int32)


@triton.jit
def count_kernel(
    logits, temperature, peaks, best, counts, masses, stride, vocab, splits,
    SPLIT: tl.constexpr, BINS: tl.constexpr, SPLITS: tl.constexpr,
):  # fmt: skip
    """Program (i, j): the histogram and the weight of split j of row i; nothing where nothing is drawn."""
    row = tl.program_id(0).to(tl.int64)
    heat = tl.minimum(tl.load(temperature + row), _HOTTEST)
    peak, token = best_of_row(peaks, best, row, splits, SPLITS)
    if (heat >= 1e-6) & (token >= 0):
        places = tl.program_id(1) * SPLIT + tl.arange(0, SPLIT)
        values = tl.load(logits + row * stride + places, mask=places < vocab, other=float("-inf"))
        cell = row * splits + tl.program_id(1)
        tl.store(masses + cell, tl.sum(tl.exp((values - peak) / heat).to(tl.float64)))
        found = tl.histogram(bins_of(values, peak, heat, BINS), BINS)
        tl.store(counts + cell * BINS + tl.arange(0, BINS), found)


@triton.jit
def cut_kernel(
    temperature, top_k, top_p, min_p, best, counts, masses, offsets, sizes, vocab, splits,
    BINS: tl.constexpr, SPLITS: tl.constexpr, CANDIDATES: tl.constexpr,
):  # fmt: skip
    """Program i: the last bin of row i that any of the kept can lie in, and where each split's candidates go.

    `sizes[i]` becomes (last bin, number of candidates), or (-1, vocab) where the whole row has to be looked at.
    """
    row = tl.program_id(0).to(tl.int64)
    bins = tl.arange(0, BINS)
    rows = tl.arange(0, SPLITS)
    tokens = tl.load(best + row * splits + rows, mask=rows < splits, other=-1)
    last = tl.full((), -1, tl.int32)
    size = tl.zeros_like(last) + vocab
    if (tl.load(temperature + row) >= 1e-6) & (tl.min(tokens) != -2) & (tl.max(tokens) >= 0):  # pyright: ignore[reportOperatorIssue] - a reduction gives a tensor
        cells = (row * splits + rows[:, None]) * BINS + bins[None, :]
        found = tl.load(counts + cells, mask=(rows < splits)[:, None], other=0)
        per_bin = tl.sum(found, axis=0)
        share = tl.load(top_p + row).to(tl.float64)
        floor = tl.load(min_p + row).to(tl.float32)
        k = tl.load(top_k + row)
        bin_cut = tl.full((), BINS - 1, tl.int32)
        if (k > 0) & (k < vocab):
            bin_cut = tl.sum((tl.cumsum(per_bin) < k).to(tl.int32))
        elif share < 1:
            weight = tl.sum(tl.load(masses + row * splits + rows, mask=rows < splits, other=0.0))
            most = per_bin.to(tl.float64) * tl.exp(-bins.to(tl.float32) / _BINS_PER_NAT).to(tl.float64)
            behind = (tl.cumsum(most, reverse=True) - most) * (1 + _SLACK)
            bin_cut = tl.sum((behind > (1 - share) * weight).to(tl.int32))
        elif floor > 0:
            bin_cut = (tl.minimum(-tl.log(floor) * _BINS_PER_NAT, BINS - 2.0) + 1).to(tl.int32)
        chosen = tl.sum(tl.where(bins[None, :] <= bin_cut, found, 0), axis=1)
        total = tl.sum(chosen)
        if (bin_cut < BINS - 1) & (total <= CANDIDATES):
            last, size = bin_cut, total
            tl.store(offsets + row * splits + rows, tl.cumsum(chosen) - chosen, mask=rows < splits)
    tl.store(sizes + 2 * row, last)
    tl.store(sizes + 2 * row + 1, size)


@triton.jit
def gather_kernel(
    logits, temperature, peaks, best, offsets, sizes, ids, values_out, stride, vocab, splits,
    SPLIT: tl.constexpr, BINS: tl.constexpr, SPLITS: tl.constexpr, CANDIDATES: tl.constexpr,
):  # fmt: skip
    """Program (i, j): write the candidates of split j of row i to their places, ids rising."""
    row = tl.program_id(0).to(tl.int64)
    last = tl.load(sizes + 2 * row)
    if last >= 0:
        peak, _ = best_of_row(peaks, best, row, splits, SPLITS)
        heat = tl.minimum(tl.load(temperature + row), _HOTTEST)
        places = tl.program_id(1) * SPLIT + tl.arange(0, SPLIT)
        values = tl.load(logits + row * stride + places, mask=places < vocab, other=float("-inf"))
        is_candidate = bins_of(values, peak, heat, BINS) <= last
        offset = tl.load(offsets + row * splits + tl.program_id(1))
        target = row * CANDIDATES + offset + tl.cumsum(is_candidate.to(tl.int32)) - 1
        tl.store(ids + target, places, mask=is_candidate)
        tl.store(values_out + target, values, mask=is_candidate)


@triton.jit
def draw_kernel(
    logits, temperature, top_k, top_p, min_p, uniform, peaks, best, masses, sizes, ids, values, out,
    stride, vocab, splits,
    SPLIT: tl.constexpr, SPLITS: tl.constexpr, CANDIDATES: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Program i draws the token of row i."""
    row = tl.program_id(0).to(tl.int64)
    heat = tl.minimum(tl.load(temperature + row), _HOTTEST)
    peak, token = best_of_row(peaks, best, row, splits, SPLITS)
    if (heat >= 1e-6) & (token >= 0):
        k = tl.load(top_k + row)
        k = tl.where(k > 0, k, vocab)
        share = tl.load(top_p + row).to(tl.float64)
        floor = tl.load(min_p + row).to(tl.float32)
        number = tl.load(uniform + row).to(tl.float64)
        parts = tl.arange(0, SPLITS)
        mass = tl.load(masses + row * splits + parts, mask=parts < splits, other=0.0)
        row_mass = tl.sum(mass)
        last = tl.load(sizes + 2 * row)
        stop = tl.load(sizes + 2 * row + 1)
        base = logits + row * stride
        if last >= 0:
            base = values + row * CANDIDATES
        start = tl.zeros_like(stop)
        low = tl.full((), -(2**31), tl.int64) + 0x00800000  # the key of the lowest finite number
        high, ties, before = low, tl.zeros_like(stop), tl.zeros_like(row_mass)
        if (k >= vocab) & (share >= 1) & (floor <= 0):  # nothing is cut: go to the split at once
            target = number * row_mass
            reach = tl.cumsum(mass)
            part = tl.min(tl.where((reach > target) & (mass > 0), parts, SPLITS))
            part = tl.where(part == SPLITS, tl.max(tl.where(mass > 0, parts, 0)), part)
            before = tl.sum(tl.where(parts < part, mass, 0.0))
            start = part * SPLIT
            stop = tl.minimum(vocab, start + SPLIT)
        else:
            if (k < vocab) | (share < 1):
                low, high, ties = search(base, stop, peak, heat, k, share, row_mass, vocab, TILE)
            total = tl.zeros_like(row_mass)
            seen = tl.zeros_like(ties)
            for first in range(0, stop, TILE):
                weights, seen = kept_weights(base, first, stop, peak, heat, low, high, ties, seen, floor, TILE)
                total += tl.sum(weights.to(tl.float64))
            target = number * total
        place = tl.full((), -1, tl.int32)
        highest = tl.full((), -1, tl.int32)
        seen = tl.zeros_like(ties)
        while (start < stop) & (place < 0):
            weights, seen = kept_weights(base, start, stop, peak, heat, low, high, ties, seen, floor, TILE)
            places = start + tl.arange(0, TILE)
            wide = weights.to(tl.float64)
            highest = tl.maximum(highest, tl.max(tl.where(weights > 0, places, -1)))
            after = before + tl.sum(wide)
            if after > target:
                is_over = (before + tl.cumsum(wide) > target) & (weights > 0)
                hit = tl.min(tl.where(is_over, places, _FAR))
                place = tl.where(hit == _FAR, highest, hit)
            before = after
            start += TILE
        place = tl.where(place < 0, highest, place)
        token = place
        if last >= 0:
            token = tl.load(ids + row * CANDIDATES + place)
    tl.store(out + row, token.to(tl.int64))


def greedy(logits: torch.Tensor, out: torch.Tensor) -> None:
    """The most likely token of each row, the lowest id on ties.

    Args:
        logits: float32 [B, V], the last dimension contiguous; minus infinity: the token may not come.
        out: int64 [B], written; `NO_TOKEN` and `DAMAGED` where there is no token.

    """
    if not len(logits):
        return
    peaks, best, splits = _stats(logits)
    kernel: Any = greedy_kernel  # its launch takes options that its signature does not show
    kernel[(len(logits),)](peaks, best, out, splits, SPLITS=triton.next_power_of_2(splits))


def sample(
    logits: torch.Tensor,
    temperature: torch.Tensor,
    top_k: torch.Tensor,
    top_p: torch.Tensor,
    min_p: torch.Tensor,
    uniform: torch.Tensor,
    out: torch.Tensor,
) -> None:
    """Draw a token of each row: temperature, then top-k, then top-p, then min-p, then the inverse CDF over rising ids.

    No number is read back to the host and no shape depends on values, so it may be captured.

    Args:
        logits: float32 [B, V], the last dimension contiguous; minus infinity: the token may not come.
        temperature: float32 [B]; below `MIN_TEMPERATURE` the most likely token is taken, the lowest id on ties.
        top_k: int32 [B], 0 (or -1): all.
        top_p: float32 or float64 [B], in (0, 1].
        min_p: float32 [B], in [0, 1].
        uniform: float32 or float64 [B], in [0, 1).
        out: int64 [B], written; `NO_TOKEN` where all logits are minus infinity, `DAMAGED` where one is NaN or infinite.

    """
    rows, vocab = logits.shape
    assert top_k.dtype == torch.int32 and out.dtype == torch.int64 and temperature.dtype == torch.float32, (
        f"top_k of {top_k.dtype}, out of {out.dtype}, a temperature of {temperature.dtype}"
    )
    given = (temperature, top_k, top_p, min_p, uniform, out)
    assert all(tensor.shape == (rows,) and tensor.is_contiguous() for tensor in given), [t.shape for t in given]
    if not rows:
        return
    peaks, best, splits = _stats(logits)
    padded = triton.next_power_of_2(splits)
    device = logits.device
    counts = torch.empty(rows, splits, BINS, dtype=torch.int32, device=device)
    masses = torch.empty(rows, splits, dtype=torch.float64, device=device)
    offsets = torch.empty(rows, splits, dtype=torch.int32, device=device)
    sizes = torch.empty(rows, 2, dtype=torch.int32, device=device)
    ids = torch.empty(rows, CANDIDATES, dtype=torch.int32, device=device)
    values = torch.empty(rows, CANDIDATES, dtype=torch.float32, device=device)
    shape = (logits.stride(0), vocab, splits)
    kernel: Any = count_kernel  # its launch takes options that its signature does not show
    kernel[(rows, splits)](
        logits, temperature, peaks, best, counts, masses, *shape, SPLIT=SPLIT, BINS=BINS, SPLITS=padded, num_warps=8
    )  # fmt: skip
    kernel: Any = cut_kernel  # its launch takes options that its signature does not show
    kernel[(rows,)](
        temperature, top_k, top_p, min_p, best, counts, masses, offsets, sizes, vocab, splits,
        BINS=BINS, SPLITS=padded, CANDIDATES=CANDIDATES, num_warps=8,
    )  # fmt: skip
    kernel: Any = gather_kernel  # its launch takes options that its signature does not show
    kernel[(rows, splits)](
        logits, temperature, peaks, best, offsets, sizes, ids, values, *shape,
        SPLIT=SPLIT, BINS=BINS, SPLITS=padded, CANDIDATES=CANDIDATES, num_warps=8,
    )  # fmt: skip
    kernel: Any = draw_kernel  # its launch takes options that its signature does not show
    kernel[(rows,)](
        logits, temperature, top_k, top_p, min_p, uniform, peaks, best, masses, sizes, ids, values, out, *shape,
        SPLIT=SPLIT, SPLITS=padded, CANDIDATES=CANDIDATES, TILE=TILE, num_warps=8,
    )  # fmt: skip


def _stats(logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, int]:
    assert logits.dtype == torch.float32 and logits.stride(1) == 1, f"logits of {logits.dtype}, {logits.stride()}"
    rows, vocab = logits.shape
    splits = triton.cdiv(vocab, SPLIT)
    peaks = torch.empty(rows, splits, dtype=torch.float32, device=logits.device)
    best = torch.empty(rows, splits, dtype=torch.int32, device=logits.device)
    kernel: Any = stats_kernel  # its launch takes options that its signature does not show
    kernel[(rows, splits)](logits, peaks, best, logits.stride(0), vocab, splits, SPLIT=SPLIT, num_warps=8)
    return peaks, best, splits


_ROWS = {"temperature": "*fp32", "top_k": "*i32", "top_p": "*fp32", "min_p": "*fp32"}
_STATS = {"peaks": "*fp32", "best": "*i32"}
_SHAPE = {"stride": "i32", "vocab": "i32", "splits": "i32"}


def compile_cases() -> list[CompileCase]:
    """See `catalogue.py`."""
    constants = {"SPLIT": SPLIT, "BINS": BINS, "SPLITS": 32, "CANDIDATES": CANDIDATES, "TILE": TILE}
    logits = {"logits": "*fp32"}
    heat = {"temperature": "*fp32"}
    found = {"counts": "*i32", "masses": "*fp64"}
    signatures = {
        stats_kernel: logits | _STATS | _SHAPE,
        greedy_kernel: _STATS | {"out": "*i64", "splits": "i32"},
        count_kernel: logits | heat | _STATS | found | _SHAPE,
        cut_kernel: _ROWS
        | {"best": "*i32"}
        | found
        | {"offsets": "*i32", "sizes": "*i32", "vocab": "i32", "splits": "i32"},
        gather_kernel: logits
        | heat
        | _STATS
        | {"offsets": "*i32", "sizes": "*i32", "ids": "*i32", "values_out": "*fp32"}
        | _SHAPE,
        draw_kernel: logits
        | _ROWS
        | {"uniform": "*fp32"}
        | _STATS
        | {"masses": "*fp64", "sizes": "*i32", "ids": "*i32", "values": "*fp32", "out": "*i64"}
        | _SHAPE,
    }
    cases: list[CompileCase] = []
    for kernel, signature in signatures.items():
        own = {name: value for name, value in constants.items() if name in kernel.arg_names}
        whole = signature | dict.fromkeys(own, "constexpr")
        cases.append(CompileCase(f"sampling.{kernel.__name__}", kernel, whole, own, {"num_warps": 8}))
        wide = whole | {name: "*fp64" for name in ("top_p", "uniform") if name in whole}  # as the runner gives them
        if wide != whole:
            cases.append(CompileCase(f"sampling.{kernel.__name__}[fp64]", kernel, wide, own, {"num_warps": 8}))
    return cases
