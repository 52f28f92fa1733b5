"""Arguments that several commands share, and the backend they name."""

from __future__ import annotations

import argparse
import json
from typing import Any

from sglang_lite import env
from sglang_lite.errors import RequestError
from sglang_lite.lang.backends.registry import resolve_backend
from sglang_lite.request_tree import Backend

BACKEND_HELP = (
    "what runs the model: local (the embedded model, in this process), local:PATH (a GGUF file), scripted[:FILE] "
    "(canned replies, no model). Default: the variable SGLANG_LITE_BACKEND, else local"
)


def add_backend_argument(parser: argparse.ArgumentParser) -> None:
    """`--backend`."""
    parser.add_argument("--backend", metavar="B", help=BACKEND_HELP)


def backend_named(name: str | None) -> Backend:
    """The backend that `--backend` or the environment names, else `local`."""
    return resolve_backend(name or env.backend() or "local")


def parse_assignment(text: str) -> tuple[str, Any]:
    """`name=value` as a pair; a value that is JSON becomes what it says, any other is a string.

    Raises:
        RequestError: there is no `=` or no name.
    """
    name, sign, value = text.partition("=")
    if not sign or not name.isidentifier():
        raise RequestError(f"reading --arg {text!r}: expected name=value, for example --arg question='How high?'")
    try:
        return name, json.loads(value)
    except json.JSONDecodeError:
        return name, value
