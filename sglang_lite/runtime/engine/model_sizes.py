"""How large a model is, by the headers of its files; no weight is read."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from sglang_lite.runtime.model.config import ModelConfig
from sglang_lite.runtime.model.gguf_file import GgufFile
from sglang_lite.runtime.model.loader import folder_model_config, open_gguf
from sglang_lite.runtime.model.safetensors_file import SafetensorsFolder


@dataclass(frozen=True)
class ModelSizes:
    """A model's sizes by its headers. `stored_bytes`: of its tensors as they lie in the file; `num_weights`: how many numbers.

    `gguf`: the open file, if it is one.
    """

    path: Path
    config: ModelConfig
    stored_bytes: int
    num_weights: int
    gguf: tuple[GgufFile, ModelConfig] | None = None


def read_sizes(path: Path) -> ModelSizes:
    """The sizes of a GGUF file or a model folder.

    Raises:
        ModelLoadError: it is damaged or of an unknown kind.
    """
    if path.is_dir():
        model = folder_model_config(path)
        tensors = SafetensorsFolder(path).tensors.values()
        stored = sum(math.prod(t.shape) * (8 if t.dtype == "F64" else 4 if t.dtype == "F32" else 2) for t in tensors)
        return ModelSizes(path, model, stored, sum(math.prod(t.shape) for t in tensors))
    file, model = open_gguf(path)
    found = file.tensors.values()
    return ModelSizes(path, model, sum(t.n_bytes for t in found), sum(math.prod(t.shape) for t in found), (file, model))
