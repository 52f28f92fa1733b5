"""What threads that share a counter need, as LLVM IR. Addresses are int64 byte addresses of int64 data."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import extending
from numba.core import types

from sglang_lite.kernels.cpu.features import target_features

_I32, _I64 = ir.IntType(32), ir.IntType(64)

_intrinsic: Any = extending.intrinsic


@_intrinsic
def add_released(ctx: Any, address: Any, amount: Any) -> Any:
    """`add_released(address, amount)`: an atomic addition; whoever sees it by `load_acquired` sees all that was written before."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.atomic_rmw("add", builder.inttoptr(args[0], ir.PointerType(_I64)), args[1], "acq_rel")

    return types.int64(types.int64, types.int64), codegen


@_intrinsic
def load_acquired(ctx: Any, address: Any) -> Any:
    """The counter at `address`; later reads are not moved before it."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.load_atomic(builder.inttoptr(args[0], ir.PointerType(_I64)), "acquire", 8)

    return types.int64(types.int64), codegen


@_intrinsic
def relax(ctx: Any) -> Any:
    """Tell the processor that this thread spins."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        if "sse2" in target_features():
            name = "llvm.x86.sse2.pause"
            kind = ir.FunctionType(ir.VoidType(), [])
            builder.call(builder.module.globals.get(name) or ir.Function(builder.module, kind, name), [])
        return context.get_dummy_value()

    return types.void(), codegen


@_intrinsic
def call_plain(ctx: Any, function: Any) -> Any:
    """Call the C function `int f(void)` at the address `function`."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = builder.inttoptr(args[0], ir.PointerType(ir.FunctionType(_I32, [])))
        return builder.sext(builder.call(pointer, []), _I64)

    return types.int64(types.int64), codegen


@_intrinsic
def exchange(ctx: Any, address: Any, value: Any) -> Any:
    """`exchange(address, value)`: put a value and give the old one, at once and in one order for all threads."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.atomic_rmw("xchg", builder.inttoptr(args[0], ir.PointerType(_I64)), args[1], "seq_cst")

    return types.int64(types.int64, types.int64), codegen


@_intrinsic
def call_semaphore(ctx: Any, function: Any, semaphore: Any) -> Any:
    """Call the C function `int f(sem_t *)` at the address `function`."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = builder.inttoptr(args[0], ir.PointerType(ir.FunctionType(_I32, [_I64])))
        return builder.sext(builder.call(pointer, [args[1]]), _I64)

    return types.int64(types.int64, types.int64), codegen


@_intrinsic
def call_job(ctx: Any, function: Any, block: Any) -> Any:
    """Call the C function `void f(int64_t *block)` at the address `function`."""
    return _caller(1)


def _caller(arguments: int) -> Any:
    """An intrinsic that calls a C function of int64 arguments without a result through its address."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = ir.FunctionType(ir.VoidType(), [_I64] * arguments)
        builder.call(builder.inttoptr(args[0], ir.PointerType(kind)), args[1:])
        return context.get_dummy_value()

    return types.void(*[types.int64] * (arguments + 1)), codegen


@_intrinsic
def call_linear(
    ctx: Any, function: Any, w: Any, x: Any, a: Any, scales: Any, sums: Any, y: Any, y_stride: Any, rows: Any,
    groups: Any, first: Any, last: Any, accumulate: Any,
) -> Any:  # fmt: skip
    """Call a product at the address `function`, see `linear.linear_address`."""
    return _caller(12)


@_intrinsic
def call_attend(ctx: Any, function: Any, block: Any, layer: Any, first: Any, last: Any, scratch: Any) -> Any:
    """Call the C function at the address `function` that attends for tiles `first` to `last - 1`."""
    return _caller(5)


@_intrinsic
def int64_pointer(ctx: Any, address: Any) -> Any:
    """An address as a pointer to int64, for `numba.carray`."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.inttoptr(args[0], context.get_value_type(signature.return_type))

    return types.CPointer(types.int64)(types.int64), codegen
