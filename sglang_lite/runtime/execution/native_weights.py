"""A model's weights in the order that the native step reads them: packed once, kept in a file beside other caches.

Knows the parts of a decoder; knows no step and no threads.
"""

from __future__ import annotations

import glob
import hashlib
import json
import logging
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from gguf.constants import GGMLQuantizationType
from gguf.quants import quantize

from sglang_lite.kernels.cpu.linear import FLOAT, FLOATS, PACKERS
from sglang_lite.kernels.cpu.linear_f32 import pack_f32
from sglang_lite.kernels.cpu.rope import pair_order
from sglang_lite.runtime.model.config import ModelConfig
from sglang_lite.runtime.model.gguf_file import GgufTensor
from sglang_lite.runtime.model.tensors import SourceTensor
from sglang_lite.runtime.model.weight_names import WeightSource, weight_parts
from sglang_lite.runtime.model.weights import WeightPart

logger = logging.getLogger(__name__)

_MAGIC = b"SGLPACK\n"
_FORMAT = 2
"""Raised whenever the packed order changes."""

_ALIGN = 64
_NORM = 0

_FORMER = 2
"""Packed files of the same model that stay beside a new one: two settings or two folders may take turns."""


@dataclass(frozen=True)
class PackedWeight:
    """A matrix as `kernels.cpu.linear` reads it, or a float32 vector. `kind`: its storage there, 0 for a vector."""

    kind: int
    data: np.ndarray

    @property
    def address(self) -> int:
        """Where it lies; it lives as long as `data`."""
        return self.data.ctypes.data


Weights = dict[str, PackedWeight]
"""By part: `embed`, `norm`, `head`, and `N.PART`, `N.PART_bias` with the parts of `weight_names`."""


def unsupported_weight(source: WeightSource, config: ModelConfig) -> str | None:
    """The first tensor that cannot be packed, and why; None if all can."""
    tensors = source.tensors.tensors
    parts = _parts(source, config)
    for part in parts.values():
        tensor = tensors.get(part.source)
        if tensor is None:
            return f"tensor {part.source!r} is missing"
        if tensor.shape != part.shape:
            return f"tensor {part.source!r} has shape {tensor.shape}, expected {part.shape}"
    expected = {part.source for part in parts.values()} | {source.names.freq_factors, *source.ignored}
    extra = next((name for name in tensors if name not in expected), None)
    return f"tensor {extra!r} is none of this architecture's" if extra else None


def load_weights(source: WeightSource, config: ModelConfig, cache_dir: Path) -> Weights:
    """All weights, from the packed file under `cache_dir` if there is one for this file, else packed now and kept there."""
    place = source.tensors.path
    path = cache_dir / "packed" / f"{place.stem}-{_fingerprint(source)}.bin"
    weights = _read(path)
    if weights is None:
        tensors = source.tensors.tensors
        parts = _parts(source, config)
        _warn_of_floats(source, parts)
        weights = {key: _pack(key, part, tensors[part.source], config, source.int8) for key, part in parts.items()}
        _write(path, weights)
        _drop_older(path, place.stem)
    return weights


def _parts(source: WeightSource, config: ModelConfig) -> dict[str, WeightPart]:
    """What is packed, by its key in `Weights`."""
    names = source.names
    keys = {names.embed: "embed", names.norm: "norm", names.head: "head"}
    for layer in range(config.num_layers):
        for part, name in names.parts.items():
            for kind, suffix in (("weight", ""), ("bias", "_bias")):
                keys[f"{names.layer.format(layer)}{name}.{kind}"] = f"{layer}.{part}{suffix}"
    return {keys[part.source]: part for part in weight_parts(config, names) if not part.optional}


def _storage(tensor: SourceTensor, int8: bool) -> str:
    if int8:
        return "Q8_0"
    return tensor.ggml_type.name if isinstance(tensor, GgufTensor) else "F32"


def _pack(key: str, part: WeightPart, tensor: SourceTensor, config: ModelConfig, int8: bool) -> PackedWeight:
    order = part.order
    which = key.rpartition(".")[2].removesuffix("_bias")
    if which in ("q", "k"):
        heads = config.num_heads if which == "q" else config.num_kv_heads
        columns = np.arange(heads * config.head_dim) if order is None else order
        order = columns.reshape(heads, config.head_dim)[:, pair_order(config.head_dim)].ravel()
    elif which in ("q_norm", "k_norm"):
        order = pair_order(config.head_dim)
    if len(tensor.shape) == 1:
        values = tensor.dequantize() + np.float32(part.plus)
        return PackedWeight(_NORM, np.ascontiguousarray(values if order is None else values[order]))
    storage = _storage(tensor, int8)
    if storage not in PACKERS:
        values = tensor.dequantize()
        return PackedWeight(FLOAT, pack_f32(values if order is None else values[order]))
    kind, pack = PACKERS[storage]
    raw = quantize(tensor.dequantize(), GGMLQuantizationType.Q8_0) if int8 else _raw(tensor)
    return PackedWeight(kind, pack(raw if order is None else raw[order]))


