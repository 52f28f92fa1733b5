"""Vector building blocks for products with int8 activations, as LLVM IR; `simd_dot` has what differs between processors.

All addresses are int64 byte addresses. Activations are int8 in groups of 32 with a float32 scale for each half. A weight
block holds 8 outputs of one group, eight vectors of four bytes for each output, so one 32-bit lane is one output and nothing
is summed across lanes. Integer sums are exact with either instruction set; float sums run over the groups in order, a
row by itself, so a result depends neither on the number of rows nor on which of them share a tile.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import extending
from numba.core import types

from sglang_lite.kernels.cpu.features import byte_path, has_half
from sglang_lite.kernels.cpu.simd_dot import NEON, PLAIN, ByteWeights, call, constant, nibble_dots

GROUP = 32
"""Activations that meet one weight block; each half of them has a scale of its own."""

OUTPUTS = 8
"""Outputs of one weight block."""

_I8, _I32, _I64 = (ir.IntType(bits) for bits in (8, 32, 64))
_F16, _F32 = ir.HalfType(), ir.FloatType()
_INTS = ir.VectorType(_I32, 8)
_FLOATS, _HALVES = ir.VectorType(_F32, 8), ir.VectorType(_F16, 8)

_intrinsic: Any = extending.intrinsic


def _i64(value: int) -> ir.Constant:
    return ir.Constant(_I64, value)


def _pointer(builder: Any, address: Any, offset: int, kind: Any) -> Any:
    return builder.inttoptr(builder.add(address, _i64(offset)) if offset else address, ir.PointerType(kind))


def _load(builder: Any, address: Any, kind: Any, offset: int = 0) -> Any:
    return builder.load(_pointer(builder, address, offset, kind), align=1)


def _store(builder: Any, value: Any, address: Any, offset: int = 0) -> None:
    builder.store(value, _pointer(builder, address, offset, value.type), align=1)


def _step(builder: Any, address: Any, index: Any, size: int) -> Any:
    return builder.add(address, builder.mul(index, _i64(size)))


def _splat(builder: Any, scalar: Any) -> Any:
    kind = ir.VectorType(scalar.type, 8)
    one = builder.insert_element(ir.Constant(kind, ir.Undefined), scalar, ir.Constant(_I32, 0))
    return builder.shuffle_vector(one, ir.Constant(kind, ir.Undefined), ir.Constant(_INTS, [0] * 8))


def _fma(builder: Any, a: Any, b: Any, c: Any) -> Any:
    return call(builder, "llvm.fma.v8f32", _FLOATS, [a, b, c])


def _loop(builder: Any, count: Any, start: list[Any], body: Any) -> list[Any]:
    """`for i in range(count)` carrying the values `start` in registers; returns their final values."""
    before, head = builder.block, builder.append_basic_block("loop")
    inside, done = builder.append_basic_block("body"), builder.append_basic_block("done")
    builder.branch(head)
    builder.position_at_end(head)
    index = builder.phi(_I64)
    index.add_incoming(_i64(0), before)
    carried = [builder.phi(value.type) for value in start]
    for phi, value in zip(carried, start, strict=True):
        phi.add_incoming(value, before)
    builder.cbranch(builder.icmp_signed("<", index, count), inside, done)
    builder.position_at_end(inside)
    after = body(index, carried)
    index.add_incoming(builder.add(index, _i64(1)), builder.block)
    for phi, value in zip(carried, after, strict=True):
        phi.add_incoming(value, builder.block)
    builder.branch(head)
    builder.position_at_end(done)
    return carried


class _Rows:
    """The activations of a tile's rows and where their results go."""

    def __init__(self, builder: Any, rows: int, addresses: list[Any], strides: list[Any]) -> None:
        """Take the addresses of int8 values, scales, scaled sums and outputs of row 0, and the distance of rows in bytes."""
        self._builder = builder
        self._starts = [
            [builder.add(address, builder.mul(stride, _i64(row))) for row in range(rows)]
            for address, stride in zip(addresses, strides, strict=True)
        ]

    def quad(self, row: int, group: Any, number: int) -> Any:
        """Four activations, for all outputs."""
        at = _step(self._builder, self._starts[0][row], group, GROUP)
        return _splat(self._builder, _load(self._builder, at, _I32, 4 * number))

    def scale(self, row: int, group: Any, half: int) -> Any:
        at = _step(self._builder, self._starts[1][row], group, 8)
        return _splat(self._builder, _load(self._builder, at, _F32, 4 * half))

    def scaled_sum(self, row: int, group: Any) -> Any:
        return _splat(self._builder, _load(self._builder, _step(self._builder, self._starts[2][row], group, 4), _F32))

    def first(self, row: int, accumulate: Any) -> Any:
        """What the sum begins with: the output as it is, or zeros."""
        there = _load(self._builder, self._starts[3][row], _FLOATS)
        keep = self._builder.icmp_signed("!=", accumulate, _i64(0))
        return self._builder.select(keep, there, constant(_FLOATS, 0))

    def put(self, row: int, value: Any) -> None:
        _store(self._builder, value, self._starts[3][row])


