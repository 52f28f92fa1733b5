from __future__ import annotations

from pathlib import Path

import pytest

from sglang_lite.errors import ModelLoadError
from sglang_lite.runtime.model.registry import ARCHITECTURES, folder_entry, gguf_entry

PATH = Path("some/model")


def test_every_architecture_is_found_by_both_names() -> None:
    for entry in ARCHITECTURES:
        assert folder_entry(entry.class_name, PATH) is entry
        if entry.gguf_names is not None:
            assert gguf_entry(entry.name, PATH) == (entry, entry.gguf_names)


def test_an_unknown_one_says_which_are_known_and_names_the_file() -> None:
    with pytest.raises(
        ModelLoadError,
        match=r"some/model: unknown architecture 'mamba' \(known: gemma2, llama, mixtral, qwen2, qwen3, qwen3moe\)",
    ):
        gguf_entry("mamba", PATH)
    with pytest.raises(
        ModelLoadError, match=r"unknown architecture 'MambaForCausalLM' \(known: Gemma2ForCausalLM, .*Qwen3"
    ):
        folder_entry("MambaForCausalLM", PATH)


def test_mistral_is_no_name_that_gguf_files_use() -> None:
    with pytest.raises(ModelLoadError, match="unknown architecture 'mistral'"):
        gguf_entry("mistral", PATH)
