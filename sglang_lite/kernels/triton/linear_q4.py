"""Products with 4-bit matrices, on a GPU: Triton. Activations stay 16 or 32 bits. Oracle: `kernels/reference/linear_q4.py`.

256 inputs of a row are 32 words: word j holds, four bits each, inputs j, j + 32, ... j + 224, one of each group of 32.
So a thread that loads neighbouring words has neighbouring inputs, which share the group's scale and least value.
Four bits become the mantissa of a number in [1, 2) by a shift and a mask, and a weight by one multiply-add: nothing is
converted from integers, which GPUs do slowly.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
import triton
import triton.language as tl
from numpy.typing import NDArray

from sglang_lite.kernels.triton.compile_case import CompileCase

GROUP = 32
CHUNK = 8 * GROUP
"""Inputs of 32 words."""

_SLAB_ROWS = 8192
"""Rows of a matrix that are unpacked at a time for a long batch."""

_FLOATS = {"Q4_0": 1, "Q4_1": 2}


class Tile(NamedTuple):
    """How the tiled kernel is launched: rows of x and outputs of a program, warps, stages of the pipeline."""

    rows: int
    outputs: int
    num_warps: int
    num_stages: int


TILES: dict[int, tuple[Tile, ...]] = {
    16: (Tile(16, 64, 4, 3), Tile(16, 32, 2, 3)),
    64: (Tile(64, 64, 4, 2), Tile(32, 64, 4, 2)),
    256: (Tile(128, 128, 8, 2), Tile(64, 128, 4, 2)),
}
"""By the most rows of a batch: the tile taken, and others that `tune` may find faster. All add inputs in one order."""

FIXED_TILE = Tile(64, 64, 4, 2)
"""With `deterministic`, for any batch."""

FLOAT32_TILE = Tile(32, 64, 4, 2)
"""For float32, which takes twice the shared memory and three products for one, for any batch."""

_tuned: dict[tuple[object, ...], Tile] = {}


@dataclass(frozen=True)
class PackedQ4:
    """A matrix [out_features, in_features] on a device.

    Attributes:
        words: int32 [out_features, chunks, 32], see the module.
        factors: int32 [out_features, chunks, 8]: of each group, the scale (low half) and the least value as float16.
        out_features: N.
        in_features: K, a multiple of 32; what fills up the last chunk is 0.

    """

    words: torch.Tensor
    factors: torch.Tensor
    out_features: int
    in_features: int


def pack_q4(raw: NDArray[np.uint8], kind: str, device: torch.device | str) -> PackedQ4:
    """Rearrange a matrix on its device; its values stay as they are.

    Args:
        raw: uint8 [N, K / 32 * bytes of a group], as GGUF stores `kind`.
        kind: "Q4_0" or "Q4_1"; `d (q - 8)` is `d q + m` with `m = -8 d`, exact in float16.
        device: where the result lies.

    """
    rows = torch.from_numpy(raw if raw.flags.writeable else raw.copy()).to(device)
    head = 2 * _FLOATS[kind]
    groups = rows.view(len(rows), -1, head + GROUP // 2)
    num_groups = groups.shape[1]
    chunks = -(-num_groups // 8)
    scales = groups[..., :head].contiguous().view(torch.float16)
    factors = torch.zeros(len(rows), 8 * chunks, 2, dtype=torch.float16, device=rows.device)
    factors[:, :num_groups, :1] = scales[..., :1]
    factors[:, :num_groups, 1:] = scales[..., 1:] if kind == "Q4_1" else scales * -8
    quants = torch.zeros(len(rows), 8 * chunks, GROUP, dtype=torch.uint8, device=rows.device)
    quants[:, :num_groups, : GROUP // 2] = groups[..., head:] & 15
    quants[:, :num_groups, GROUP // 2 :] = groups[..., head:] >> 4
    eighths = quants.view(len(rows), chunks, 8, GROUP)
    words = torch.zeros(len(rows), chunks, GROUP, dtype=torch.int32, device=rows.device)
    for i in range(8):
        words |= eighths[:, :, i].to(torch.int32) << 4 * i
    packed = factors.view(torch.int32).view(len(rows), chunks, 8)
    return PackedQ4(words, packed, len(rows), num_groups * GROUP)


@triton.jit
def unpack(words, factors, GROUP: tl.constexpr):
    """The weights that group GROUP of a chunk has in `words`, float32: scale * q + least, rounded once."""
    bits = words << (19 - 4 * GROUP) if GROUP <= 4 else words >> (4 * GROUP - 19)
    mantissa = ((bits & 0x780000) | 0x3F800000).to(tl.float32, bitcast=True)  # 1 + q / 16
    scale = (factors & 0xFFFF).to(tl.int16).to(tl.float16, bitcast=True).to(tl.float32) * 16
    least = (factors >> 16).to(tl.int16).to(tl.float16, bitcast=True).to(tl.float32)
    return mantissa * scale + (least - scale)


@triton.jit
def q4_row_kernel(
    x,  # [K]
    words,  # int32 [N, chunks, 32]
    factors,  # int32 [N, chunks, 8]
    out,  # [N]
    outputs,
    inputs,
    chunks,
    OUTPUTS: tl.constexpr,
    CHUNKS: tl.constexpr,
):
    """One row of x: program i computes `OUTPUTS` outputs, each in float32 without rounding a weight."""
    n = tl.program_id(0).to(tl.int64) * OUTPUTS + tl.arange(0, OUTPUTS)[:, None, None]
    places = tl.arange(0, 32)[None, None, :]
    total = tl.zeros((OUTPUTS, CHUNKS, 32), tl.float32)
    for first in range(0, chunks, CHUNKS):
        chunk = first + tl.arange(0, CHUNKS)[None, :, None]
        inside = (n < outputs) & (chunk < chunks)
        cell = n * chunks + chunk
        packed = tl.load(words + cell * 32 + places, mask=inside, other=0)
        for i in tl.static_range(8):  # pyright: ignore[reportGeneralTypeIssues] - unrolled, not iterated
            k = chunk * 256 + i * 32 + places
            weight = unpack(packed, tl.load(factors + cell * 8 + i, mask=inside, other=0), i)
            total += weight * tl.load(x + k, mask=k < inputs, other=0).to(tl.float32)
    sums = tl.sum(tl.sum(total, axis=2), axis=1)
    n = tl.program_id(0).to(tl.int64) * OUTPUTS + tl.arange(0, OUTPUTS)
    tl.store(out + n, sums, mask=n < outputs)


@triton.jit
def q4_tiles_kernel(
    x,  # [M, K]
    words,  # int32 [N, chunks, 32]
    factors,  # int32 [N, chunks, 8]
    out,  # [M, N]
    x_stride,
    rows,
    outputs,
    inputs,
    chunks,
    ROWS: tl.constexpr,
    OUTPUTS: tl.constexpr,
    WIDEN: tl.constexpr,
):
    """Program (i, j) computes a tile: weights are rounded to the type of x, sums are float32 over rising inputs.

    WIDEN: multiply as float32; Triton's interpreter takes bfloat16 for whole numbers there.
    """
    m = tl.program_id(1).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    n = tl.program_id(0).to(tl.int64) * OUTPUTS + tl.arange(0, OUTPUTS)
    places = tl.arange(0, 32)
    total = tl.zeros((ROWS, OUTPUTS), tl.float32)
    for chunk in range(chunks):
        cell = n * chunks + chunk
        packed = tl.load(words + cell[:, None] * 32 + places[None, :], mask=(n < outputs)[:, None], other=0)
        for i in tl.static_range(8):  # pyright: ignore[reportGeneralTypeIssues] - unrolled, not iterated
            factor = tl.load(factors + cell * 8 + i, mask=n < outputs, other=0)
            weight = unpack(packed, factor[:, None], i).to(x.dtype.element_ty)
            k = chunk * 256 + i * 32 + places
            inside = (m < rows)[:, None] & (k < inputs)[None, :]
            part = tl.load(x + m[:, None] * x_stride + k[None, :], mask=inside, other=0)
            if WIDEN:
                part, weight = part.to(tl.float32), weight.to(tl.float32)
            total = tl.dot(part, tl.trans(weight), total, input_precision="tf32x3")
    tl.store(out + m[:, None] * outputs + n[None, :], total, mask=(m < rows)[:, None] & (n < outputs)[None, :])


@triton.jit
def q4_unpack_kernel(words, factors, out, inputs, chunks):
    """Program (i, j) writes chunk j of row i as numbers, out [N, K]."""
    row = tl.program_id(0).to(tl.int64)
    cell = row * chunks + tl.program_id(1)
    places = tl.arange(0, 32)
    packed = tl.load(words + cell * 32 + places)
    for i in tl.static_range(8):  # pyright: ignore[reportGeneralTypeIssues] - unrolled, not iterated
        k = tl.program_id(1) * 256 + i * 32 + places
        tl.store(out + row * inputs + k, unpack(packed, tl.load(factors + cell * 8 + i), i), mask=k < inputs)


def linear_q4(x: torch.Tensor, packed: PackedQ4, *, deterministic: bool = False) -> torch.Tensor:
    """`x @ matrix.T`: one row by a kernel of its own, up to 256 by tiles, more by unpacking the matrix part by part.

    Args:
        x: [M, K] in bfloat16, float16 or float32, the last dimension contiguous.
        packed: the matrix.
        deterministic: a row's result does not depend on how many there are: one tile size for all.

    Returns:
        [M, N] in the type of x.

    """
    rows = len(x)
    assert x.dim() == 2 and x.shape[1] == packed.in_features, f"x {tuple(x.shape)} for {packed.in_features} inputs"
    out = torch.empty(rows, packed.out_features, dtype=x.dtype, device=x.device)
    if not out.numel():
        return out
    assert x.stride(1) == 1, f"x has strides {x.stride()}"
    if deterministic:
        _multiply_tiles(x, packed, out, FLOAT32_TILE if x.dtype == torch.float32 else FIXED_TILE)
    elif rows == 1:
        _multiply_row(x, packed, out)
    elif rows <= max(TILES):
        _multiply_tiles(x, packed, out, _tuned.get(_key(x, packed), _tiles_for(x)[0]))
    else:
        for first in range(0, packed.out_features, _SLAB_ROWS):
            last = min(first + _SLAB_ROWS, packed.out_features)
            torch.mm(x, unpack_q4(packed, x.dtype, first, last).T, out=out[:, first:last])
    return out


def unpack_q4(packed: PackedQ4, dtype: torch.dtype, first: int = 0, last: int | None = None) -> torch.Tensor:
    """Rows `first` to `last` (None: all) of a matrix as numbers, [last - first, K]."""
    words, factors = packed.words[first:last], packed.factors[first:last]
    out = torch.empty(len(words), packed.in_features, dtype=dtype, device=words.device)
    if len(words):
        chunks = words.shape[1]
        kernel: Any = q4_unpack_kernel  # its launch takes options that its signature does not show
        kernel[(len(words), chunks)](words, factors, out, packed.in_features, chunks, num_warps=1)
    return out


def tune(x: torch.Tensor, packed: PackedQ4, measure: Callable[[Callable[[], object]], float]) -> Tile:
    """Measure the few tiles for batches of about this size and keep the fastest one for this shape and type.

    Not to be called while a graph is captured. What was kept holds for the process.

    Args:
        x: 2 to 256 rows.
        packed: a matrix of the shape.
        measure: seconds that a call takes, such as `triton.testing.do_bench`.

    """
    tiles = _tiles_for(x)
    out = torch.empty(len(x), packed.out_features, dtype=x.dtype, device=x.device)
    seconds = [measure(lambda tile=tile: _multiply_tiles(x, packed, out, tile)) for tile in tiles]
    best = tiles[seconds.index(min(seconds))]
    _tuned[_key(x, packed)] = best
    return best


def _row_class(rows: int) -> int:
    return min(most for most in TILES if rows <= most)


def _tiles_for(x: torch.Tensor) -> tuple[Tile, ...]:
    return (FLOAT32_TILE,) if x.dtype == torch.float32 else TILES[_row_class(len(x))]


def _key(x: torch.Tensor, packed: PackedQ4) -> tuple[object, ...]:
    return _row_class(len(x)), packed.out_features, packed.in_features, x.dtype, x.device


_ROW_OUTPUTS, _ROW_CHUNKS = 4, 8


def _multiply_row(x: torch.Tensor, packed: PackedQ4, out: torch.Tensor) -> None:
    kernel: Any = q4_row_kernel  # its launch takes options that its signature does not show
    kernel[(triton.cdiv(packed.out_features, _ROW_OUTPUTS),)](
        x, packed.words, packed.factors, out, packed.out_features, packed.in_features, packed.words.shape[1],
        OUTPUTS=_ROW_OUTPUTS, CHUNKS=_ROW_CHUNKS, num_warps=4,
    )  # fmt: skip


def _multiply_tiles(x: torch.Tensor, packed: PackedQ4, out: torch.Tensor, tile: Tile) -> None:
    kernel: Any = q4_tiles_kernel  # its launch takes options that its signature does not show
    kernel[(triton.cdiv(packed.out_features, tile.outputs), triton.cdiv(len(x), tile.rows))](
        x, packed.words, packed.factors, out, x.stride(0), len(x), packed.out_features, packed.in_features,
        packed.words.shape[1],
        ROWS=tile.rows, OUTPUTS=tile.outputs, WIDEN=not x.is_cuda, num_warps=tile.num_warps, num_stages=tile.num_stages,
    )  # fmt: skip


def compile_cases() -> list[CompileCase]:
    """See `catalogue.py`."""
    sizes = {"outputs": "i32:16", "inputs": "i32:16", "chunks": "i32"}
    cases: list[CompileCase] = []
    for kind in ("bf16", "fp16", "fp32"):
        matrix = {"words": "*i32", "factors": "*i32", "out": f"*{kind}"}
        cases.append(
            CompileCase(
                f"linear_q4.q4_row_kernel[{kind}]",
                q4_row_kernel,
                {"x": f"*{kind}"} | matrix | sizes | {"OUTPUTS": "constexpr", "CHUNKS": "constexpr"},
                {"OUTPUTS": _ROW_OUTPUTS, "CHUNKS": _ROW_CHUNKS},
                {"num_warps": 4},
            )
        )
        cases.append(
            CompileCase(
                f"linear_q4.q4_unpack_kernel[{kind}]",
                q4_unpack_kernel,
                matrix | {"inputs": "i32:16", "chunks": "i32"},
                {},
                {"num_warps": 1},
            )
        )
        tiles = {FIXED_TILE, *(tile for tiles in TILES.values() for tile in tiles)} if kind == "bf16" else {FIXED_TILE}
        cases += [
            CompileCase(
                f"linear_q4.q4_tiles_kernel[{kind},{tile.rows},{tile.outputs},{tile.num_warps}]",
                q4_tiles_kernel,
                {"x": f"*{kind}"}
                | matrix
                | {"x_stride": "i32:16", "rows": "i32"}
                | sizes
                | dict.fromkeys(("ROWS", "OUTPUTS", "WIDEN"), "constexpr"),
                {"ROWS": tile.rows, "OUTPUTS": tile.outputs, "WIDEN": False},
                {"num_warps": tile.num_warps, "num_stages": tile.num_stages},
            )
            for tile in sorted(tiles if kind != "fp32" else {FLOAT32_TILE})
        ]
    return cases
