"""A GGUF file opened for reading: metadata and where each tensor's bytes lie. Knows nothing of models or tokenizers."""

from __future__ import annotations

import math
import mmap
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize

from sglang_lite.errors import ModelLoadError

_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_DEFAULT_ALIGNMENT = 32
_MAX_DIMS = 4

# Value type numbers of the GGUF format.
_BOOL, _STRING, _ARRAY = 7, 8, 9
_SCALARS = {
    0: "<u1",
    1: "<i1",
    2: "<u2",
    3: "<i2",
    4: "<u4",
    5: "<i4",
    6: "<f4",
    7: "<u1",
    10: "<u8",
    11: "<i8",
    12: "<f8",
}


@dataclass(frozen=True)
class GgufTensor:
    """One tensor of an open file.

    Attributes:
        name: name in the file.
        shape: dimensions in torch order (the file stores them reversed).
        ggml_type: storage type.
        offset: first byte of the data, counted from the start of the file.
        n_bytes: length of the data.
    """

    name: str
    shape: tuple[int, ...]
    ggml_type: GGMLQuantizationType
    offset: int
    n_bytes: int
    _file: Path = field(repr=False)
    _buffer: np.ndarray = field(repr=False, compare=False)

    def raw(self) -> np.ndarray:
        """The stored bytes as a read-only uint8 view `[*shape[:-1], bytes per row]`; no copy."""
        flat = self._buffer[self.offset : self.offset + self.n_bytes]
        return flat.reshape(*self.shape[:-1], -1) if self.shape else flat

    @property
    def path(self) -> Path:
        """The file."""
        return self._file

    @property
    def storage(self) -> str:
        """Name of the storage type."""
        return self.ggml_type.name

    def dequantize(self, first: int = 0, last: int | None = None) -> np.ndarray:
        """Rows `first` to `last` (not included; None: all) as float32; a read-only view where the file stores float32.

        Raises:
            ModelLoadError: the storage type has no dequantiser.
        """
        raw = self.raw()[first:last] if len(self.shape) > 1 else self.raw()
        try:
            values = dequantize(raw, self.ggml_type)
        except NotImplementedError:
            raise ModelLoadError(
                f"{self._file}: tensor {self.name!r} is stored as {self.ggml_type.name}, which cannot be turned into float32;"
                " use a file with another quantisation (Q4_1, Q8_0, Q4_K, F16 ...)"
            ) from None
        return values.reshape(-1, *self.shape[1:]) if len(self.shape) > 1 else values.reshape(self.shape)[first:last]


