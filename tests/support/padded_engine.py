"""An engine on a tiny random model whose embedding has more rows than the tokenizer has ids."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sglang_lite.runtime.engine.engine import Engine
from tests.runtime.engine.test_model_folders import make_folder, start

ROWS = 400
"""Of the embedding; a mask of the tokenizer's ids alone would have fewer words."""

PADDING = 350
"""A row without a token, as the last one is."""


@contextmanager
def padded_engine(folder: Path) -> Iterator[Engine]:
    """The model is written to `folder`."""
    make_folder(folder, "mistral", ROWS)
    with start(folder) as engine:
        yield engine


def forced(*ids: int, **more: Any) -> dict[str, Any]:
    """Sampling parameters under which nothing but `ids` is drawn: one of them always, several at random."""
    bias = {str(token_id): 100.0 for token_id in ids}
    values = {"temperature": float(len(ids) > 1), "seed": 3, "max_new_tokens": 12, "ignore_eos": True}
    return values | {"logit_bias": bias} | more
