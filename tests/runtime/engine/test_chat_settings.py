"""What an engine is told of its model's tool calls and thinking goes before what the template says."""

from __future__ import annotations

import pytest

from sglang_lite.chat_formats import ChatFormat, ThinkingFormat
from sglang_lite.errors import RequestError
from sglang_lite.runtime.config import EngineConfig
from sglang_lite.runtime.engine.build import chat_of
from tests.support.toy_text import toy_tokenizer


def test_the_template_is_asked_where_nothing_is_set() -> None:
    assert chat_of(EngineConfig(), toy_tokenizer()).format == ChatFormat()


def test_settings_go_before_the_template() -> None:
    chat = chat_of(EngineConfig(tool_call_parser="llama3", reasoning_parser="deepseek-r1"), toy_tokenizer())
    assert chat.format == ChatFormat("llama3", thinking=ThinkingFormat(starts_inside=True))


@pytest.mark.parametrize("name", ["tool_call_parser", "reasoning_parser"])
def test_an_unknown_name_is_refused(name: str) -> None:
    with pytest.raises(RequestError, match=f"{name}='xml'"):
        EngineConfig.from_server_args(args={name: "xml"})
