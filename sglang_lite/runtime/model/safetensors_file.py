"""A safetensors file opened for reading, or the shards of a model folder as one. Knows nothing of models."""

from __future__ import annotations

import json
import math
import mmap
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from sglang_lite.errors import ModelLoadError
from sglang_lite.runtime.model.tensors import Bits

INDEX_NAME = "model.safetensors.index.json"
SINGLE_NAME = "model.safetensors"

_MAX_HEADER_BYTES = 100_000_000  # the format's own limit
# Storage types that become float32. Bfloat16 is the upper half of a float32, and numpy has no name for it.
_DTYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}


@dataclass(frozen=True)
class SafetensorsTensor:
    """One tensor of an open file; see `SourceTensor`.

    Attributes:
        name: name in the file.
        path: the file.
        shape: dimensions.
        dtype: storage type, one of F64, F32, F16, BF16.

    """

    name: str
    path: Path
    shape: tuple[int, ...]
    dtype: str
    _stored: np.ndarray = field(repr=False, compare=False)

    def dequantize(self, first: int = 0, last: int | None = None) -> np.ndarray:
        """Rows `first` to `last` (not included; None: all) as float32; exact for all types but F64."""
        stored = self._stored[first:last]
        if self.dtype == "BF16":
            return (stored.astype(np.uint32) << 16).view(np.float32)
        return stored.astype(np.float32, copy=False)

    def bits(self, first: int, last: int) -> Bits | None:
        """See `SixteenBits`."""
        if self.dtype not in ("BF16", "F16"):
            return None
        return Bits(self._stored[first:last].view(np.int16), self.dtype == "BF16")


class SafetensorsFile:
    """A safetensors file, memory-mapped.

    Attributes:
        path: the file.
        tensors: name -> tensor, in file order.

    Raises:
        ModelLoadError: not a safetensors file, cut short, or holding a tensor of a type that no weight is made from.

    """

    def __init__(self, path: Path) -> None:
        self.path = path
        data = _map(path)
        header, start = _header(path, data)
        self.tensors: dict[str, SafetensorsTensor] = {}
        end_of_data = 0
        for name, entry in header.items():
            if name == "__metadata__":
                continue
            dtype, shape, first, last = _entry(path, name, entry)
            if start + last > len(data):
                raise ModelLoadError(
                    f"{path}: the file is cut short: tensor {name!r} ends at byte {start + last}, the file has {len(data)};"
                    " download it again"
                )
            end_of_data = max(end_of_data, last)
            stored = np.frombuffer(data, dtype=_DTYPES[dtype], count=math.prod(shape), offset=start + first)
            self.tensors[name] = SafetensorsTensor(name, path, shape, dtype, stored.reshape(shape))
        if start + end_of_data != len(data):
            raise ModelLoadError(
                f"{path}: the tensors end at byte {start + end_of_data}, the file has {len(data)}; it is damaged,"
                " download it again"
            )


