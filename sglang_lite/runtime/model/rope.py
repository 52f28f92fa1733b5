"""Rotary positions: the variants of their frequencies, the tables, the rotation. Knows no file format."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import nn

from sglang_lite.runtime.model import gpu

RopeKind = Literal["default", "linear", "dynamic", "llama3", "yarn"]
ROPE_KINDS: tuple[str, ...] = get_args(RopeKind)

_BLOCK = 1024
"""Positions computed at once: the tables grow by whole blocks, so a row never depends on when it was computed."""


@dataclass(frozen=True)
class RopeConfig:
    """A variant and its numbers.

    `default`: frequencies `theta ** (-2 i / head_dim)`. `linear`: all divided by `factor`. `llama3`: low ones divided
    by `factor`, high ones kept, smooth between wavelengths `original_max / high_freq_factor` and `/ low_freq_factor`.
    `yarn` (arXiv 2309.00071): a linear ramp from divided to kept between the dimensions that turn `beta_slow` and
    `beta_fast` times within `original_max`. `dynamic` (NTK): beyond `original_max` theta grows with the position.

    Attributes:
        kind: the variant.
        theta: base of the frequencies.
        factor: how many times longer the context became.
        original_max: context before scaling, in tokens.
        low_freq_factor: see `llama3`.
        high_freq_factor: see `llama3`.
        beta_fast: see `yarn`.
        beta_slow: see `yarn`.
        truncate: `yarn` rounds the ends of its ramp to whole dimensions.
        attention_factor: factor on queries and keys after rotation.

    """

    kind: RopeKind = "default"
    theta: float = 10000.0
    factor: float = 1.0
    original_max: int = 0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    truncate: bool = True
    attention_factor: float = 1.0

    def max_position(self, stated: int) -> int:
        """The longest context, where the file states `stated` tokens.

        Files state the context before scaling for `linear` and `dynamic`, either one for `yarn`, the final one else.
        """
        if self.kind in ("linear", "dynamic"):
            return int(stated * self.factor)
        return max(stated, int(self.original_max * self.factor)) if self.kind == "yarn" else stated

    def frequencies(self, head_dim: int, positions: torch.Tensor) -> torch.Tensor:
        """Angle per token, float64 [head_dim / 2] or, where it depends on the position, [positions, head_dim / 2].

        `dynamic`: the token at position p turns as the last one of p + 1 tokens. Keys are cached and shared, so a
        token's rotation may depend on nothing that comes after it; this is what decoding token by token gives.
        """
        steps = torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim
        if self.kind == "dynamic":
            length = (positions.double() + 1).clamp(min=self.original_max)
            stretch = self.factor * length / self.original_max - (self.factor - 1)
            bases = self.theta * stretch ** (head_dim / (head_dim - 2))
            return bases[:, None] ** -steps
        plain = self.theta**-steps
        if self.kind == "linear":
            return plain / self.factor
        if self.kind == "llama3":
            return plain * self._llama3_share(plain)
        return self._yarn(plain, head_dim) if self.kind == "yarn" else plain

    def _llama3_share(self, plain: torch.Tensor) -> torch.Tensor:
        turns = self.original_max * plain / (2 * math.pi)
        smooth = (turns - self.low_freq_factor) / (self.high_freq_factor - self.low_freq_factor)
        return torch.lerp(torch.full_like(plain, 1 / self.factor), torch.ones_like(plain), smooth.clamp(0, 1))

    def _yarn(self, plain: torch.Tensor, head_dim: int) -> torch.Tensor:
        def dimension(turns: float) -> float:
            return head_dim * math.log(self.original_max / (turns * 2 * math.pi)) / (2 * math.log(self.theta))

        low, high = dimension(self.beta_fast), dimension(self.beta_slow)
        if self.truncate:
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0), min(high, head_dim - 1)
        width = high - low if high != low else 0.001
        ramp = ((torch.arange(head_dim // 2, dtype=torch.float64) - low) / width).clamp(0, 1)
        return torch.lerp(plain, plain / self.factor, ramp)


PLAIN_ROPE = RopeConfig()


def yarn_attention_factor(factor: float, mscale: float | None = None, mscale_all_dim: float | None = None) -> float:
    """What `yarn` multiplies queries and keys by unless the file says otherwise (arXiv 2309.00071, section 3.4)."""

    def scale(weight: float) -> float:
        return 0.1 * weight * math.log(factor) + 1.0 if factor > 1 else 1.0

    return scale(mscale) / scale(mscale_all_dim) if mscale and mscale_all_dim else scale(1.0)


class RotaryEmbedding(nn.Module):
    """Rotates the two halves of each head by angles that grow with the position (the NeoX order).

    Angles are computed in float64 on the CPU, their cosines and sines kept as float32 tables, where `freq_factors` are, that
    grow with the longest sequence.

    Attributes:
        freq_factors: float32 [head_dim / 2], each frequency is divided by its factor (1 unless the file says otherwise).

    """

    def __init__(self, rope: RopeConfig, head_dim: int) -> None:
        super().__init__()
        self._rope = rope
        self._head_dim = head_dim
        self.freq_factors = nn.Parameter(torch.ones(head_dim // 2), requires_grad=False)
        self._cos = torch.empty(0, head_dim // 2, device="cpu")
        self._sin = torch.empty(0, head_dim // 2, device="cpu")

    def tables(self, length: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Cosines and sines, float32 [n, head_dim / 2] with n >= `length`; call it when `freq_factors` is final."""
        have = len(self._cos) // _BLOCK
        wanted = -(-length // _BLOCK)
        if wanted > have:
            device = self.freq_factors.device
            blocks = [self._block(number) for number in range(have, max(wanted, 2 * have))]
            self._cos = torch.cat([self._cos.to(device), *(cos.to(device) for cos, _ in blocks)])
            self._sin = torch.cat([self._sin.to(device), *(sin.to(device) for _, sin in blocks)])
        return self._cos, self._sin

    def angles(self, positions: torch.Tensor, length: int) -> tuple[torch.Tensor, torch.Tensor]:
        """For int64 positions [T] below `length`, what `rotate` and the GPU's kernel take; shared by all layers of a step.

        float32 cosines and signed sines [T, 1, head_dim]; on a GPU the rows of the tables, [T, head_dim / 2].
        """
        cos, sin = (table[positions] for table in self.tables(length))
        if gpu.is_on_gpu(positions):
            return cos, sin
        return torch.cat((cos, cos), dim=-1).unsqueeze(1), torch.cat((-sin, sin), dim=-1).unsqueeze(1)

    def _block(self, number: int) -> tuple[torch.Tensor, torch.Tensor]:
        positions = torch.arange(number * _BLOCK, (number + 1) * _BLOCK)
        frequencies = self._rope.frequencies(self._head_dim, positions) / self.freq_factors.cpu().double()
        angles = positions.double()[:, None] * frequencies
        factor = self._rope.attention_factor
        return (angles.cos() * factor).float(), (angles.sin() * factor).float()

    @staticmethod
    def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        """Rotate x [T, heads, head_dim]."""
        half = x.shape[-1] // 2
        swapped = torch.cat((x[..., half:], x[..., :half]), dim=-1)
        return torch.addcmul(x * cos, swapped, sin)
