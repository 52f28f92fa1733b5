"""Backends as SGLang's scripts make them, on the model and the backend that were chosen for the script."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import sglang_lite
from sglang_lite.errors import RequestError
from sglang_lite.lang.backends.registry import as_backend, set_default_backend


class _Chosen:
    """What stands in for the models and backends that a script names."""

    model_path: str | None = None
    backend: Any = None


_chosen = _Chosen()


def choose(model_path: str | None, backend: object) -> None:
    """Use these in place of what scripts name; None: what they name. A chosen backend is the default one, too."""
    _chosen.model_path = model_path
    _chosen.backend = None if backend is None else as_backend(backend)
    if backend is not None:
        set_default_backend(_chosen.backend)


def _model(name: str | None) -> str | None:
    """The model to load for a script's `model_path`: a local path as it is, a hub name replaced.

    Raises:
        RequestError: a hub name, and nothing to load in place of it.
    """
    if name is None or Path(name).exists():
        return name
    if _chosen.model_path is None:
        raise RequestError(
            f"loading the model {name!r}: it is no local path, and nothing is downloaded; say what to load in place of "
            "it: --model-path PATH (install(model_path=...)), or 'embedded' for the small model that ships"
        )
    return None if _chosen.model_path == "embedded" else _chosen.model_path


def Runtime(*args: Any, model_path: str | None = None, **server_args: Any) -> Any:  # noqa: N802 - SGLang's name
    """`sgl.Runtime`, or the chosen backend."""
    if _chosen.backend is not None:
        return _ChosenRuntime(_chosen.backend)
    path = args[0] if args and model_path is None else model_path
    return sglang_lite.Runtime(_model(path), **server_args)


def Engine(*, model_path: str | None = None, **server_args: Any) -> Any:  # noqa: N802 - SGLang's name
    """`sgl.Engine` on the model that was chosen in place of hub names."""
    return sglang_lite.Engine(_model(model_path), **server_args)


class _ChosenRuntime:
    """A `Runtime` of a script that runs on another backend."""

    def __init__(self, backend: Any) -> None:
        self.endpoint = backend

    def shutdown(self) -> None:
        """The backend belongs to whoever chose it."""


def RuntimeEndpoint(base_url: str, *args: Any, **kwargs: Any) -> Any:  # noqa: N802 - SGLang's name
    """The server at `base_url`, or the chosen backend."""
    return _chosen.backend or sglang_lite.RuntimeEndpoint(base_url, *args, **kwargs)


def _hosted(refuse: Callable[..., Any]) -> Callable[..., Any]:
    def make(model_name: str, *args: Any, **kwargs: Any) -> Any:
        return _chosen.backend or refuse(model_name, *args, **kwargs)

    return make


OpenAI = _hosted(sglang_lite.OpenAI)
Anthropic = _hosted(sglang_lite.Anthropic)
LiteLLM = _hosted(sglang_lite.LiteLLM)
VertexAI = _hosted(sglang_lite.VertexAI)


def get_tokenizer(tokenizer_name: str, *args: Any, **kwargs: Any) -> Any:
    """The tokenizer of a model, as `Runtime.get_tokenizer` gives it; loads the model for it."""
    runtime = sglang_lite.Runtime(_model(tokenizer_name))
    try:
        return runtime.get_tokenizer()
    finally:
        runtime.shutdown()
