"""Sums of byte products as LLVM IR, one way for each instruction set; which one is taken does not change a bit.

A vector of eight int32 holds four bytes in each lane; a list of vectors is what the lanes sum up. Weights are 0..15 (`nibble_dots`)
or -128..127 (`ByteWeights`), activations -127..127, so that every sum is exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llvmlite import ir

LANES = 8

VNNI, AVX2, NEON, PLAIN = "vnni", "avx2", "neon", "plain"
"""Four products and their sum in one instruction on x86; by way of words there; ARM's dot product; shifts and products anywhere."""

_I1, _I8, _I16, _I32 = (ir.IntType(bits) for bits in (1, 8, 16, 32))
_BYTES, _WORDS, _INTS = ir.VectorType(_I8, 32), ir.VectorType(_I16, 16), ir.VectorType(_I32, LANES)
_HALF_BYTES, _HALF_INTS = ir.VectorType(_I8, 16), ir.VectorType(_I32, 4)


def call(builder: Any, name: str, result: Any, args: Sequence[Any]) -> Any:
    """Call an intrinsic of LLVM."""
    function_type = ir.FunctionType(result, [arg.type for arg in args])
    function = builder.module.globals.get(name) or ir.Function(builder.module, function_type, name)
    return builder.call(function, args)


def constant(kind: Any, value: float) -> ir.Constant:
    """A vector of equal numbers."""
    return ir.Constant(kind, [value] * kind.count)


def nibble_dots(builder: Any, path: str, weights: Sequence[Any], activations: Sequence[Any]) -> Any:
    """The sums for weights 0..15; four vectors, whose sums of words stay under 2^15 (15 * 127 * 2 * 4)."""
    if path == VNNI:
        return _vnni(builder, weights, activations)
    if path == AVX2:
        words = [_words(builder, w, a) for w, a in zip(weights, activations, strict=True)]
        while len(words) > 1:
            words = [builder.add(a, b) for a, b in zip(words[::2], words[1::2], strict=True)]
        return _widen(builder, words[0])
    return _signed(builder, path, weights, activations)


class ByteWeights:
    """Vectors of weights -128..127, prepared once for all rows of a tile."""

    def __init__(self, builder: Any, path: str, weights: Sequence[Any]) -> None:
        """Take the vectors."""
        self._builder, self._path, self._weights = builder, path, weights
        if path in (VNNI, AVX2):
            # |q| times the activation with q's sign; -128 stays right, as 128 without a sign.
            no = ir.Constant(_I1, 0)
            self._sizes = [call(builder, "llvm.abs.v32i8", _BYTES, [builder.bitcast(w, _BYTES), no]) for w in weights]

    def dots(self, activations: Sequence[Any]) -> Any:
        """The sums."""
        builder = self._builder
        if self._path not in (VNNI, AVX2):
            return _signed(builder, self._path, self._weights, activations)
        signed = [
            call(builder, "llvm.x86.avx2.psign.b", _BYTES, [builder.bitcast(v, _BYTES) for v in (a, w)])
            for a, w in zip(activations, self._weights, strict=True)
        ]
        if self._path == VNNI:
            return _vnni(builder, self._sizes, signed)
        parts = [_widen(builder, _words(builder, u, s)) for u, s in zip(self._sizes, signed, strict=True)]
        total = parts[0]
        for part in parts[1:]:
            total = builder.add(total, part)
        return total


def _vnni(builder: Any, unsigned: Sequence[Any], signed: Sequence[Any]) -> Any:
    total = constant(_INTS, 0)
    for u, s in zip(unsigned, signed, strict=True):
        args = [total, builder.bitcast(u, _INTS), builder.bitcast(s, _INTS)]
        total = call(builder, "llvm.x86.avx512.vpdpbusd.256", _INTS, args)
    return total


def _words(builder: Any, unsigned: Any, signed: Any) -> Any:
    factors = [builder.bitcast(v, _BYTES) for v in (unsigned, signed)]
    return call(builder, "llvm.x86.avx2.pmadd.ub.sw", _WORDS, factors)


def _widen(builder: Any, words: Any) -> Any:
    return call(builder, "llvm.x86.avx2.pmadd.wd", _INTS, [words, constant(_WORDS, 1)])


def _signed(builder: Any, path: str, weights: Sequence[Any], activations: Sequence[Any]) -> Any:
    """Sums of products of signed bytes."""
    total = constant(_INTS, 0)
    for w, a in zip(weights, activations, strict=True):
        total = _arm(builder, total, w, a) if path == NEON else builder.add(total, _products(builder, w, a))
    return total


def _arm(builder: Any, total: Any, weights: Any, activations: Any) -> Any:
    """Both halves by the instruction of 16 bytes."""
    parts = []
    for start in (0, 4):
        values = [builder.bitcast(_half(builder, v, start), _HALF_BYTES) for v in (weights, activations)]
        args = [_half(builder, total, start), *values]
        parts.append(call(builder, "llvm.aarch64.neon.sdot.v4i32.v16i8", _HALF_INTS, args))
    return builder.shuffle_vector(*parts, ir.Constant(_INTS, list(range(LANES))))


def _half(builder: Any, vector: Any, start: int) -> Any:
    places = ir.Constant(_HALF_INTS, list(range(start, start + 4)))
    return builder.shuffle_vector(vector, ir.Constant(_INTS, ir.Undefined), places)


def _products(builder: Any, weights: Any, activations: Any) -> Any:
    """Byte by byte of each lane: its sign spread by shifts, then an ordinary product."""
    parts = []
    for byte in range(4):
        up = [builder.shl(v, constant(_INTS, 24 - 8 * byte)) for v in (weights, activations)]
        parts.append(builder.mul(*(builder.ashr(v, constant(_INTS, 24)) for v in up)))
    return builder.add(builder.add(parts[0], parts[1]), builder.add(parts[2], parts[3]))
