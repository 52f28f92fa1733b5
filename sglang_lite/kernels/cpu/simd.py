"""Vector building blocks for the CPU kernels, as LLVM IR; the only file that writes IR. Sixteen float32 lanes throughout.

All addresses are int64 byte addresses of float32 data; loads and stores need 4-byte alignment only. Every row of a
tile goes through the same operations in the same order whatever the number of rows, so results do not depend on how
rows are grouped. Numba leaves loops like these scalar (exp, max) or keeps tiles in memory, hence the IR.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from sglang_lite.kernels.cpu.features import has_half

LANES = 16

_F32 = ir.FloatType()
_I32 = ir.IntType(32)
_I64 = ir.IntType(64)
_VEC = ir.VectorType(_F32, LANES)
_VEC_I32 = ir.VectorType(_I32, LANES)
_HALVES = ir.VectorType(ir.HalfType(), LANES)
_BYTES = ir.VectorType(ir.IntType(8), LANES)

FLOAT_BYTES, HALF_BYTES, INT8_BYTES = 4, 2, 1
"""Bytes of a stored number, which say what it is: float32, float16, int8."""

# exp(x) = 2^n exp(r), |r| <= ln2 / 2: ln2 in two parts (Cody and Waite) and the minimax polynomial of Cephes' expf.
_LOG2E = 1.44269504088896341
_LN2_HI, _LN2_LO = 0.693359375, -2.12194440e-4
_EXP_POLY = (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1)
_EXP_UNDERFLOW = -87.0
_TANH_IS_ONE = 10.0


def _splat(builder: Any, scalar: Any) -> Any:
    one = builder.insert_element(ir.Constant(_VEC, ir.Undefined), scalar, ir.Constant(_I32, 0))
    return builder.shuffle_vector(one, ir.Constant(_VEC, ir.Undefined), ir.Constant(_VEC_I32, [0] * LANES))


def _constant(value: float) -> ir.Constant:
    return ir.Constant(_VEC, [value] * LANES)


def _call(builder: Any, name: str, result: ir.Type, args: list[Any]) -> Any:
    function_type = ir.FunctionType(result, [arg.type for arg in args])
    module = builder.module
    function = module.globals.get(name) or ir.Function(module, function_type, name)
    return builder.call(function, args)


def _fma(builder: Any, a: Any, b: Any, c: Any) -> Any:
    return _call(builder, "llvm.fmuladd.v16f32", _VEC, [a, b, c])


def _at(builder: Any, address: Any, element: Any, kind: ir.Type) -> Any:
    """Pointer to `kind` at float number `element` from `address`."""
    moved = builder.add(address, builder.mul(element, ir.Constant(_I64, 4)))
    return builder.inttoptr(moved, ir.PointerType(kind))


def _load(builder: Any, address: Any, element: Any, kind: ir.Type) -> Any:
    return builder.load(_at(builder, address, element, kind), align=4)


def _load_lanes(builder: Any, address: Any, element: Any, item: int) -> Any:
    """Sixteen floats from number `element` at `address`, where numbers of `item` bytes are stored."""
    if item == FLOAT_BYTES:
        return _load(builder, address, element, _VEC)
    moved = builder.add(address, builder.mul(element, ir.Constant(_I64, item)))
    if item == INT8_BYTES:
        return builder.sitofp(builder.load(builder.inttoptr(moved, ir.PointerType(_BYTES)), align=1), _VEC)
    return builder.fpext(builder.load(builder.inttoptr(moved, ir.PointerType(_HALVES)), align=2), _VEC)


def _store(builder: Any, value: Any, address: Any, element: Any) -> None:
    builder.store(value, _at(builder, address, element, value.type), align=4)


def _loop(builder: Any, count: Any, start: list[Any], body: Callable[[Any, list[Any]], list[Any]]) -> list[Any]:
    """`for i in range(count)` carrying the values `start` in registers; returns their final values."""
    before = builder.block
    head = builder.append_basic_block("loop")
    inside = builder.append_basic_block("body")
    done = builder.append_basic_block("done")
    builder.branch(head)
    builder.position_at_end(head)
    index = builder.phi(_I64)
    index.add_incoming(ir.Constant(_I64, 0), before)
    carried = [builder.phi(value.type) for value in start]
    for phi, value in zip(carried, start, strict=True):
        phi.add_incoming(value, before)
    builder.cbranch(builder.icmp_signed("<", index, count), inside, done)
    builder.position_at_end(inside)
    after = body(index, carried)
    index.add_incoming(builder.add(index, ir.Constant(_I64, 1)), builder.block)
    for phi, value in zip(carried, after, strict=True):
        phi.add_incoming(value, builder.block)
    builder.branch(head)
    builder.position_at_end(done)
    return carried


def make_score_tile(rows: int, item: int = FLOAT_BYTES) -> Any:
    """`tile(q, q_stride, keys, key_stride, depth, out, out_stride)`: scores of `rows` queries against 16 keys.

    `out[r, lane] = sum over d of q[r, d] * keys[d, lane]`, d ascending; strides count numbers. `item`: bytes of a stored key
    (where the processor lacks float16 a tile for it does nothing, and must not be called).
    """
    there = has_half() or item != HALF_BYTES

    @intrinsic
    def score_tile(
        ctx: Any, q: Any, q_stride: Any, keys: Any, key_stride: Any, depth: Any, out: Any, out_stride: Any
    ) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            q, q_stride, keys, key_stride, depth, out, out_stride = args
            if not there:
                return context.get_dummy_value()
            row_starts = [builder.mul(ir.Constant(_I64, r), q_stride) for r in range(rows)]

            def body(d: Any, sums: list[Any]) -> list[Any]:
                lane_keys = _load_lanes(builder, keys, builder.mul(d, key_stride), item)
                return [
                    _fma(builder, _splat(builder, _load(builder, q, builder.add(row, d), _F32)), lane_keys, total)
                    for row, total in zip(row_starts, sums, strict=True)
                ]

            for r, total in enumerate(_loop(builder, depth, [_constant(0.0)] * rows, body)):
                _store(builder, total, out, builder.mul(ir.Constant(_I64, r), out_stride))
            return context.get_dummy_value()

        return types.void(*[types.int64] * 7), codegen

    return score_tile


def make_value_tile(rows: int, item: int = FLOAT_BYTES) -> Any:
    """`tile(weights, weight_stride, values, value_stride, count, out, out_stride)`: add weighted values, 16 columns.

    `out[r, lane] += sum over j < count of weights[r, j] * values[j, lane]`, j ascending; strides count numbers. `item`:
    as in `make_score_tile`.
    """
    there = has_half() or item != HALF_BYTES

    @intrinsic
    def value_tile(
        ctx: Any,
        weights: Any,
        weight_stride: Any,
        values: Any,
        value_stride: Any,
        count: Any,
        out: Any,
        out_stride: Any,
    ) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            weights, weight_stride, values, value_stride, count, out, out_stride = args
            if not there:
                return context.get_dummy_value()
            row_starts = [builder.mul(ir.Constant(_I64, r), weight_stride) for r in range(rows)]
            out_starts = [builder.mul(ir.Constant(_I64, r), out_stride) for r in range(rows)]

            def body(j: Any, sums: list[Any]) -> list[Any]:
                lane_values = _load_lanes(builder, values, builder.mul(j, value_stride), item)
                return [
                    _fma(
                        builder, _splat(builder, _load(builder, weights, builder.add(row, j), _F32)), lane_values, total
                    )
                    for row, total in zip(row_starts, sums, strict=True)
                ]

            start = [_load(builder, out, at, _VEC) for at in out_starts]
            for at, total in zip(out_starts, _loop(builder, count, start, body), strict=True):
                _store(builder, total, out, at)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 7), codegen

    return value_tile


@intrinsic
def max_of(typingctx: Any, address: Any, groups: Any) -> Any:
    """`max_of(address, groups)`: the largest of `groups * 16` floats, NaN ignored; -inf for no group."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        address, groups = args

        def body(i: Any, best: list[Any]) -> list[Any]:
            lanes = _load(builder, address, builder.mul(i, ir.Constant(_I64, LANES)), _VEC)
            return [_call(builder, "llvm.maxnum.v16f32", _VEC, [best[0], lanes])]

        (best,) = _loop(builder, groups, [_constant(float("-inf"))], body)
        return _call(builder, "llvm.vector.reduce.fmax.v16f32", _F32, [best])

    return types.float32(types.int64, types.int64), codegen


