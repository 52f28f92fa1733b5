"""Tool calls: read, shown, and what a generation is held to."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sglang_lite.chat_formats import TOOL_FORMATS, Call, Parsed, tool_format
from sglang_lite.errors import RequestError
from sglang_lite.grammar.tag_spec import parse_structural_tag
from tests.grammar.recursive import json_grammar

ADD = {
    "type": "function",
    "function": {"name": "add", "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}}},
}
NOW = {"name": "now"}
ARGUMENTS = {"a": 1, "text": 'a "quoted" </tool_call> {"name": "x"} [TOOL_CALLS] ü\n'}


@pytest.mark.parametrize("name", sorted(TOOL_FORMATS))
@pytest.mark.parametrize("count", [1, 3])
def test_what_is_shown_is_read_again(name: str, count: int) -> None:
    form = tool_format(name)
    calls = tuple(Call("add", ARGUMENTS | {"n": n}) for n in range(count))
    assert form.read(form.show(calls)) == Parsed("", calls)
    around = form.read(f"Let me see. {form.show(calls)}")
    assert (around.text, around.calls) == ("Let me see.", calls)


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("hermes", "no call {} <tool", Parsed("no call {} <tool")),
        (
            "hermes",
            '<tool_call>{"name": "f", "arguments": "{\\"a\\": 1}"}</tool_call>',
            Parsed("", (Call("f", {"a": 1}),)),
        ),
        ("hermes", '<tool_call>{"name": "f"}', Parsed("", (Call("f", {}),))),
        ("llama3", '<|python_tag|>{"name": "f", "parameters": {}}', Parsed("", (Call("f", {}),))),
        ("llama3", '{"name": "f", "arguments": {"x": 2}}', Parsed("", (Call("f", {"x": 2}),))),
        ("llama3", '{"name": 1}', Parsed('{"name": 1}')),
        ("mistral", '[TOOL_CALLS] [{"name": "f", "arguments": {}}]', Parsed("", (Call("f", {}),))),
        ("mistral", "[1, 2]", Parsed("[1, 2]")),
    ],
)
def test_texts_of_models_are_read(name: str, text: str, expected: Parsed) -> None:
    assert tool_format(name).read(text) == expected


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("hermes", 'x <tool_call>{"name": "f", "argu</tool_call> y'),
        ("hermes", '<tool_call>{"name": "f", "arguments": [1]}</tool_call>'),
        ("hermes", "<tool_call>7</tool_call>"),
        ("mistral", '[TOOL_CALLS][{"name": "f"'),
    ],
)
def test_a_call_that_cannot_be_read_is_a_fault_and_no_text(name: str, text: str) -> None:
    parsed = tool_format(name).read(text)
    assert parsed.calls == ()
    assert len(parsed.faults) == 1
    assert "tool_call" not in parsed.text.lower()


def spec(name: str, choice: str) -> dict[str, Any]:
    constraint = tool_format(name).constraint([ADD, NOW], choice)
    assert constraint is not None
    assert constraint[0] == "structural_tag"
    found: dict[str, Any] = json.loads(constraint[1])
    parse_structural_tag(found, lambda _: json_grammar())  # its reader takes all of it
    return found["format"]


@pytest.mark.parametrize("name", ["hermes", "llama3"])
def test_auto_leaves_the_text_free_but_for_calls(name: str) -> None:
    form = spec(name, "auto")
    assert form["type"] == "triggered_tags"
    assert all(tag["begin"].startswith(form["triggers"][0]) for tag in form["tags"])
    assert [tag["content"]["json_schema"]["type"] for tag in form["tags"]] == ["object", "object"]


@pytest.mark.parametrize("name", sorted(TOOL_FORMATS))
def test_a_required_call_is_one_of_the_tools_and_a_named_one_that_tool(name: str) -> None:
    assert len(spec(name, "required")["elements"]) == 2
    (only,) = spec(name, "now")["elements"]
    key = tool_format(name).arguments_key
    text = only["begin"] + "{}" + only["end"]
    assert f'"{key}": {{}}' in text
    assert tool_format(name).read(text) == Parsed("", (Call("now", {}),))


def test_choices_without_a_constraint_and_wrong_ones() -> None:
    assert tool_format("hermes").constraint([ADD], "none") is None
    assert tool_format("mistral").constraint([ADD], "auto") is None, "its mark is a special token"
    with pytest.raises(RequestError, match="expected auto, none, required or one of"):
        tool_format("hermes").constraint([ADD], "sub")
    with pytest.raises(RequestError, match="expected one of"):
        tool_format("xml")
