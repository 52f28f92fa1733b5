"""The oracle of the text tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="session")
def hf_tokenizer(embedded_model_path: Path) -> Any:
    """The embedded model's tokenizer as transformers reads it from the same file."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(embedded_model_path.parent, gguf_file=embedded_model_path.name)
