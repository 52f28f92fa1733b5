"""Putting the tensors of a model file into the weights of a module, each exactly once."""

from __future__ import annotations

from collections.abc import Iterable, Set
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import nn

from sglang_lite.errors import ModelLoadError
from sglang_lite.runtime.model.tensors import SixteenBits, SourceTensor, TensorSource

_CHUNK_FLOATS = 1 << 22
"""Floats converted at once, 16 MiB: loading needs little more memory than the weights themselves."""


@dataclass(frozen=True)
class WeightPart:
    """One tensor of a file and the rows of a weight that it fills.

    Attributes:
        source: name in the file.
        target: attribute path in the module: a `LinearMethod` or a parameter.
        shape: expected shape, torch order.
        first: first row of the target.
        order: row i of the target is row `order[i]` of the source; None keeps the order.
        plus: added to each value, of a parameter only.
        optional: the file may lack it, the target then keeps its initial value.

    """

    source: str
    target: str
    shape: tuple[int, ...]
    first: int = 0
    order: np.ndarray | None = field(default=None, compare=False)
    plus: float = 0.0
    optional: bool = False


def interleaved_order(heads: int, head_dim: int) -> np.ndarray:
    """Rows of a projection whose rotary pairs lie side by side, in the order that pairs the two halves of each head.

    int64 [heads * head_dim]; `heads` is the projection's own count (kv heads for keys).
    """
    return np.arange(heads * head_dim).reshape(heads, head_dim // 2, 2).transpose(0, 2, 1).ravel()


def copy_rows(target: np.ndarray, tensor: SourceTensor, order: np.ndarray | None) -> None:
    """Write a tensor's values into `target`, float32 of its shape; row i becomes the tensor's row `order[i]` (None: i)."""
    if order is not None:
        np.take(tensor.dequantize(), order, axis=0, out=target)
        return
    rows = max(1, _CHUNK_FLOATS // max(1, target[0].size)) if len(target) else 1
    for first in range(0, len(target), rows):
        target[first : first + rows] = tensor.dequantize(first, min(first + rows, len(target)))


def store_rows(target: torch.Tensor, tensor: SourceTensor, order: np.ndarray | None, plus: float = 0.0) -> None:
    """Write a tensor's values, each with `plus` added, into `target`, of its shape, on any device and of any type.

    Row i becomes the tensor's row `order[i]` (None: i). Values of 16 bits go to the device as they are stored; others
    are made float32 in pieces. Values are rounded once, to the type of `target`.
    """
    if target.device.type == "cpu" and target.dtype == torch.float32:
        rows = target.numpy()
        copy_rows(rows, tensor, order)
        if plus:
            rows += plus
        return
    if order is not None:
        target.copy_(torch.from_numpy(tensor.dequantize()[order]).add_(plus))
        return
    rows = max(1, _CHUNK_FLOATS // max(1, target[0].numel())) if len(target) else 1
    for first in range(0, len(target), rows):
        last = min(first + rows, len(target))
        target[first:last].copy_(_host_rows(tensor, first, last, plus))


def _host_rows(tensor: SourceTensor, first: int, last: int, plus: float) -> torch.Tensor:
    """Rows in main memory, in a type that holds them exactly."""
    bits = tensor.bits(first, last) if isinstance(tensor, SixteenBits) and not plus else None
    if bits is not None:
        kind = torch.bfloat16 if bits.is_bfloat else torch.float16
        return torch.from_numpy(bits.values.astype(np.int16)).view(kind)
    # A copy only of what is the file's own memory.
    rows = torch.from_numpy(np.require(tensor.dequantize(first, last), requirements="W"))
    return rows.add_(plus) if plus else rows


def fill(module: nn.Module, parts: Iterable[WeightPart], source: TensorSource, ignored: Set[str] = frozenset()) -> None:
    """Load every part; parts are checked against the file before the first is read.

    Args:
        module: what is filled.
        parts: which tensor goes where.
        source: the tensors.
        ignored: names of tensors that no part takes and that change no result.

    Raises:
        ModelLoadError: a tensor is missing, left over or of another shape; all such tensors are counted, the first are named.

    """
    tensors = source.tensors
    parts = [part for part in parts if not part.optional or part.source in tensors]
    wanted = {part.source for part in parts}
    assert len(wanted) == len(parts), "a tensor is named twice in the weight mapping"
    if missing := [part.source for part in parts if part.source not in tensors]:
        raise ModelLoadError(
            f"{source.path}: {_counted('missing tensor', missing)}; the model is incomplete, download it again"
        )
    if extra := [name for name in tensors if name not in wanted and name not in ignored]:
        raise ModelLoadError(
            f"{tensors[extra[0]].path}: {_counted('unexpected tensor', extra)};"
            " this model is not quite the one its configuration names"
        )
    for part in parts:
        tensor = tensors[part.source]
        if tensor.shape != part.shape:
            raise ModelLoadError(
                f"{tensor.path}: tensor {part.source!r} has shape {tensor.shape}, the configuration asks for {part.shape}"
            )
    for part in parts:
        _load(module, part, tensors[part.source])


def _load(module: nn.Module, part: WeightPart, tensor: SourceTensor) -> None:
    owner_name, _, name = part.target.rpartition(".")
    target = getattr(module.get_submodule(owner_name), name)
    if isinstance(target, nn.Parameter):
        store_rows(target.data[part.first : part.first + part.shape[0]], tensor, part.order, part.plus)
    else:
        target.load_rows(part.first, tensor, part.order)


def _counted(what: str, names: list[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:3])
    return f"{len(names)} {what}{'s' if len(names) > 1 else ''}: {shown}{' ...' if len(names) > 3 else ''}"
