"""Which architectures are known and the class that runs each. A new model is a module like `llama` and a line here."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import torch

from sglang_lite.errors import ModelLoadError
from sglang_lite.runtime.attention.base import AttentionBackend
from sglang_lite.runtime.attention.forward_batch import ForwardBatch
from sglang_lite.runtime.model.config import ModelConfig
from sglang_lite.runtime.model.linear import LinearFactory
from sglang_lite.runtime.model.llama import LlamaForCausalLM
from sglang_lite.runtime.model.weights import WeightPart


class CausalLM(Protocol):
    """What the runtime needs of a model; documented at `LlamaForCausalLM`."""

    config: ModelConfig

    def forward(self, fb: ForwardBatch, attention: AttentionBackend) -> torch.Tensor:
        """New tokens -> hidden states [T, hidden]."""
        ...

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Hidden states [n, hidden] -> scores [n, vocab]."""
        ...


class CausalLMClass(Protocol):
    """A registered class: makes an empty model and says what fills it."""

    def __call__(self, config: ModelConfig, linear: LinearFactory) -> LlamaForCausalLM:
        """Make the model with empty weights."""
        ...

    def gguf_weights(self, config: ModelConfig) -> Iterator[WeightPart]:
        """Map the file's tensors to its weights."""
        ...


_CLASSES: dict[str, CausalLMClass] = {"llama": LlamaForCausalLM}


def model_class(architecture: str, path: Path) -> CausalLMClass:
    """The class for GGUF's `general.architecture`.

    Raises:
        ModelLoadError: the architecture is unknown; the known ones are named.

    """
    try:
        return _CLASSES[architecture]
    except KeyError:
        raise ModelLoadError(
            f"{path}: unknown architecture {architecture!r} (known: {', '.join(sorted(_CLASSES))})"
        ) from None
