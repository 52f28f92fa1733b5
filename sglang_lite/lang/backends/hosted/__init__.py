"""Hosted APIs as backends: OpenAI, Anthropic, LiteLLM; each says what it can do before anything is paid for."""

from __future__ import annotations

from typing import Any, NoReturn

from sglang_lite.errors import UnsupportedError
from sglang_lite.lang.backends.hosted.anthropic_api import Anthropic
from sglang_lite.lang.backends.hosted.backend import HostedBackend, TokenUsage
from sglang_lite.lang.backends.hosted.litellm_api import LiteLLM
from sglang_lite.lang.backends.hosted.openai_api import OpenAI

__all__ = ["Anthropic", "HostedBackend", "LiteLLM", "OpenAI", "TokenUsage", "VertexAI"]


def VertexAI(model_name: str, *args: Any, **kwargs: Any) -> NoReturn:  # noqa: N802 - SGLang's name
    """Not supported.

    Raises:
        UnsupportedError: always.
    """
    raise UnsupportedError(
        f"making VertexAI({model_name!r}): this client is not supported; use LiteLLM('vertex_ai/...'), or run on 'local'"
    )