@intrinsic
def exp_in_place(typingctx: Any, address: Any, groups: Any, shift: Any) -> Any:
    """`exp_in_place(address, groups, shift)`: x -> exp(x - shift) for `groups * 16` floats, returning their sum.

    Meant for shift >= x. Below exp(-87) the result is exactly 0, for -inf too; NaN stays NaN.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        address, groups, shift = args
        offset = _splat(builder, shift)

        def body(i: Any, total: list[Any]) -> list[Any]:
            at = builder.mul(i, ir.Constant(_I64, LANES))
            powers = _exp(builder, builder.fsub(_load(builder, address, at, _VEC), offset))
            _store(builder, powers, address, at)
            return [builder.fadd(total[0], powers)]

        (total,) = _loop(builder, groups, [_constant(0.0)], body)
        lanes = [builder.extract_element(total, ir.Constant(_I32, i)) for i in range(LANES)]
        while len(lanes) > 1:
            lanes = [builder.fadd(a, b) for a, b in zip(lanes[::2], lanes[1::2], strict=True)]
        return lanes[0]

    return types.float32(types.int64, types.int64, types.float32), codegen


@intrinsic
def soft_cap_in_place(typingctx: Any, address: Any, groups: Any, cap: Any) -> Any:
    """`soft_cap_in_place(address, groups, cap)`: x -> cap * tanh(x / cap) for `groups * 16` floats; NaN stays NaN."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        address, groups, cap = args
        caps = _splat(builder, cap)

        def body(i: Any, _: list[Any]) -> list[Any]:
            at = builder.mul(i, ir.Constant(_I64, LANES))
            x = builder.fdiv(_load(builder, address, at, _VEC), caps)
            _store(builder, builder.fmul(caps, _tanh(builder, x)), address, at)
            return []

        _loop(builder, groups, [], body)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.float32), codegen


