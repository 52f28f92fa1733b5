"""Filling a module from named tensors: everything once, checked before the first is read."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from sglang_lite.errors import ModelLoadError
from sglang_lite.runtime.model import weights
from sglang_lite.runtime.model.linear import Fp32Linear
from sglang_lite.runtime.model.weights import WeightPart, copy_rows, fill, interleaved_order


@dataclass
class Tensor:
    """A tensor in memory; counts the most rows that were asked for at once."""

    name: str
    values: np.ndarray
    path: Path = Path("part.file")
    most: int = 0

    @property
    def shape(self) -> tuple[int, ...]:
        return self.values.shape

    def dequantize(self, first: int = 0, last: int | None = None) -> np.ndarray:
        rows = self.values[first:last]
        self.most = max(self.most, len(rows))
        return rows


@dataclass
class Source:
    tensors: dict[str, Tensor]
    path: Path = field(default=Path("folder"))


class Module(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Module()
        self.inner.both = Fp32Linear(3, 6)
        self.inner.bias = nn.Parameter(torch.full((6,), -1.0), requires_grad=False)


A, B = np.arange(12, dtype=np.float32).reshape(4, 3), np.full((2, 3), 7, dtype=np.float32)
ORDER = np.array([3, 1, 0, 2])
PARTS = [
    WeightPart("a", "inner.both", (4, 3), order=ORDER),
    WeightPart("b", "inner.both", (2, 3), first=4),
    WeightPart("bias", "inner.bias", (2,), first=4, plus=1.0, optional=True),
]


def source(**changes: np.ndarray) -> Source:
    return Source({name: Tensor(name, values) for name, values in ({"a": A, "b": B} | changes).items()})


def test_parts_go_to_their_rows_in_their_order() -> None:
    module = Module()
    fill(module, PARTS, source(bias=np.array([0.5, 2.0], dtype=np.float32)))
    assert np.array_equal(module.inner.both.weight.numpy(), np.concatenate((A[ORDER], B)))
    assert module.inner.bias.tolist() == [-1, -1, -1, -1, 1.5, 3.0]


def test_an_optional_part_may_be_absent() -> None:
    module = Module()
    fill(module, PARTS, source())
    assert module.inner.bias.tolist() == [-1] * 6


def test_what_is_ignored_is_no_left_over() -> None:
    with pytest.raises(ModelLoadError, match=r"part\.file: 1 unexpected tensor: 'c'"):
        fill(Module(), PARTS, source(c=B))
    fill(Module(), PARTS, source(c=B), ignored={"c"})


def test_faults_are_found_before_anything_is_read() -> None:
    broken = source(b=np.zeros((2, 4), dtype=np.float32))
    with pytest.raises(
        ModelLoadError, match=r"part\.file: tensor 'b' has shape \(2, 4\), the configuration asks for \(2, 3\)"
    ):
        fill(Module(), PARTS, broken)
    assert broken.tensors["a"].most == 0
    with pytest.raises(ModelLoadError, match=r"folder: 2 missing tensors: 'a', 'b'"):
        fill(Module(), PARTS, Source({}))


def test_large_tensors_are_converted_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loading must not need a second copy of an embedding."""
    monkeypatch.setattr(weights, "_CHUNK_FLOATS", 7)
    tensor, target = Tensor("a", A), np.zeros_like(A)
    copy_rows(target, tensor, None)
    assert np.array_equal(target, A)
    assert tensor.most == 2


def test_the_interleaved_order_pairs_the_halves_of_each_head() -> None:
    assert interleaved_order(2, 4).tolist() == [0, 2, 1, 3, 4, 6, 5, 7]
