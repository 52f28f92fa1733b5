"""Run with TRITON_INTERPRET=1: the norms against their definition."""

from __future__ import annotations

import numpy as np
import torch

from sglang_lite.kernels.reference import norm as reference
from sglang_lite.kernels.triton.norm import add_rms_norm, rms_norm
from tests.kernels.triton.floats import FLOATS, assert_near, draw

EPS = 1e-5


def check_shapes() -> None:
    for kind in FLOATS:
        for rows, size in ((0, 64), (1, 1), (1, 64), (2, 63), (3, 65), (2, 576), (1, 4096)):
            random = np.random.default_rng(rows + size)
            x, weight = draw(random, rows, size, kind=kind, scale=3), draw(random, size, kind=kind)
            expected = reference.rms_norm(x.double().numpy(), weight.double().numpy(), EPS)
            assert_near(rms_norm(x, weight, EPS), expected, kind)


def check_strided_heads() -> None:
    """The query heads of a merged projection: a view whose tokens are further apart."""
    random = np.random.default_rng(1)
    merged, weight = draw(random, 3, 7, 48, kind=torch.bfloat16), draw(random, 48, kind=torch.float32)
    expected = reference.rms_norm(merged[:, 2:5].double().numpy(), weight.double().numpy(), EPS)
    got = rms_norm(merged[:, 2:5], weight, EPS)
    assert got.is_contiguous()
    assert_near(got, expected, torch.bfloat16)


def check_adding_is_two_steps_in_one() -> None:
    for kind in FLOATS:
        for rows, size in ((0, 64), (1, 1), (3, 65), (2, 576)):
            random = np.random.default_rng(rows + size)
            wide = draw(random, rows, size + 5, kind=kind)
            x, residual, weight = (
                wide[:, :size],
                draw(random, rows, size, kind=kind, scale=9),
                draw(random, size, kind=kind),
            )
            normed, total = add_rms_norm(x, residual, weight, EPS)
            assert_near(total, (x.double() + residual.double()).numpy(), kind)
            assert torch.equal(normed, rms_norm(total, weight, EPS)), "the norm is of the rounded sum"


def check_extremes() -> None:
    zeros = rms_norm(torch.zeros(1, 64), torch.ones(64), EPS)
    assert torch.equal(zeros, torch.zeros(1, 64))
    huge = rms_norm(torch.full((1, 64), 6e4, dtype=torch.float16), torch.ones(64, dtype=torch.float16), EPS)
    assert torch.equal(huge, torch.ones(1, 64, dtype=torch.float16)), "the squares are summed in float32"


def check_rows_do_not_depend_on_each_other() -> None:
    random = np.random.default_rng(2)
    x, weight = draw(random, 5, 576, kind=torch.bfloat16), draw(random, 576, kind=torch.bfloat16)
    assert all(torch.equal(rms_norm(x, weight, EPS)[i], rms_norm(x[i : i + 1], weight, EPS)[0]) for i in range(5))


if __name__ == "__main__":
    for name, check in list(globals().items()):
        if name.startswith("check_"):
            check()
            print(name)
