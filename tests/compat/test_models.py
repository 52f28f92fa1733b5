"""What a script names is loaded, replaced by what was chosen, or refused with the choice to make."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import sglang_lite
from sglang_lite.compat import models
from sglang_lite.errors import RequestError, UnsupportedError
from sglang_lite.lang import ScriptedBackend, set_default_backend
from sglang_lite.lang.backends.registry import resolve_backend


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    yield
    models.choose(None, None)
    set_default_backend(None)


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What `Runtime` and `Engine` were asked to load; nothing is."""
    asked: list[Any] = []

    class Recorded:
        def __init__(self, model_path: Any = None, **server_args: Any) -> None:
            asked.append((model_path, server_args))

        def get_tokenizer(self) -> str:
            return "tokenizer"

        def shutdown(self) -> None:
            asked.append("shutdown")

    monkeypatch.setattr(sglang_lite, "Runtime", Recorded, raising=False)
    monkeypatch.setattr(sglang_lite, "Engine", Recorded, raising=False)
    return asked


def test_hub_names_are_replaced_and_paths_are_not(loaded: list[Any], tmp_path: Path) -> None:
    models.choose("other.gguf", None)
    models.Runtime(model_path="someone/some-model", tp_size=1)
    models.Engine(model_path=str(tmp_path))
    models.Runtime()
    models.choose("embedded", None)
    models.Runtime("someone/some-model")
    assert loaded == [("other.gguf", {"tp_size": 1}), (str(tmp_path), {}), (None, {}), (None, {})]


def test_a_hub_name_without_a_choice_says_how_to_choose(loaded: list[Any]) -> None:
    with pytest.raises(RequestError, match="--model-path"):
        models.Runtime(model_path="someone/some-model")
    assert loaded == []


def test_a_tokenizer_comes_from_the_model_that_was_chosen(loaded: list[Any]) -> None:
    models.choose("embedded", None)
    assert models.get_tokenizer("someone/some-model") == "tokenizer"
    assert loaded == [(None, {}), "shutdown"]


def test_a_chosen_backend_stands_in_for_every_other() -> None:
    backend = ScriptedBackend()
    models.choose(None, backend)
    assert resolve_backend() is backend
    runtime = models.Runtime(model_path="someone/some-model")
    runtime.shutdown()
    made = (models.RuntimeEndpoint("http://nowhere"), models.OpenAI("gpt"), models.LiteLLM("x"), runtime.endpoint)
    assert all(one is backend for one in made)


def test_a_hosted_api_without_a_choice_is_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    backend = models.OpenAI("gpt-4", api_key="k")
    assert repr(backend) == "OpenAI('gpt-4')"
    backend.shutdown()
    with pytest.raises(UnsupportedError, match=r"VertexAI\('m'\)"):
        models.VertexAI("m")
