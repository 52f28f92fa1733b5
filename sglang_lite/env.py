"""The one reader of SGLANG_LITE_* variables; it knows nothing of what they configure."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from sglang_lite.errors import RequestError


def backend() -> str | None:
    """`SGLANG_LITE_BACKEND`: the default backend as one string (`local`, `local:PATH`, `scripted:FILE`)."""
    return os.environ.get("SGLANG_LITE_BACKEND") or None


def compat() -> str | None:
    """`SGLANG_LITE_COMPAT`: `strict` or `strict:TEMPLATE` runs programs with SGLang's templates and joints.

    Raises:
        RequestError: the value is something else.
    """
    text = os.environ.get("SGLANG_LITE_COMPAT") or None
    if text is not None and text.partition(":")[0] != "strict":
        raise RequestError(f"reading SGLANG_LITE_COMPAT: got {text!r}, expected 'strict' or 'strict:TEMPLATE'")
    return text


def api_key() -> str | None:
    """`SGLANG_LITE_API_KEY`: the key for a server that a backend string names."""
    return os.environ.get("SGLANG_LITE_API_KEY") or None


def cache_dir() -> Path:
    """`SGLANG_LITE_CACHE`: folder of compiled kernels and prepared tokenizers (default `~/.cache/sglang_lite`)."""
    named = os.environ.get("SGLANG_LITE_CACHE")
    return Path(named) if named else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sglang_lite"


def variable(name: str) -> str | None:
    """A variable that the user names, such as one that holds a key; empty counts as not set."""
    return os.environ.get(name) or None


def num_threads() -> int | None:
    """`SGLANG_LITE_NUM_THREADS`: CPU threads of the engine; None lets the engine choose.

    Raises:
        RequestError: the value is not a positive whole number.
    """
    text = os.environ.get("SGLANG_LITE_NUM_THREADS")
    if not text:
        return None
    if not text.isdecimal() or int(text) < 1:
        raise RequestError(f"reading SGLANG_LITE_NUM_THREADS: got {text!r}, expected a whole number of at least 1")
    return int(text)


def for_child() -> dict[str, str]:
    """The environment of a process of this package: the same one, with this process's import path."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)}


def settings() -> dict[str, str]:
    """All `SGLANG_LITE_*` variables: each may hold a setting of the server, such as `SGLANG_LITE_PORT`."""
    return {name: value for name, value in os.environ.items() if name.startswith("SGLANG_LITE_")}