def _tanh(builder: Any, x: Any) -> Any:
    """1 - 2 / (exp(2x) + 1), some 1e-7 off at most; beyond `_TANH_IS_ONE` the float32 result is 1."""
    for limit, sign in ((_TANH_IS_ONE, ">"), (-_TANH_IS_ONE, "<")):
        x = builder.select(builder.fcmp_ordered(sign, x, _constant(limit)), _constant(limit), x)
    power = _exp(builder, builder.fadd(x, x))
    return builder.fsub(_constant(1.0), builder.fdiv(_constant(2.0), builder.fadd(power, _constant(1.0))))


def _exp(builder: Any, x: Any) -> Any:
    tiny = builder.fcmp_ordered("<", x, _constant(_EXP_UNDERFLOW))
    # The clamp keeps the exponent arithmetic in range for lanes that `tiny` zeroes at the end.
    x = builder.select(tiny, _constant(_EXP_UNDERFLOW), x)
    n = _call(builder, "llvm.rint.v16f32", _VEC, [builder.fmul(x, _constant(_LOG2E))])
    r = _fma(builder, n, _constant(-_LN2_HI), x)
    r = _fma(builder, n, _constant(-_LN2_LO), r)
    poly = _constant(_EXP_POLY[0])
    for coefficient in _EXP_POLY[1:]:
        poly = _fma(builder, poly, r, _constant(coefficient))
    poly = _fma(builder, builder.fmul(r, r), poly, builder.fadd(r, _constant(1.0)))
    bits = builder.add(builder.fptosi(n, _VEC_I32), ir.Constant(_VEC_I32, [127] * LANES))
    power = builder.bitcast(builder.shl(bits, ir.Constant(_VEC_I32, [23] * LANES)), _VEC)
    return builder.select(tiny, _constant(0.0), builder.fmul(poly, power))


@intrinsic
def fetch_add(ctx: Any, address: Any, amount: Any) -> Any:
    """`fetch_add(address, amount)`: add to the int64 at `address` as one atomic step, returning its old value."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.atomic_rmw("add", builder.inttoptr(args[0], ir.PointerType(_I64)), args[1], "monotonic")

    return types.int64(types.int64, types.int64), codegen


def _pointer_cast(kind: Any) -> Any:
    @intrinsic
    def cast(ctx: Any, address: Any) -> Any:
        """Turn an address into a typed pointer for `numba.carray`."""

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return builder.inttoptr(args[0], context.get_value_type(signature.return_type))

        return types.CPointer(kind)(types.int64), codegen

    return cast


float32_pointer, int32_pointer = _pointer_cast(types.float32), _pointer_cast(types.int32)
