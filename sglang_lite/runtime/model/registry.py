"""Which architectures are known: what files call each, and the class that runs it.

A new one is a module like `gemma2`, a line here, its names in `weight_names` and its settings in the two readers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch

from sglang_lite.errors import ModelLoadError
from sglang_lite.runtime.attention.base import AttentionBackend
from sglang_lite.runtime.attention.forward_batch import ForwardBatch
from sglang_lite.runtime.model.config import ModelConfig
from sglang_lite.runtime.model.decoder import Decoder
from sglang_lite.runtime.model.gemma2 import Gemma2ForCausalLM
from sglang_lite.runtime.model.linear import LinearFactory
from sglang_lite.runtime.model.llama import LlamaForCausalLM
from sglang_lite.runtime.model.mixtral import MixtralForCausalLM
from sglang_lite.runtime.model.weight_names import (
    FOLDER_NAMES,
    GEMMA2_FOLDER_NAMES,
    GEMMA2_GGUF_NAMES,
    GGUF_NAMES,
    LLAMA_GGUF_NAMES,
    MIXTRAL_FOLDER_NAMES,
    MIXTRAL_GGUF_NAMES,
    QWEN3_MOE_FOLDER_NAMES,
    QWEN3_MOE_GGUF_NAMES,
    Names,
)


class CausalLM(Protocol):
    """What the runtime needs of a model; documented at `Decoder`."""

    config: ModelConfig

    def forward(self, fb: ForwardBatch, attention: AttentionBackend) -> torch.Tensor:
        """New tokens -> hidden states [T, hidden]."""
        ...

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Hidden states [n, hidden] -> scores [n, vocab]."""
        ...


@dataclass(frozen=True)
class Architecture:
    """One kind of model.

    Attributes:
        name: ours, and GGUF's `general.architecture` where it has one (`gguf_config.gguf_architecture`).
        class_name: first of `architectures` in config.json.
        make: makes the model with empty weights.
        folder_names: its tensors in safetensors files.
        gguf_names: its tensors in a GGUF file; None where GGUF knows it by another name only.

    """

    name: str
    class_name: str
    make: Callable[[ModelConfig, LinearFactory], Decoder]
    folder_names: Names
    gguf_names: Names | None


ARCHITECTURES = (
    Architecture("llama", "LlamaForCausalLM", LlamaForCausalLM, FOLDER_NAMES, LLAMA_GGUF_NAMES),
    # GGUF files of Mistral call themselves llama.
    Architecture("mistral", "MistralForCausalLM", LlamaForCausalLM, FOLDER_NAMES, None),
    Architecture("qwen2", "Qwen2ForCausalLM", LlamaForCausalLM, FOLDER_NAMES, GGUF_NAMES),
    Architecture("qwen3", "Qwen3ForCausalLM", LlamaForCausalLM, FOLDER_NAMES, GGUF_NAMES),
    Architecture("gemma2", "Gemma2ForCausalLM", Gemma2ForCausalLM, GEMMA2_FOLDER_NAMES, GEMMA2_GGUF_NAMES),
    Architecture("mixtral", "MixtralForCausalLM", MixtralForCausalLM, MIXTRAL_FOLDER_NAMES, MIXTRAL_GGUF_NAMES),
    Architecture("qwen3moe", "Qwen3MoeForCausalLM", MixtralForCausalLM, QWEN3_MOE_FOLDER_NAMES, QWEN3_MOE_GGUF_NAMES),
)


def gguf_entry(name: str, path: Path) -> tuple[Architecture, Names]:
    """The architecture that a GGUF file names, and its tensor names.

    Raises:
        ModelLoadError: the architecture is unknown; the known ones are named.

    """
    known = {entry.name: (entry, entry.gguf_names) for entry in ARCHITECTURES}
    entry, names = known.get(name, (None, None))
    if entry is None or names is None:
        raise _unknown(name, sorted(key for key, (_, their) in known.items() if their is not None), path)
    return entry, names


def is_known_class(class_name: str) -> bool:
    """Whether a class that a config.json names has one of ours in its place."""
    return any(entry.class_name == class_name for entry in ARCHITECTURES)


def folder_entry(class_name: str, path: Path) -> Architecture:
    """The architecture that a config.json names.

    Raises:
        ModelLoadError: the architecture is unknown; the known ones are named.

    """
    known = {entry.class_name: entry for entry in ARCHITECTURES}
    if class_name not in known:
        raise _unknown(class_name, sorted(known), path)
    return known[class_name]


def _unknown(name: str, known: list[str], path: Path) -> ModelLoadError:
    return ModelLoadError(f"{path}: unknown architecture {name!r} (known: {', '.join(known)})")
