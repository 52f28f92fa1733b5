"""Hosted APIs keep their names and say that they are not supported."""

from __future__ import annotations

import pytest

import sglang_lite
from sglang_lite.errors import UnsupportedError


@pytest.mark.parametrize("name", ["OpenAI", "Anthropic", "LiteLLM", "VertexAI"])
def test_a_hosted_api_is_one_clear_error(name: str) -> None:
    with pytest.raises(
        UnsupportedError, match=rf"{name}\('some-model'\): hosted APIs are not supported; run on 'local'"
    ):
        getattr(sglang_lite, name)("some-model", api_key="k")
