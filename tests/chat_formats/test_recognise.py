"""What a template says of its tool calls and thinking."""

from __future__ import annotations

import json

import pytest

from sglang_lite.chat_formats import ChatFormat, ThinkingFormat, recognise
from sglang_lite.runtime.text.chat import ChatTemplate
from tests.chat_formats import templates


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (templates.CHATML, ChatFormat()),
        (None, ChatFormat()),
        (templates.THINKER, ChatFormat("hermes", True, True, ThinkingFormat(), "enable_thinking")),
        (templates.OPENER, ChatFormat(thinking=ThinkingFormat(starts_inside=True))),
        (templates.LLAMA3, ChatFormat("llama3", True, True)),
        (templates.MISTRAL, ChatFormat("mistral", True, True)),
        (templates.FOREIGN, ChatFormat()),
    ],
)
def test_a_template_says_how_its_model_calls_and_thinks(source: str | None, expected: ChatFormat) -> None:
    found = ChatTemplate(source, {"bos_token": "<s>", "eos_token": "</s>"}).format
    assert found == expected
    assert ChatFormat.from_json(json.loads(json.dumps(found.to_json()))) == found


def test_marks_are_told_by_the_vocabulary_where_the_template_keeps_silent() -> None:
    assert recognise(templates.CHATML, tokens={"<think>": 1, "</think>": 2}).thinking == ThinkingFormat()
    assert recognise(templates.CHATML, tokens={"<think>": 1}).thinking is None