class GgufFile:
    """A little-endian GGUF file of version 2 or 3, memory-mapped.

    Attributes:
        path: the file.
        version: format version.
        metadata: key -> int, float, bool, str, or a list of these.
        tensors: name -> tensor, in file order.

    Raises:
        ModelLoadError: not a GGUF file, cut short, or holding a value or tensor of an unknown type.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        reader = _Reader(self.path, _map(self.path))
        if reader.take(4) != _MAGIC:
            raise ModelLoadError(f"{self.path}: not a GGUF file (it does not start with 'GGUF')")
        self.version: int = reader.scalar("<I")
        if self.version not in _VERSIONS:
            hint = "; it may be big-endian" if self.version > 0xFFFF else ""
            raise ModelLoadError(f"{self.path}: GGUF version {self.version} is not supported (known: 2 and 3){hint}")
        n_tensors, n_values = reader.scalar("<Q"), reader.scalar("<Q")
        self.metadata: dict[str, Any] = {}
        for _ in range(n_values):
            key = reader.string("a metadata key")
            if key in self.metadata:
                raise ModelLoadError(f"{self.path}: metadata key {key!r} appears twice")
            self.metadata[key] = reader.value(key)
        infos = [reader.tensor_info() for _ in range(n_tensors)]
        alignment = self.metadata.get("general.alignment", _DEFAULT_ALIGNMENT)
        if not isinstance(alignment, int) or alignment < 1:
            raise ModelLoadError(f"{self.path}: general.alignment is {alignment!r}, expected a positive whole number")
        data_start = -(-reader.position // alignment) * alignment
        self.tensors: dict[str, GgufTensor] = {}
        buffer = np.frombuffer(reader.data, dtype=np.uint8)
        for info in infos:
            if info.name in self.tensors:
                raise ModelLoadError(f"{self.path}: tensor {info.name!r} appears twice")
            self.tensors[info.name] = info.locate(self.path, buffer, data_start)


@dataclass(frozen=True)
class _TensorInfo:
    """One entry of the tensor table as stored."""

    name: str
    shape: tuple[int, ...]
    type_number: int
    offset: int

    def locate(self, path: Path, buffer: np.ndarray, data_start: int) -> GgufTensor:
        """Check the entry against the file and resolve it to bytes."""
        try:
            ggml_type = GGMLQuantizationType(self.type_number)
            block, block_bytes = GGML_QUANT_SIZES[ggml_type]
        except (ValueError, KeyError):
            raise ModelLoadError(
                f"{path}: tensor {self.name!r} has the unknown storage type {self.type_number};"
                " the file may be damaged or newer than the installed 'gguf' package"
            ) from None
        row = self.shape[-1] if self.shape else 1
        if row % block:
            raise ModelLoadError(
                f"{path}: tensor {self.name!r} of shape {self.shape} has rows that are no multiple of the {ggml_type.name} block ({block})"
            )
        n_bytes = math.prod(self.shape) // block * block_bytes
        start = data_start + self.offset
        if start + n_bytes > len(buffer):
            raise ModelLoadError(
                f"{path}: the file is cut short: tensor {self.name!r} ends at byte {start + n_bytes}, the file has {len(buffer)};"
                " download it again"
            )
        return GgufTensor(self.name, self.shape, ggml_type, start, n_bytes, path, buffer)


def _map(path: Path) -> mmap.mmap:
    try:
        with path.open("rb") as file:
            file.seek(0, 2)
            if file.tell() == 0:
                raise ModelLoadError(f"{path}: the file is empty; download it again")
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as error:
        raise ModelLoadError(f"{path}: the model file cannot be read ({error.strerror or error})") from error


class _Reader:
    """A cursor over the header; every read checks that the bytes exist."""

    def __init__(self, path: Path, data: mmap.mmap) -> None:
        self.path = path
        self.data = data
        self.size = len(data)
        self.position = 0

    def truncated(self, what: str) -> ModelLoadError:
        return ModelLoadError(
            f"{self.path}: the file is cut short or damaged: {what} at byte {self.position} runs past the end ({self.size} bytes);"
            " download it again"
        )

    def take(self, n: int, what: str = "the header") -> bytes:
        end = self.position + n
        if end > self.size:
            raise self.truncated(what)
        taken = self.data[self.position : end]
        self.position = end
        return taken

    def scalar(self, code: str, what: str = "the header") -> Any:
        return struct.unpack(code, self.take(struct.calcsize(code), what))[0]

    def string(self, what: str) -> str:
        return self._decode(self.take(self.scalar("<Q", what), what), what)

    def value(self, key: str) -> Any:
        """One metadata value with its type number in front."""
        what = f"metadata {key!r}"
        kind = self.scalar("<I", what)
        if kind == _STRING:
            return self.string(what)
        if kind == _ARRAY:
            return self._array(key, what)
        return self._scalars(kind, 1, key, what)[0]

    def tensor_info(self) -> _TensorInfo:
        name = self.string("a tensor name")
        what = f"the entry of tensor {name!r}"
        n_dims = self.scalar("<I", what)
        if n_dims > _MAX_DIMS:
            raise ModelLoadError(
                f"{self.path}: tensor {name!r} has {n_dims} dimensions (at most {_MAX_DIMS}); the file is damaged"
            )
        dims = [self.scalar("<Q", what) for _ in range(n_dims)]
        return _TensorInfo(name, tuple(reversed(dims)), self.scalar("<I", what), self.scalar("<Q", what))

    def _array(self, key: str, what: str) -> list[Any]:
        kind, count = self.scalar("<I", what), self.scalar("<Q", what)
        return self._strings(count, what) if kind == _STRING else self._scalars(kind, count, key, what)

    def _scalars(self, kind: int, count: int, key: str, what: str) -> list[Any]:
        code = _SCALARS.get(kind)
        if code is None:
            raise ModelLoadError(
                f"{self.path}: metadata {key!r} has the unknown value type {kind}; the file may be damaged"
            )
        values = np.frombuffer(self.take(np.dtype(code).itemsize * count, what), dtype=code)
        return (values != 0).tolist() if kind == _BOOL else values.tolist()

    def _strings(self, count: int, what: str) -> list[str]:
        """`count` strings; a tight loop, since a vocabulary has 1e5 of them."""
        if 8 * count > self.size - self.position:
            raise self.truncated(what)
        data, size, position = self.data, self.size, self.position
        read_length: Callable[..., tuple[int]] = struct.Struct("<Q").unpack_from
        pieces: list[bytes] = []
        for _ in range(count):
            start = position + 8
            if start > size:
                raise self.truncated(what)
            position = start + read_length(data, position)[0]
            if position > size:
                raise self.truncated(what)
            pieces.append(data[start:position])
        self.position = position
        return [self._decode(piece, what) for piece in pieces]

    def _decode(self, piece: bytes, what: str) -> str:
        try:
            return piece.decode()
        except UnicodeDecodeError as error:
            raise ModelLoadError(f"{self.path}: {what} is not valid UTF-8; the file is damaged") from error
