"""Messages for templates with and without tools."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from sglang_lite.chat_formats import ChatFormat, adapt, arguments_of, function_of
from sglang_lite.errors import RequestError

TOOLS = [{"type": "function", "function": {"name": "add", "description": "Adds."}}]
CALL = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
DIALOGUE: list[dict[str, Any]] = [
    {"role": "user", "content": "hi"},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c1", "content": "5"},
    {"role": "tool", "tool_call_id": "c2", "content": "6"},
]


def test_a_template_without_tools_gets_a_block_texts_and_user_turns() -> None:
    given = copy.deepcopy(DIALOGUE)
    shown, variables = adapt(given, TOOLS, ChatFormat())
    assert variables == {}
    assert given == DIALOGUE, "nothing given is changed"
    assert [message["role"] for message in shown] == ["system", "user", "assistant", "user"]
    assert '"name": "add"' in shown[0]["content"]
    assert "<tool_call>" in shown[0]["content"]
    assert shown[2] == {
        "role": "assistant",
        "content": '<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>',
    }
    assert shown[3]["content"] == "<tool_response>\n5\n</tool_response>\n<tool_response>\n6\n</tool_response>"


def test_the_block_goes_behind_a_system_message() -> None:
    shown, _ = adapt([{"role": "system", "content": "Be kind."}, *DIALOGUE[:1]], TOOLS, ChatFormat())
    assert shown[0]["content"].startswith("Be kind.\n\n# Tools")
    assert len(shown) == 2


def test_a_template_with_tools_gets_them_as_they_are() -> None:
    shown, variables = adapt(DIALOGUE, TOOLS, ChatFormat("hermes", shows_tools=True, has_tool_role=True))
    assert variables["tools"][0]["function"]["name"] == "add"
    assert [message["role"] for message in shown] == ["user", "assistant", "tool", "tool"]
    assert shown[1]["tool_calls"][0]["function"]["arguments"] == {"a": 1}


@pytest.mark.parametrize(
    "tool", [{}, {"type": "web"}, {"name": 1}, {"function": "f"}, {"name": "f", "parameters": "x"}]
)
def test_what_is_no_tool_is_refused(tool: dict[str, Any]) -> None:
    with pytest.raises(RequestError, match=r"^reading (a|the) tool"):
        function_of(tool)


@pytest.mark.parametrize("value", ["{", "[1]", 7])
def test_what_are_no_arguments_is_refused(value: object) -> None:
    with pytest.raises(RequestError, match="reading a tool call"):
        arguments_of(value)
