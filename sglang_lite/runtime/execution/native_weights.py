"""A GGUF file's weights in the order that the native step reads them: packed once, kept in a file beside other caches.

Knows the tensors of a Llama; knows no step and no threads.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sglang_lite.kernels.cpu.linear import FLOAT, FLOATS, PACKERS
from sglang_lite.kernels.cpu.linear_f32 import pack_f32
from sglang_lite.kernels.cpu.rope import pair_order
from sglang_lite.runtime.model.config import ModelConfig
from sglang_lite.runtime.model.gguf_file import GgufFile, GgufTensor
from sglang_lite.runtime.model.weights import interleaved_order

logger = logging.getLogger(__name__)

_MAGIC = b"SGLPACK\n"
_FORMAT = 1
"""Raised whenever the packed order changes."""

_ALIGN = 64
_NORM = 0


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
"""By the tensors' names in the file."""


def unsupported_weight(file: GgufFile, config: ModelConfig) -> str | None:
    """The first tensor that cannot be packed, and why; None if all can."""
    for name in _names(file, config):
        tensor = file.tensors.get(name)
        if tensor is None:
            return f"tensor {name!r} is missing"
        kind = tensor.ggml_type.name
        if tensor.shape and len(tensor.shape) == 2:
            if kind not in PACKERS and kind not in FLOATS:
                return f"tensor {name!r} is stored as {kind}, for which there is no kernel"
            if tensor.shape[1] % 32:
                return f"tensor {name!r} has rows of {tensor.shape[1]}, not a multiple of 32"
    expected = {*_names(file, config), "rope_freqs.weight"}
    extra = next((name for name in file.tensors if name not in expected), None)
    return f"tensor {extra!r} is none of a plain Llama's" if extra else None


def load_weights(file: GgufFile, config: ModelConfig, cache_dir: Path) -> Weights:
    """All weights, from the packed file under `cache_dir` if there is one for this file, else packed now and kept there."""
    path = cache_dir / "packed" / f"{file.path.stem}-{_fingerprint(file)}.bin"
    weights = _read(path)
    if weights is None:
        weights = {name: _pack(name, file.tensors[name], config) for name in _names(file, config)}
        _write(path, weights)
    return weights


def _names(file: GgufFile, config: ModelConfig) -> Iterator[str]:
    yield "token_embd.weight"
    yield "output_norm.weight"
    if "output.weight" in file.tensors:
        yield "output.weight"
    for i in range(config.num_layers):
        for part in ("attn_norm", "attn_q", "attn_k", "attn_v", "attn_output"):
            yield f"blk.{i}.{part}.weight"
        for part in ("ffn_norm", "ffn_gate", "ffn_up", "ffn_down"):
            yield f"blk.{i}.{part}.weight"


def _pack(name: str, tensor: GgufTensor, config: ModelConfig) -> PackedWeight:
    if len(tensor.shape) == 1:
        return PackedWeight(_NORM, np.ascontiguousarray(tensor.dequantize()))
    order = None
    if name.endswith(("attn_q.weight", "attn_k.weight")):
        heads = config.num_heads if name.endswith("attn_q.weight") else config.num_kv_heads
        within = pair_order(config.head_dim)
        halves_first = interleaved_order(heads, config.head_dim).reshape(heads, config.head_dim)
        order = halves_first[:, within].ravel()
    if tensor.ggml_type.name in FLOATS:
        values = tensor.dequantize()
        return PackedWeight(FLOAT, pack_f32(values if order is None else values[order]))
    kind, pack = PACKERS[tensor.ggml_type.name]
    raw = tensor.raw()
    return PackedWeight(kind, pack(raw if order is None else raw[order]))


def _fingerprint(file: GgufFile) -> str:
    """Of the file's place, size, time and tensors, and of samples of its bytes."""
    stat = file.path.stat()
    digest = hashlib.sha256(f"{_FORMAT} {file.path.resolve()} {stat.st_size} {stat.st_mtime_ns}".encode())
    for tensor in file.tensors.values():
        digest.update(f"{tensor.name} {tensor.shape} {tensor.ggml_type.name} {tensor.offset}".encode())
        digest.update(tensor.raw().reshape(-1)[:256].tobytes())
    return digest.hexdigest()[:16]


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
