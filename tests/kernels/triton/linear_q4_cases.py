"""Run with TRITON_INTERPRET=1: 4-bit matrices, packed and multiplied, against their definition."""

from __future__ import annotations

import numpy as np
import torch
from gguf.constants import GGMLQuantizationType
from gguf.quants import dequantize as gguf_dequantize

from sglang_lite.kernels.reference.linear_q4 import FLOATS_PER_GROUP, dequantize
from sglang_lite.kernels.triton import linear_q4 as module
from sglang_lite.kernels.triton.linear_q4 import TILES, linear_q4, pack_q4, tune, unpack_q4
from tests.kernels.triton.floats import FLOATS, draw

KINDS = ("Q4_0", "Q4_1")
NEAR = {torch.float32: 1e-5, torch.bfloat16: 0.02, torch.float16: 0.002}
"""Of the largest output: weights and outputs are rounded to the type, and the interpreter cuts bfloat16 off."""


def matrix(random: np.random.Generator, outputs: int, inputs: int, kind: str) -> np.ndarray:
    """Bytes of a file with any nibble and sane scales."""
    groups = random.integers(0, 256, (outputs, inputs // 32, 2 * FLOATS_PER_GROUP[kind] + 16)).astype(np.uint8)
    floats = random.uniform(-0.2, 0.2, (outputs, inputs // 32, FLOATS_PER_GROUP[kind])).astype(np.float16)
    groups[..., : 2 * FLOATS_PER_GROUP[kind]] = floats.view(np.uint8)
    return groups.reshape(outputs, -1)


def check_the_definition_is_the_format() -> None:
    for kind in KINDS:
        raw = matrix(np.random.default_rng(0), 3, 96, kind)
        np.testing.assert_array_equal(dequantize(raw, kind), gguf_dequantize(raw, GGMLQuantizationType[kind]))


def check_unpacking_gives_the_very_numbers() -> None:
    for kind in KINDS:
        for outputs, inputs in ((1, 32), (3, 256), (5, 288), (9, 576)):
            raw = matrix(np.random.default_rng(inputs), outputs, inputs, kind)
            raw.flags.writeable = False
            packed = pack_q4(raw, kind, "cpu")
            assert (packed.out_features, packed.in_features) == (outputs, inputs)
            np.testing.assert_array_equal(unpack_q4(packed, torch.float32).numpy(), dequantize(raw, kind))
            part = unpack_q4(packed, torch.float32, 1, 3).numpy()
            np.testing.assert_array_equal(part, dequantize(raw, kind)[1:3])


def check_products() -> None:
    shapes = ((0, 8, 64), (1, 1, 32), (1, 5, 288), (1, 9, 2336), (2, 65, 256), (17, 3, 96), (65, 130, 32), (257, 7, 64))
    for kind, dtype in zip(("Q4_0", "Q4_1", "Q4_1"), FLOATS, strict=True):
        for rows, outputs, inputs in shapes:
            random = np.random.default_rng(rows + inputs)
            raw = matrix(random, outputs, inputs, kind)
            wide = draw(random, rows, inputs + 32, kind=dtype)
            x = wide[:, :inputs]
            expected = x.double().numpy() @ dequantize(raw, kind).astype(np.float64).T
            for deterministic in (False, True):
                if deterministic and rows > 65:
                    continue
                got = linear_q4(x, pack_q4(raw, kind, "cpu"), deterministic=deterministic)
                assert (got.dtype, got.shape) == (dtype, (rows, outputs))
                if rows:
                    worst = np.abs(got.double().numpy() - expected).max() / np.abs(expected).max()
                    assert worst < NEAR[dtype], (kind, dtype, rows, outputs, inputs, deterministic, worst)


def check_what_is_behind_the_inputs_is_not_read() -> None:
    """Inputs that fill up the last chunk belong to no group: NaN there must not come through."""
    random = np.random.default_rng(3)
    packed = pack_q4(matrix(random, 4, 96, "Q4_1"), "Q4_1", "cpu")
    wide = draw(random, 2, 160, kind=torch.float32)
    wide[:, 96:] = torch.nan
    for rows in (1, 2):
        assert linear_q4(wide[:rows, :96], packed).isfinite().all()


def check_tiles_give_equal_bits() -> None:
    random = np.random.default_rng(4)
    packed = pack_q4(matrix(random, 70, 288, "Q4_0"), "Q4_0", "cpu")
    x = draw(random, 20, 288, kind=torch.float16)
    whole = linear_q4(x, packed, deterministic=True)
    assert torch.equal(linear_q4(x[:1], packed, deterministic=True), whole[:1])
    chosen: list[int] = []

    def measure(call: object) -> float:
        chosen.append(len(chosen))
        return 1.0 if len(chosen) == 2 else 2.0

    assert tune(x, packed, measure) == TILES[64][1]
    assert len(chosen) == len(TILES[64])
    used: list[module.Tile] = []
    multiply = module._multiply_tiles
    module._multiply_tiles = lambda *arguments: (used.append(arguments[-1]), multiply(*arguments))  # pyright: ignore[reportAttributeAccessIssue]
    linear_q4(x, packed)
    linear_q4(x[:16], packed)
    assert used == [TILES[64][1], TILES[16][0]], "what was tuned is taken for its size only"


if __name__ == "__main__":
    for name, check in list(globals().items()):
        if name.startswith("check_"):
            check()
            print(name)
