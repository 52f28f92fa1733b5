"""What a model file offers to whoever fills weights: named tensors that become float32. Knows no file format."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np


class SourceTensor(Protocol):
    """One tensor of a model file, not read yet."""

    @property
    def name(self) -> str:
        """Name in the file."""
        ...

    @property
    def path(self) -> Path:
        """The file."""
        ...

    @property
    def shape(self) -> tuple[int, ...]:
        """Dimensions in torch order."""
        ...

    def dequantize(self, first: int = 0, last: int | None = None) -> np.ndarray:
        """Rows `first` to `last` (not included; None: all) as float32; may be a read-only view of the file.

        Raises:
            ModelLoadError: the storage type cannot be turned into float32.
        """
        ...


@dataclass(frozen=True)
class Bits:
    """Numbers of 16 bits as they are stored: `values` int16 or uint16; bfloat16, or float16."""

    values: np.ndarray
    is_bfloat: bool


@runtime_checkable
class SixteenBits(Protocol):
    """A tensor that may be stored in numbers of 16 bits."""

    def bits(self, first: int, last: int) -> Bits | None:
        """Rows `first` to `last` (not included), a view of the file; None where they are stored otherwise."""
        ...


@runtime_checkable
class StoredTensor(Protocol):
    """A tensor whose storage has a name of its own, with its bytes."""

    @property
    def storage(self) -> str:
        """Name of the storage, such as `Q4_1`."""
        ...

    def raw(self) -> np.ndarray:
        """The stored bytes, uint8 `[*shape[:-1], bytes per row]`, read-only."""
        ...


class TensorSource(Protocol):
    """A model file, or several that belong together.

    Attributes:
        path: what errors name: the file, or the folder of the files.
        tensors: by name, in file order.
    """

    @property
    def path(self) -> Path:
        """See the class."""
        ...

    @property
    def tensors(self) -> Mapping[str, SourceTensor]:
        """See the class."""
        ...
