"""Models that several tests share, loaded once."""

from __future__ import annotations

from pathlib import Path

import pytest
from transformers import LlamaForCausalLM

import tests.support.kernel_cache  # noqa: F401
from sglang_lite.runtime.model.loader import LoadedModel, load_model
from tests.support.engine_fixture import load_peer


@pytest.fixture(scope="session")
def embedded(embedded_model_path: Path) -> LoadedModel:
    """The embedded model as this package loads it."""
    return load_model(embedded_model_path)


@pytest.fixture(scope="session")
def peer(embedded_model_path: Path) -> LlamaForCausalLM:
    """The embedded model as transformers reads it from the same file."""
    return load_peer()