def _raw(tensor: SourceTensor) -> np.ndarray:
    assert isinstance(tensor, GgufTensor), f"tensor {tensor.name!r} is not from a GGUF file"
    return tensor.raw()


def _warn_of_floats(source: WeightSource, parts: Mapping[str, WeightPart]) -> None:
    """Storages without a product of their own take the memory of float32."""
    kinds: dict[str, int] = {}
    for part in parts.values():
        storage = _storage(source.tensors.tensors[part.source], source.int8)
        if len(part.shape) == 2 and storage not in PACKERS and storage not in FLOATS:
            kinds[storage] = kinds.get(storage, 0) + 4 * part.shape[0] * part.shape[1]
    if kinds:
        logger.warning(
            "%s: weights stored as %s have no kernel and are kept as float32, which takes %.0f MB; a file in %s needs less",
            source.tensors.path.name,
            ", ".join(sorted(kinds)),
            sum(kinds.values()) / 1e6,
            ", ".join(sorted(PACKERS)),
        )


def _fingerprint(source: WeightSource) -> str:
    """Of the files' places, sizes, times and tensors, and of samples of their bytes."""
    digest = hashlib.sha256(f"{_FORMAT} {source.int8}".encode())
    tensors = source.tensors.tensors.values()
    for path in sorted({tensor.path for tensor in tensors}):
        stat = path.stat()
        digest.update(f"{path.resolve()} {stat.st_size} {stat.st_mtime_ns}".encode())
    for tensor in tensors:
        digest.update(f"{tensor.name} {tensor.shape} {_storage(tensor, source.int8)}".encode())
        if isinstance(tensor, GgufTensor):
            digest.update(f"{tensor.offset}".encode())
            digest.update(tensor.raw().reshape(-1)[:256].tobytes())
        else:
            digest.update(tensor.dequantize(0, 1).reshape(-1)[:64].tobytes())
    return digest.hexdigest()[:16]


def _drop_older(path: Path, stem: str) -> None:
    """Remove packed weights of former states of the same model; loaded ones are in memory, so nobody needs the file."""
    former = [other for other in path.parent.glob(f"{glob.escape(stem)}-*.bin") if other != path]
    try:
        former.sort(key=lambda other: other.stat().st_mtime_ns)
        for other in former[: max(0, len(former) - _FORMER)]:
            other.unlink(missing_ok=True)
    except OSError as error:
        logger.debug("old packed weights stay: %s", error)


def _write(path: Path, weights: Weights) -> None:
    """Keep the weights in a file that appears whole or not at all; where that fails they are packed again next time."""
    entries, offset = {}, 0
    for name, weight in weights.items():
        entries[name] = (weight.kind, offset, weight.data.nbytes)
        offset += -(-weight.data.nbytes // _ALIGN) * _ALIGN
    header = json.dumps({"size": offset, "entries": entries}).encode()
    start = -(-(len(_MAGIC) + 8 + len(header)) // _ALIGN) * _ALIGN
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as out:
            out.write(_MAGIC + len(header).to_bytes(8, "little") + header)
            for name, weight in weights.items():
                out.seek(start + entries[name][1])
                out.write(weight.data.reshape(-1).view(np.uint8).data)
            out.truncate(start + offset)
        os.replace(out.name, path)
    except OSError as error:
        logger.warning("packed weights are not kept: %s cannot be written (%s)", path, error.strerror or error)


def _read(path: Path) -> Weights | None:
    """What `_write` kept; None if it is not there or not whole."""
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            if file.read(len(_MAGIC)) != _MAGIC:
                return None
            length = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(length))
            start = -(-(len(_MAGIC) + 8 + length) // _ALIGN) * _ALIGN
            if size != start + header["size"]:
                return None
            data = _aligned(header["size"])
            file.seek(start)
            if file.readinto(data.data) != header["size"]:
                return None
    except (OSError, ValueError, KeyError):
        return None
    return {
        name: PackedWeight(kind, data[offset : offset + n_bytes])
        for name, (kind, offset, n_bytes) in header["entries"].items()
    }


def _aligned(n_bytes: int) -> np.ndarray:
    """Uninitialised bytes that begin at a cache line; numpy asks for large memory pages, which a mapped file does not get."""
    flat = np.empty(n_bytes + _ALIGN, dtype=np.uint8)
    skip = -flat.ctypes.data % _ALIGN
    return flat[skip : skip + n_bytes]