def _factors(builder: Any, block: Any, offset: int, half: bool) -> Any:
    """Eight scales of a block as float32; `half`: stored as float16."""
    if half:
        return builder.fpext(_load(builder, block, _HALVES, offset), _FLOATS)
    return _load(builder, block, _FLOATS, offset)


def emit_nibble_tile(builder: Any, path: str, rows: int, half: bool, args: list[Any]) -> None:
    """The body of `make_nibble_tile`, by one of the ways of `simd_dot`."""
    w, a, scales, sums, y, groups, a_stride, s_stride, y_stride, accumulate = args
    factor_bytes = 16 if half else 32
    sums_stride = builder.lshr(s_stride, _i64(1))
    tile = _Rows(builder, rows, [a, scales, sums, y], [a_stride, s_stride, sums_stride, y_stride])

    def body(g: Any, totals: list[Any]) -> list[Any]:
        block = _step(builder, w, g, 128 + 2 * factor_bytes)
        packed = [_load(builder, block, _INTS, 32 * s) for s in range(4)]
        low = constant(_INTS, 0x0F0F0F0F)
        q = [builder.and_(p, low) for p in packed]
        q += [builder.and_(builder.lshr(p, constant(_INTS, 4)), low) for p in packed]
        d, m = _factors(builder, block, 128, half), _factors(builder, block, 128 + factor_bytes, half)
        after = []
        for r, total in enumerate(totals):
            for n in range(2):
                part = range(4 * n, 4 * n + 4)
                dots = nibble_dots(builder, path, [q[s] for s in part], [tile.quad(r, g, s) for s in part])
                total = _fma(builder, builder.sitofp(dots, _FLOATS), builder.fmul(d, tile.scale(r, g, n)), total)
            after.append(_fma(builder, m, tile.scaled_sum(r, g), total))
        return after

    start = [tile.first(r, accumulate) for r in range(rows)]
    for r, total in enumerate(_loop(builder, groups, start, body)):
        tile.put(r, total)


def emit_byte_tile(builder: Any, path: str, rows: int, halves: bool, args: list[Any]) -> None:
    """The body of `make_byte_tile`, by one of the ways of `simd_dot`."""
    w, a, scales, sums, y, groups, a_stride, s_stride, y_stride, accumulate = args
    sums_stride = builder.lshr(s_stride, _i64(1))
    tile = _Rows(builder, rows, [a, scales, sums, y], [a_stride, s_stride, sums_stride, y_stride])

    def body(g: Any, totals: list[Any]) -> list[Any]:
        block = _step(builder, w, g, 256 + (64 if halves else 16))
        q = [_load(builder, block, _INTS, 32 * s) for s in range(8)]
        parts = [ByteWeights(builder, path, q[:4]), ByteWeights(builder, path, q[4:])]
        after = []
        for r, total in enumerate(totals):
            for n, part in enumerate(parts):
                dots = part.dots([tile.quad(r, g, 4 * n + s) for s in range(4)])
                d = _factors(builder, block, 256 + (32 * n if halves else 0), not halves)
                total = _fma(builder, builder.sitofp(dots, _FLOATS), builder.fmul(d, tile.scale(r, g, n)), total)
            after.append(total)
        return after

    start = [tile.first(r, accumulate) for r in range(rows)]
    for r, total in enumerate(_loop(builder, groups, start, body)):
        tile.put(r, total)


def make_nibble_tile(rows: int, half: bool) -> Any:
    """`tile(w, a, scales, sums, y, groups, a_stride, s_stride, y_stride, accumulate)`: 8 outputs, weights `d q + m`, q in 0..15.

    `y[r] (+)= sum over g of d[g] (scales[r, g, 0] (q . a in the first half) + scales[r, g, 1] (q . a in the second)) +
    m[g] sums[r, g]`; strides count bytes, `s_stride` those of scales, twice those of sums. A block is 128
    bytes of q (vector s in the low nibbles of bytes 32 s ..., vector s + 4 in the high ones), eight d, eight m.
    """
    return _tile(lambda builder, args: emit_nibble_tile(builder, byte_path(), rows, half, args))


def make_byte_tile(rows: int, halves: bool) -> Any:
    """`tile(w, a, scales, sums, y, groups, a_stride, s_stride, y_stride, accumulate)`: 8 outputs, weights `d q`, q int8.

    As `make_nibble_tile`; `sums` is not read. A block is 256 bytes of q and eight float16 d, or with `halves` eight
    float32 d for the first 16 weights of the group and eight for the others.
    """
    return _tile(lambda builder, args: emit_byte_tile(builder, byte_path(), rows, halves, args))


def _tile(emit: Callable[[Any, list[Any]], None]) -> Any:
    @_intrinsic
    def tile(
        ctx: Any, w: Any, a: Any, scales: Any, sums: Any, y: Any, groups: Any, a_stride: Any, s_stride: Any,
        y_stride: Any, accumulate: Any,
    ) -> Any:  # fmt: skip
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            emit(builder, args)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 10), codegen

    return tile


