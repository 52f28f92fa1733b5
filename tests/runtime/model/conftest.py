"""Models that several tests share, loaded once."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
from transformers import AutoConfig, LlamaForCausalLM
from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

import tests.support.kernel_cache  # noqa: F401
from sglang_lite.runtime.model.loader import LoadedModel, load_model


@pytest.fixture(scope="session")
def embedded(embedded_model_path: Path) -> LoadedModel:
    """The embedded model as this package loads it."""
    return load_model(embedded_model_path)


@pytest.fixture(scope="session")
def peer(embedded_model_path: Path) -> LlamaForCausalLM:
    """The embedded model as transformers reads it from the same file.

    `from_pretrained(gguf_file=...)` would do the same, but asks for the package accelerate.
    """
    config = AutoConfig.from_pretrained(embedded_model_path.parent, gguf_file=embedded_model_path.name)
    model = LlamaForCausalLM(config).eval().requires_grad_(False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        read = load_gguf_checkpoint(embedded_model_path, return_tensors=True, model_to_load=model)
    missing, unexpected = model.load_state_dict(read["tensors"], strict=False)
    assert missing == ["lm_head.weight"]  # tied to the embedding
    assert not unexpected
    model.tie_weights()
    return model
