"""Loads a model's tokenizer, keeping the one built from a GGUF file on disk; knows no GGUF format."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from sglang_lite.errors import ModelLoadError
from sglang_lite.runtime.text.folder_vocabulary import build_from_folder
from sglang_lite.runtime.text.tokenizer import Tokenizer, tokenizer_from_gguf
from sglang_lite.runtime.text.vocabulary import VocabInfo

_FORMAT = 1  # raise it when what is built from the same file changes
_log = logging.getLogger(__name__)


def load_tokenizer(path: Path, cache_dir: Path | None, read_metadata: Callable[[Path], Mapping[str, Any]]) -> Tokenizer:
    """The tokenizer of a model.

    Args:
        path: a GGUF file, or a folder with tokenizer.json.
        cache_dir: where the tokenizer of a GGUF file is kept between starts; None keeps none.
        read_metadata: reads a GGUF file's key/values; called only when the cache has nothing.

    Raises:
        ModelLoadError: the path or what it holds is no usable tokenizer.
    """
    if path.is_dir():
        return load_tokenizer_folder(path)
    if not path.is_file():
        raise ModelLoadError(f"loading the tokenizer: {path} is neither a GGUF file nor a model folder")
    cached = None if cache_dir is None else load_cached(path, cache_dir)
    if cached is not None:
        return cached
    tokenizer = tokenizer_from_gguf(read_metadata(path))
    if cache_dir is not None:
        store_cached(tokenizer, path, cache_dir)
    return tokenizer


def load_tokenizer_folder(path: Path) -> Tokenizer:
    """The tokenizer of a folder in Hugging Face's layout; raises ModelLoadError as `build_from_folder` does."""
    return Tokenizer(*build_from_folder(path))


def load_cached(path: Path, cache_dir: Path) -> Tokenizer | None:
    """The tokenizer kept for `path` as it is now, or None; a damaged entry counts as none."""
    import tokenizers

    try:
        head, _, body = _entry(path, cache_dir).read_bytes().partition(b"\n")
        facts = json.loads(head)
    except (OSError, ValueError):
        return None
    if not isinstance(facts, dict) or facts.get("sha256") != hashlib.sha256(body).hexdigest():
        return None
    return Tokenizer(tokenizers.Tokenizer.from_buffer(body), VocabInfo.from_json(facts["info"]))


def store_cached(tokenizer: Tokenizer, path: Path, cache_dir: Path) -> None:
    """Keep `tokenizer` for `path`; where that cannot be done, warn and go on."""
    entry = _entry(path, cache_dir)
    body = tokenizer.backend_json().encode()
    head = json.dumps({"sha256": hashlib.sha256(body).hexdigest(), "info": tokenizer.info.to_json()}).encode()
    try:
        entry.parent.mkdir(parents=True, exist_ok=True)
        # Written aside and renamed: a second process never reads half an entry.
        with tempfile.NamedTemporaryFile(dir=entry.parent, delete=False) as file:
            file.write(head + b"\n" + body)
        os.replace(file.name, entry)
    except OSError as error:
        _log.warning("cannot keep the built tokenizer in %s (%s); each start builds it anew", entry.parent, error)


def _entry(path: Path, cache_dir: Path) -> Path:
    """The cache file of a model file: another path, size, time, format or library is another entry."""
    import tokenizers

    status = path.stat()
    key = f"{path.resolve()}\n{status.st_size}\n{status.st_mtime_ns}\n{_FORMAT}\n{tokenizers.__version__}"
    return cache_dir / "tokenizers" / f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.json"
