"""What a model file offers to whoever fills weights: named tensors that become float32. Knows no file format."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

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