@_intrinsic
def quantize_group(ctx: Any, x: Any, a: Any, scales: Any, scaled_sum: Any) -> Any:
    """`quantize_group(x, a, scales, scaled_sum)`: 32 floats at x -> int8 at a, and what they are worth.

    Each half of 16 has the scale `max |x| / 127`; `scaled_sum` is the sum of the int8s, each times its scale. Rounds to
    nearest, ties to even. A NaN or an infinity makes its half's scale NaN, and so everything computed from it.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        x, a, scales, scaled_sum = args
        sums = []
        for half in range(2):
            values = [_load(builder, x, _FLOATS, 64 * half + 32 * i) for i in range(2)]
            size, rounded = _rounded(builder, values)
            for i, part in enumerate(rounded):
                _store(builder, builder.trunc(part, ir.VectorType(_I8, 8)), a, 16 * half + 8 * i)
            _store(builder, size, scales, 4 * half)
            total = call(builder, "llvm.vector.reduce.add.v8i32", _I32, [builder.add(*rounded)])
            sums.append(builder.fmul(size, builder.sitofp(total, _F32)))
        _store(builder, builder.fadd(*sums), scaled_sum)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 4), codegen


def _rounded(builder: Any, values: list[Any]) -> tuple[Any, list[Any]]:
    """The scale of 16 floats in two vectors, and their int8 values as int32."""
    sizes = [call(builder, "llvm.fabs.v8f32", _FLOATS, [v]) for v in values]
    top = call(builder, "llvm.vector.reduce.fmax.v8f32", _F32, [call(builder, "llvm.maxnum.v8f32", _FLOATS, sizes)])
    total = builder.fadd(*sizes)
    # A sum of finite sizes may overflow too, but only where the products would.
    finite = builder.fcmp_ordered("==", builder.fsub(total, total), constant(_FLOATS, 0.0))
    good = builder.icmp_signed("==", builder.bitcast(finite, _I8), ir.Constant(_I8, -1))
    zero = builder.fcmp_ordered("==", top, ir.Constant(_F32, 0.0))
    inverse = builder.select(zero, ir.Constant(_F32, 0.0), builder.fdiv(ir.Constant(_F32, 127.0), top))
    factor = _splat(builder, inverse)
    rounded = [_to_nearest(builder, builder.fmul(v, factor)) for v in values]
    size = builder.select(good, builder.fmul(top, ir.Constant(_F32, 1 / 127)), ir.Constant(_F32, float("nan")))
    return size, rounded


def _to_nearest(builder: Any, values: Any) -> Any:
    """Eight floats as int32, ties to even; what NaN becomes does not matter."""
    if byte_path() not in (NEON, PLAIN):
        return call(builder, "llvm.x86.avx.cvt.ps2dq.256", _INTS, [values])
    return call(builder, "llvm.fptosi.sat.v8i32.v8f32", _INTS, [call(builder, "llvm.rint.v8f32", _FLOATS, [values])])


@_intrinsic
def load_signed(ctx: Any, address: Any) -> Any:
    """The int8 at `address` as float32."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.sitofp(_load(builder, args[0], _I8), _F32)

    return types.float32(types.int64), codegen


@_intrinsic
def load_half(ctx: Any, address: Any) -> Any:
    """The float16 at `address` as float32; 0 where the processor lacks float16, and nobody should ask."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        if not has_half():
            return ir.Constant(_F32, 0.0)
        return builder.fpext(_load(builder, args[0], _F16), _F32)

    return types.float32(types.int64), codegen


@_intrinsic
def load_byte(ctx: Any, address: Any) -> Any:
    """The unsigned byte at `address` as int64."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.zext(_load(builder, args[0], _I8), _I64)

    return types.int64(types.int64), codegen


@_intrinsic
def load_float(ctx: Any, address: Any) -> Any:
    """The float32 at `address`."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return _load(builder, args[0], _F32)

    return types.float32(types.int64), codegen


@_intrinsic
def load_int64(ctx: Any, address: Any) -> Any:
    """The int64 at `address`."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return _load(builder, args[0], _I64)

    return types.int64(types.int64), codegen


@_intrinsic
def store_float(ctx: Any, address: Any, value: Any) -> Any:
    """Put a float32 at `address`."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        _store(builder, args[1], args[0])
        return context.get_dummy_value()

    return types.void(types.int64, types.float32), codegen


@_intrinsic
def store_half(ctx: Any, address: Any, value: Any) -> Any:
    """Put a float32 at `address` as float16, rounded to nearest; nothing where the processor lacks float16."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        if has_half():
            _store(builder, builder.fptrunc(args[1], _F16), args[0])
        return context.get_dummy_value()

    return types.void(types.int64, types.float32), codegen


@_intrinsic
def store_signed(ctx: Any, address: Any, value: Any) -> Any:
    """Put a float32 that is a whole number of one byte at `address` as int8."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        _store(builder, call(builder, "llvm.fptosi.sat.i8.f32", _I8, [args[1]]), args[0])
        return context.get_dummy_value()

    return types.void(types.int64, types.float32), codegen
