"""Log-probabilities of given tokens and of the most likely ones, on a GPU: Triton. Oracle: `kernels/reference/logprobs.py`.

Rows are split at fixed places. Weights are float32, sums and logarithms float64, as on the host.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

from sglang_lite.kernels.triton.compile_case import CompileCase

SPLIT = 4096
MAX_TOP = 64
"""Most likely tokens that a row may be asked for; each takes one more look at the row."""

_FAR = tl.constexpr(2**31 - 1)


class Logprobs(NamedTuple):
    """What `logprobs` gives: `values` float64 [N]; `top_ids` int64 and `top_values` float64, [M, top_num], best first."""

    values: torch.Tensor
    top_ids: torch.Tensor
    top_values: torch.Tensor


@triton.jit
def parts_kernel(logits, peaks, masses, stride, vocab, splits, SPLIT: tl.constexpr):
    """Program (i, j): the largest logit of split j of row i, and the sum of `exp(logit - largest)`."""
    row = tl.program_id(0).to(tl.int64)
    places = tl.program_id(1) * SPLIT + tl.arange(0, SPLIT)
    values = tl.load(logits + row * stride + places, mask=places < vocab, other=float("-inf"))
    peak = tl.max(values)
    shift = tl.where(peak == float("-inf"), 0.0, peak)
    tl.store(peaks + row * splits + tl.program_id(1), peak)
    tl.store(masses + row * splits + tl.program_id(1), tl.sum(tl.exp(values - shift).to(tl.float64)))


@triton.jit
def norms_kernel(peaks, masses, norms, splits, SPLITS: tl.constexpr):
    """Program i: the largest logit of row i, and the logarithm of the sum of `exp(logit - largest)`."""
    row = tl.program_id(0).to(tl.int64)
    places = tl.arange(0, SPLITS)
    tops = tl.load(peaks + row * splits + places, mask=places < splits, other=float("-inf"))
    parts = tl.load(masses + row * splits + places, mask=places < splits, other=0.0)
    peak = tl.max(tops)
    mass = tl.sum(parts * tl.exp((tops - peak).to(tl.float64)))
    tl.store(norms + 2 * row, peak.to(tl.float64))  # pyright: ignore[reportAttributeAccessIssue] - a reduction gives a tensor
    tl.store(norms + 2 * row + 1, tl.log(mass))


@triton.jit
def values_kernel(logits, norms, rows, ids, values, stride, num, BLOCK: tl.constexpr):
    """Program i: the log-probabilities of the pairs (row, id) `BLOCK * i ...`."""
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = places < num
    row = tl.load(rows + places, mask=inside, other=0)
    logit = tl.load(logits + row * stride + tl.load(ids + places, mask=inside, other=0), mask=inside, other=0)
    below = logit.to(tl.float64) - tl.load(norms + 2 * row, mask=inside, other=0)
    tl.store(values + places, below - tl.load(norms + 2 * row + 1, mask=inside, other=0), mask=inside)


@triton.jit
def top_parts_kernel(logits, rows, found_ids, found, stride, vocab, splits, top_num, SPLIT: tl.constexpr):
    """Program (i, j): the `top_num` largest logits of split j of row `rows[i]`, lower ids first on ties."""
    row = tl.load(rows + tl.program_id(0))
    places = tl.program_id(1) * SPLIT + tl.arange(0, SPLIT)
    values = tl.load(logits + row * stride + places, mask=places < vocab, other=float("-inf"))
    is_left = places < vocab
    cell = (tl.program_id(0).to(tl.int64) * splits + tl.program_id(1)) * top_num
    for rank in range(top_num):
        peak = tl.max(tl.where(is_left, values, float("-inf")))
        token = tl.min(tl.where(is_left & (values == peak), places, _FAR))
        tl.store(found_ids + cell + rank, token)
        tl.store(found + cell + rank, peak)
        is_left = is_left & (places != token)


@triton.jit
def top_kernel(rows, norms, found_ids, found, top_ids, top_values, num_found, top_num, FOUND: tl.constexpr):
    """Program i: the `top_num` best of what the splits of `rows[i]` gave (a split without so many gave the id _FAR)."""
    item = tl.program_id(0).to(tl.int64)
    row = tl.load(rows + item)
    most, log_mass = tl.load(norms + 2 * row), tl.load(norms + 2 * row + 1)
    places = tl.arange(0, FOUND)
    ids = tl.load(found_ids + item * num_found + places, mask=places < num_found, other=_FAR)
    values = tl.load(found + item * num_found + places, mask=places < num_found, other=float("-inf"))
    is_left = ids != _FAR
    for rank in range(top_num):
        peak = tl.max(tl.where(is_left, values, float("-inf")))
        token = tl.min(tl.where(is_left & (values == peak), ids, _FAR))
        tl.store(top_ids + item * top_num + rank, token.to(tl.int64))  # pyright: ignore[reportAttributeAccessIssue] - a reduction gives a tensor
        tl.store(top_values + item * top_num + rank, peak.to(tl.float64) - most - log_mass)  # pyright: ignore[reportAttributeAccessIssue] - a reduction gives a tensor
        is_left = is_left & (ids != token)


def logprobs(
    logits: torch.Tensor, rows: torch.Tensor, ids: torch.Tensor, top_rows: torch.Tensor, top_num: int
) -> Logprobs:
    """`log_softmax` at given places, and at the largest ones.

    Args:
        logits: float32 [B, V], the last dimension contiguous; finite, or minus infinity.
        rows: int64 [N].
        ids: int64 [N], `ids[i]` of row `rows[i]` is asked for.
        top_rows: int64 [M], the rows whose most likely tokens are asked for.
        top_num: how many, at most V and `MAX_TOP`; lower ids first on ties.

    """
    assert rows.dtype == ids.dtype == top_rows.dtype == torch.int64 and rows.shape == ids.shape, (
        f"rows {tuple(rows.shape)} of {rows.dtype}, ids {tuple(ids.shape)} of {ids.dtype}"
    )
    count, vocab = logits.shape
    assert top_num <= min(vocab, MAX_TOP), f"{top_num} most likely tokens, at most {min(vocab, MAX_TOP)}"
    device, splits = logits.device, triton.cdiv(vocab, SPLIT)
    given = Logprobs(
        torch.empty(len(rows), dtype=torch.float64, device=device),
        torch.empty(len(top_rows), top_num, dtype=torch.int64, device=device),
        torch.empty(len(top_rows), top_num, dtype=torch.float64, device=device),
    )
    if not count:
        return given
    assert logits.dtype == torch.float32 and logits.stride(1) == 1, f"logits of {logits.dtype}, {logits.stride()}"
    peaks = torch.empty(count, splits, dtype=torch.float32, device=device)
    masses = torch.empty(count, splits, dtype=torch.float64, device=device)
    norms = torch.empty(count, 2, dtype=torch.float64, device=device)
    padded, stride = triton.next_power_of_2(splits), logits.stride(0)
    kernel: Any = parts_kernel  # its launch takes options that its signature does not show
    kernel[(count, splits)](logits, peaks, masses, stride, vocab, splits, SPLIT=SPLIT, num_warps=8)
    kernel: Any = norms_kernel  # its launch takes options that its signature does not show
    kernel[(count,)](peaks, masses, norms, splits, SPLITS=padded)
    if len(rows):
        kernel: Any = values_kernel  # its launch takes options that its signature does not show
        kernel[(triton.cdiv(len(rows), 128),)](logits, norms, rows, ids, given.values, stride, len(rows), BLOCK=128)
    if given.top_ids.numel():
        found_ids = torch.empty(len(top_rows), splits * top_num, dtype=torch.int32, device=device)
        found = torch.empty(len(top_rows), splits * top_num, dtype=torch.float32, device=device)
        kernel: Any = top_parts_kernel  # its launch takes options that its signature does not show
        kernel[(len(top_rows), splits)](
            logits, top_rows, found_ids, found, stride, vocab, splits, top_num, SPLIT=SPLIT, num_warps=8
        )
        kernel: Any = top_kernel  # its launch takes options that its signature does not show
        kernel[(len(top_rows),)](
            top_rows, norms, found_ids, found, given.top_ids, given.top_values, splits * top_num, top_num,
            FOUND=triton.next_power_of_2(splits * top_num),
        )  # fmt: skip
    return given


def compile_cases() -> list[CompileCase]:
    """See `catalogue.py`."""
    logits = {"logits": "*fp32"}
    parts = {"peaks": "*fp32", "masses": "*fp64"}
    shape = {"stride": "i32", "vocab": "i32", "splits": "i32"}
    pairs = {"rows": "*i64", "ids": "*i64", "values": "*fp64", "stride": "i32", "num": "i32", "BLOCK": "constexpr"}
    found = {"found_ids": "*i32", "found": "*fp32"}
    split = {"SPLIT": "constexpr"}
    cases = [
        CompileCase("logprobs.parts_kernel", parts_kernel, logits | parts | shape | split, {"SPLIT": SPLIT}),
        CompileCase(
            "logprobs.norms_kernel",
            norms_kernel,
            parts | {"norms": "*fp64", "splits": "i32", "SPLITS": "constexpr"},
            {"SPLITS": 32},
        ),
        CompileCase("logprobs.values_kernel", values_kernel, logits | {"norms": "*fp64"} | pairs, {"BLOCK": 128}),
        CompileCase(
            "logprobs.top_parts_kernel",
            top_parts_kernel,
            logits | {"rows": "*i64"} | found | shape | {"top_num": "i32"} | split,
            {"SPLIT": SPLIT},
        ),
    ]
    result = {"top_ids": "*i64", "top_values": "*fp64", "num_found": "i32", "top_num": "i32", "FOUND": "constexpr"}
    cases.append(
        CompileCase(
            "logprobs.top_kernel",
            top_kernel,
            {"rows": "*i64", "norms": "*fp64"} | found | result,
            {"FOUND": 1024},
        )
    )
    return cases
