"""Vector building blocks that go over one row of floats, as LLVM IR; sixteen float32 lanes, any processor.

Addresses and alignment as in `simd`. Sums have a fixed order: lane by lane over the row, then lanes by halves.
"""

from __future__ import annotations

import math
from typing import Any

from llvmlite import ir
from numba import extending
from numba.core import types

from sglang_lite.kernels.cpu import simd
from sglang_lite.kernels.cpu.simd import LANES

_F32, _I32, _I64 = ir.FloatType(), ir.IntType(32), ir.IntType(64)
_VEC = ir.VectorType(_F32, LANES)
_HALF = ir.VectorType(_F32, LANES // 2)

_EXP_OVERFLOW = 88.0

_intrinsic: Any = extending.intrinsic


def _lanes(builder: Any, index: Any) -> Any:
    return builder.mul(index, ir.Constant(_I64, LANES))


def _half(builder: Any, address: Any) -> Any:
    return builder.load(builder.inttoptr(address, ir.PointerType(_HALF)), align=4)


@_intrinsic
def sum_of_squares(ctx: Any, x: Any, groups: Any) -> Any:
    """`sum_of_squares(x, groups)`: of `groups * 16` floats."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        x, groups = args

        def body(i: Any, total: list[Any]) -> list[Any]:
            values = simd._load(builder, x, _lanes(builder, i), _VEC)
            return [simd._fma(builder, values, values, total[0])]

        (total,) = simd._loop(builder, groups, [simd._constant(0.0)], body)
        lanes = [builder.extract_element(total, ir.Constant(_I32, i)) for i in range(LANES)]
        while len(lanes) > 1:
            lanes = [builder.fadd(a, b) for a, b in zip(lanes[::2], lanes[1::2], strict=True)]
        return lanes[0]

    return types.float32(types.int64, types.int64), codegen


@_intrinsic
def scale_rows(ctx: Any, x: Any, factor: Any, weight: Any, out: Any, groups: Any) -> Any:
    """`scale_rows(x, factor, weight, out, groups)`: `out = x * factor * weight` for `groups * 16` floats."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        x, factor, weight, out, groups = args
        factors = simd._splat(builder, factor)

        def body(i: Any, _: list[Any]) -> list[Any]:
            at = _lanes(builder, i)
            scaled = builder.fmul(simd._load(builder, x, at, _VEC), factors)
            simd._store(builder, builder.fmul(scaled, simd._load(builder, weight, at, _VEC)), out, at)
            return []

        simd._loop(builder, groups, [], body)
        return context.get_dummy_value()

    return types.void(types.int64, types.float32, types.int64, types.int64, types.int64), codegen


@_intrinsic
def silu_product(ctx: Any, gate: Any, up: Any, out: Any, groups: Any) -> Any:
    """`silu_product(gate, up, out, groups)`: `out = gate / (1 + exp(-gate)) * up` for `groups * 16` floats."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        gate, up, out, groups = args
        one, limit = simd._constant(1.0), simd._constant(_EXP_OVERFLOW)

        def body(i: Any, _: list[Any]) -> list[Any]:
            at = _lanes(builder, i)
            x = simd._load(builder, gate, at, _VEC)
            negative = builder.fneg(x)
            # Written so that NaN passes.
            negative = builder.select(builder.fcmp_ordered(">", negative, limit), limit, negative)
            share = builder.fdiv(x, builder.fadd(one, simd._exp(builder, negative)))
            simd._store(builder, builder.fmul(share, simd._load(builder, up, at, _VEC)), out, at)
            return []

        simd._loop(builder, groups, [], body)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 4), codegen


@_intrinsic
def gelu_product(ctx: Any, gate: Any, up: Any, out: Any, groups: Any) -> Any:
    """`gelu_product(gate, up, out, groups)`: `out = gelu(gate) * up` for `groups * 16` floats, by the formula with tanh."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        gate, up, out, groups = args

        def body(i: Any, _: list[Any]) -> list[Any]:
            at = _lanes(builder, i)
            x = simd._load(builder, gate, at, _VEC)
            cube = builder.fmul(builder.fmul(x, x), x)
            inner = simd._fma(builder, cube, simd._constant(0.044715), x)
            turned = simd._tanh(builder, builder.fmul(inner, simd._constant(math.sqrt(2 / math.pi))))
            share = builder.fmul(builder.fmul(x, simd._constant(0.5)), builder.fadd(simd._constant(1.0), turned))
            simd._store(builder, builder.fmul(share, simd._load(builder, up, at, _VEC)), out, at)
            return []

        simd._loop(builder, groups, [], body)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 4), codegen


