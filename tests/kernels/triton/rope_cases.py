"""Run with TRITON_INTERPRET=1: the rotation against its definition."""

from __future__ import annotations

import numpy as np
import torch

from sglang_lite.kernels.reference import rope as reference
from sglang_lite.kernels.triton.rope import rotate
from tests.kernels.triton.floats import FLOATS, assert_near, draw


def angles(tokens: int, half: int) -> tuple[torch.Tensor, torch.Tensor]:
    turns = torch.arange(tokens)[:, None] * 1.7 / (torch.arange(half) + 1)
    return turns.cos().float(), turns.sin().float()


def check_shapes() -> None:
    for kind in FLOATS:
        for tokens, heads, size in ((0, 2, 64), (1, 1, 2), (1, 9, 64), (3, 7, 80), (2, 16, 128), (2, 17, 96)):
            x = draw(np.random.default_rng(size), tokens, heads, size, kind=kind)
            cos, sin = angles(tokens, size // 2)
            expected = reference.rotate(x.double().numpy(), cos.double().numpy(), sin.double().numpy())
            assert_near(rotate(x, cos, sin), expected, kind)


def check_a_view_of_merged_heads() -> None:
    merged = draw(np.random.default_rng(3), 4, 12, 64, kind=torch.bfloat16)
    cos, sin = angles(4, 32)
    assert torch.equal(rotate(merged[:, 3:9], cos, sin), rotate(merged[:, 3:9].contiguous(), cos, sin))


def check_what_is_behind_the_rotary_part_stays() -> None:
    for size, half in ((80, 16), (64, 31), (96, 24)):
        x = draw(np.random.default_rng(size), 2, 3, size, kind=torch.float32)
        cos, sin = angles(2, half)
        got = rotate(x, cos, sin)
        turned = reference.rotate(x[..., : 2 * half].double().numpy(), cos.double().numpy(), sin.double().numpy())
        assert_near(got[..., : 2 * half], turned, torch.float32)
        assert torch.equal(got[..., 2 * half :], x[..., 2 * half :])


if __name__ == "__main__":
    for name, check in list(globals().items()):
        if name.startswith("check_"):
            check()
            print(name)
