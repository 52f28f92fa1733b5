"""Putting the tensors of a file into the weights of a module, each exactly once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from torch import nn

from sglang_lite.errors import ModelLoadError
from sglang_lite.runtime.model.gguf_file import GgufFile, GgufTensor


@dataclass(frozen=True)
class WeightPart:
    """One tensor of a file and the rows of a weight that it fills.

    Attributes:
        source: name in the file.
        target: attribute path in the module: a `LinearMethod` or a parameter.
        shape: expected shape, torch order.
        first: first row of the target.
        order: row i of the target is row `order[i]` of the source; None keeps the order.
        optional: the file may lack it, the target then keeps its initial value.

    """

    source: str
    target: str
    shape: tuple[int, ...]
    first: int = 0
    order: np.ndarray | None = field(default=None, compare=False)
    optional: bool = False


def interleaved_order(heads: int, head_dim: int) -> np.ndarray:
    """Rows of a projection whose rotary pairs lie side by side, in the order that pairs the two halves of each head.

    int64 [heads * head_dim]; `heads` is the projection's own count (kv heads for keys).
    """
    return np.arange(heads * head_dim).reshape(heads, head_dim // 2, 2).transpose(0, 2, 1).ravel()


def fill(module: nn.Module, parts: Iterable[WeightPart], file: GgufFile) -> None:
    """Load every part; parts are checked against the file before the first is read.

    Raises:
        ModelLoadError: a tensor is missing, left over or of another shape; all such tensors are counted, the first are named.

    """
    parts = [part for part in parts if not part.optional or part.source in file.tensors]
    wanted = {part.source for part in parts}
    assert len(wanted) == len(parts), "a tensor is named twice in the weight mapping"
    if missing := [part.source for part in parts if part.source not in file.tensors]:
        raise ModelLoadError(
            f"{file.path}: {_counted('missing tensor', missing)}; the file is incomplete, download it again"
        )
    if extra := [name for name in file.tensors if name not in wanted]:
        raise ModelLoadError(
            f"{file.path}: {_counted('unexpected tensor', extra)}; this model is not quite the one its metadata names"
        )
    for part in parts:
        shape = file.tensors[part.source].shape
        if shape != part.shape:
            raise ModelLoadError(
                f"{file.path}: tensor {part.source!r} has shape {shape}, the metadata asks for {part.shape}"
            )
    for part in parts:
        _load(module, part, file.tensors[part.source])


def _load(module: nn.Module, part: WeightPart, tensor: GgufTensor) -> None:
    owner_name, _, name = part.target.rpartition(".")
    target = getattr(module.get_submodule(owner_name), name)
    if isinstance(target, nn.Parameter):
        target.data.numpy()[:] = tensor.dequantize()
    else:
        target.load_rows(part.first, tensor, part.order)


def _counted(what: str, names: list[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:3])
    return f"{len(names)} {what}{'s' if len(names) > 1 else ''}: {shown}{' ...' if len(names) > 3 else ''}"