@_intrinsic
def add_rows(ctx: Any, x: Any, other: Any, groups: Any) -> Any:
    """`add_rows(x, other, groups)`: `x += other` for `groups * 16` floats."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        x, other, groups = args

        def body(i: Any, _: list[Any]) -> list[Any]:
            at = _lanes(builder, i)
            total = builder.fadd(simd._load(builder, x, at, _VEC), simd._load(builder, other, at, _VEC))
            simd._store(builder, total, x, at)
            return []

        simd._loop(builder, groups, [], body)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 3), codegen


@_intrinsic
def multiply_rows(ctx: Any, x: Any, other: Any, groups: Any) -> Any:
    """`multiply_rows(x, other, groups)`: `x *= other` for `groups * 16` floats."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        x, other, groups = args

        def body(i: Any, _: list[Any]) -> list[Any]:
            at = _lanes(builder, i)
            product = builder.fmul(simd._load(builder, x, at, _VEC), simd._load(builder, other, at, _VEC))
            simd._store(builder, product, x, at)
            return []

        simd._loop(builder, groups, [], body)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 3), codegen


@_intrinsic
def round_rows(ctx: Any, x: Any, groups: Any) -> Any:
    """`round_rows(x, groups)`: `groups * 16` floats become whole numbers -127..127, in place; returns what one is worth.

    That is `max |x| / 127`; rounds to nearest, ties to even. A NaN or an infinity makes it NaN, and all numbers 0.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        x, groups = args

        def measure(i: Any, carried: list[Any]) -> list[Any]:
            values = simd._load(builder, x, _lanes(builder, i), _VEC)
            size = simd._call(builder, "llvm.fabs.v16f32", _VEC, [values])
            # What is not finite leaves a NaN here, and 0 otherwise.
            nothing = builder.fsub(values, values)
            return [
                simd._call(builder, "llvm.maxnum.v16f32", _VEC, [carried[0], size]),
                builder.fadd(carried[1], nothing),
            ]

        tops, nothings = simd._loop(builder, groups, [simd._constant(0.0)] * 2, measure)
        top = simd._call(builder, "llvm.vector.reduce.fmax.v16f32", _F32, [tops])
        clean = builder.fcmp_ordered("==", nothings, simd._constant(0.0))
        finite = builder.icmp_signed("==", builder.bitcast(clean, ir.IntType(16)), ir.Constant(ir.IntType(16), -1))
        zero = builder.fcmp_ordered("==", top, ir.Constant(_F32, 0.0))
        usable = builder.and_(finite, builder.not_(zero))
        inverse = builder.select(usable, builder.fdiv(ir.Constant(_F32, 127.0), top), ir.Constant(_F32, 0.0))
        factors = simd._splat(builder, inverse)
        is_usable = builder.fcmp_ordered("!=", factors, simd._constant(0.0))

        def scale(i: Any, _: list[Any]) -> list[Any]:
            at = _lanes(builder, i)
            scaled = builder.fmul(simd._load(builder, x, at, _VEC), factors)
            whole = simd._call(builder, "llvm.rint.v16f32", _VEC, [scaled])
            simd._store(builder, builder.select(is_usable, whole, simd._constant(0.0)), x, at)
            return []

        simd._loop(builder, groups, [], scale)
        worth = builder.fmul(top, ir.Constant(_F32, 1 / 127))
        return builder.select(finite, worth, ir.Constant(_F32, float("nan")))

    return types.float32(types.int64, types.int64), codegen


@_intrinsic
def rotate_pairs(ctx: Any, pairs: Any, cos: Any, sin: Any) -> Any:
    """`rotate_pairs(pairs, cos, sin)`: floats 0..7 and 8..15 at `pairs` are turned by eight angles, in place."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pairs, cos, sin = args
        second = builder.add(pairs, ir.Constant(_I64, 4 * LANES // 2))
        a, b = _half(builder, pairs), _half(builder, second)
        c, s = _half(builder, cos), _half(builder, sin)
        for value, at in (
            (builder.fsub(builder.fmul(a, c), builder.fmul(b, s)), pairs),
            (builder.fadd(builder.fmul(b, c), builder.fmul(a, s)), second),
        ):
            builder.store(value, builder.inttoptr(at, ir.PointerType(_HALF)), align=4)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 3), codegen
