"""SGLang's names for hosted APIs, which are not supported: each says so, and what to use."""

from __future__ import annotations

from typing import Any, NoReturn

from sglang_lite.errors import UnsupportedError


def _refuse(kind: str, model_name: object) -> NoReturn:
    raise UnsupportedError(
        f"making {kind}({model_name!r}): hosted APIs are not supported; run on 'local', 'local:PATH' or "
        "RuntimeEndpoint(URL)"
    )


def OpenAI(model_name: str, *args: Any, **kwargs: Any) -> NoReturn:  # noqa: N802 - SGLang's name
    """Not supported.

    Raises:
        UnsupportedError: always.
    """
    _refuse("OpenAI", model_name)


def Anthropic(model_name: str, *args: Any, **kwargs: Any) -> NoReturn:  # noqa: N802 - SGLang's name
    """Not supported.

    Raises:
        UnsupportedError: always.
    """
    _refuse("Anthropic", model_name)


def LiteLLM(model_name: str, *args: Any, **kwargs: Any) -> NoReturn:  # noqa: N802 - SGLang's name
    """Not supported.

    Raises:
        UnsupportedError: always.
    """
    _refuse("LiteLLM", model_name)


def VertexAI(model_name: str, *args: Any, **kwargs: Any) -> NoReturn:  # noqa: N802 - SGLang's name
    """Not supported.

    Raises:
        UnsupportedError: always.
    """
    _refuse("VertexAI", model_name)