class SafetensorsFolder:
    """The weights of a model folder: `model.safetensors`, or the shards that its index names.

    Attributes:
        path: the folder.
        tensors: name -> tensor, of all shards.

    Raises:
        ModelLoadError: a shard is missing or damaged, lacks a tensor that the index says it has, or there is none.

    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.tensors: dict[str, SafetensorsTensor] = {}
        index = path / INDEX_NAME
        if not index.is_file():
            self.tensors |= SafetensorsFile(_only_file(path)).tensors
            return
        places = _read_index(index)
        shards = sorted(set(places.values()))
        if missing := [shard for shard in shards if not (path / shard).is_file()]:
            shown = ", ".join(missing[:3]) + (" ..." if len(missing) > 3 else "")
            first = next(name for name, shard in places.items() if shard == missing[0])
            raise ModelLoadError(
                f"{path}: {len(missing)} of {len(shards)} shards are missing: {shown} (with tensor {first!r} and others);"
                " download the model again"
            )
        for shard in shards:
            for name, tensor in SafetensorsFile(path / shard).tensors.items():
                if name in self.tensors:
                    raise ModelLoadError(f"{tensor.path}: tensor {name!r} is also in {self.tensors[name].path.name}")
                self.tensors[name] = tensor
        for name, shard in places.items():
            if name not in self.tensors or self.tensors[name].path.name != shard:
                raise ModelLoadError(
                    f"{path / shard}: tensor {name!r} is missing, {INDEX_NAME} says that this shard has it;"
                    " download the model again"
                )


def _map(path: Path) -> mmap.mmap:
    try:
        with path.open("rb") as file:
            if file.seek(0, 2) == 0:
                raise ModelLoadError(f"{path}: the file is empty; download it again")
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as error:
        raise ModelLoadError(f"{path}: the model file cannot be read ({error.strerror or error})") from error


def _header(path: Path, data: mmap.mmap) -> tuple[dict[str, Any], int]:
    """The table of tensors and the first byte of the data."""
    size: int = struct.unpack("<Q", data[:8])[0] if len(data) >= 8 else 0
    if not 2 <= size <= _MAX_HEADER_BYTES or data[8:9] != b"{":
        raise ModelLoadError(f"{path}: not a safetensors file (its first bytes give no header)")
    if 8 + size > len(data):
        raise ModelLoadError(
            f"{path}: the file is cut short: its header has {size} bytes, the file {len(data)}; download it again"
        )
    try:
        header = json.loads(data[8 : 8 + size])
    except ValueError as error:
        raise ModelLoadError(f"{path}: the header is no JSON ({error}); the file is damaged") from error
    if not isinstance(header, dict):
        raise ModelLoadError(f"{path}: the header is no table of tensors; the file is damaged")
    return header, 8 + size


def _entry(path: Path, name: str, entry: Any) -> tuple[str, tuple[int, ...], int, int]:
    """Type, shape and place of one tensor, checked against each other."""
    try:
        dtype, shape, (first, last) = entry["dtype"], tuple(entry["shape"]), entry["data_offsets"]
        sound = all(isinstance(n, int) and n >= 0 for n in (*shape, first, last))
    except (TypeError, KeyError, ValueError):
        dtype, shape, first, last, sound = "", (), 0, 0, False
    if not sound:
        raise ModelLoadError(f"{path}: the entry of tensor {name!r} is damaged; download the file again")
    if dtype not in _DTYPES:
        raise ModelLoadError(
            f"{path}: tensor {name!r} is stored as {dtype}, expected one of {', '.join(_DTYPES)};"
            " for quantised weights use a GGUF file of this model"
        )
    if last - first != math.prod(shape) * np.dtype(_DTYPES[dtype]).itemsize:
        raise ModelLoadError(
            f"{path}: tensor {name!r} of shape {shape} and type {dtype} has {last - first} bytes; the file is damaged"
        )
    return dtype, shape, first, last


def _only_file(folder: Path) -> Path:
    if (folder / SINGLE_NAME).is_file():
        return folder / SINGLE_NAME
    found = sorted(folder.glob("*.safetensors"))
    if len(found) == 1:
        return found[0]
    if found:
        raise ModelLoadError(
            f"{folder}: {len(found)} safetensors files and no {INDEX_NAME} that says what is where; download the model again"
        )
    pickled = any(folder.glob("*.bin")) or any(folder.glob("*.pt*"))
    remedy = "convert its pickled weights to safetensors first" if pickled else "download the model again"
    raise ModelLoadError(f"{folder}: no safetensors file; {remedy}")


def _read_index(path: Path) -> Mapping[str, str]:
    """Tensor name -> file name in the same folder."""
    try:
        places = json.loads(path.read_bytes())["weight_map"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelLoadError(f"{path}: not readable as an index of shards ({error!r}); download it again") from error
    if not isinstance(places, dict) or not places:
        raise ModelLoadError(f"{path}: 'weight_map' names no tensor; download it again")
    for name, shard in places.items():
        if not isinstance(shard, str) or Path(shard).name != shard:
            raise ModelLoadError(f"{path}: tensor {name!r} is placed in {shard!r}, expected a file in the same folder")
    return places
