from __future__ import annotations

import json

import pytest

from sglang_lite.chat_formats.call_reader import CallReader
from sglang_lite.chat_formats.tools import TOOL_FORMATS, tool_format

CALL = '{"name": "weather", "arguments": {"city": "a\\"} {", "days": [1, {"x": 2}]}}'
OTHER = '{"name": "time", "arguments": {}}'
HERMES = f"Let me see.\n\n<tool_call>\n{CALL}\n</tool_call>\n<tool_call>\n{OTHER}\n</tool_call>\n Done."
LLAMA = (CALL + "; " + OTHER).replace("arguments", "parameters")
MISTRAL = f"[TOOL_CALLS] [{CALL}, {OTHER}]"


def read(name: str, pieces: list[str]) -> tuple[str, list[tuple[str, str]]]:
    reader = CallReader(tool_format(name))
    found = [event for piece in pieces for event in reader.feed(piece)] + reader.finish()
    calls: list[list[str]] = []
    for event in found:
        if event.kind == "call":
            assert event.index == len(calls)
            calls.append([event.text, ""])
        elif event.kind == "arguments":
            assert event.index == len(calls) - 1, "arguments come right after their call's name"
            calls[-1][1] += event.text
    text = "".join(event.text for event in found if event.kind == "text")
    return text, [(name, arguments) for name, arguments in calls]


TEXTS = [
    ("hermes", HERMES),
    ("llama3", LLAMA),
    ("mistral", MISTRAL),
    ("mistral", MISTRAL.removeprefix("[TOOL_CALLS] ")),
]


@pytest.mark.parametrize(("name", "text"), TEXTS)
@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_calls_come_out_however_the_text_is_cut(name: str, text: str, size: int) -> None:
    """And they are those that the whole text is read as."""
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    words, calls = read(name, pieces)
    parsed = tool_format(name).read(text)
    assert [(call.name, call.arguments) for call in parsed.calls] == [(n, json.loads(a)) for n, a in calls]
    assert len(calls) == 2
    assert words == ("Let me see.\nDone." if name == "hermes" else "")


def test_the_name_comes_before_the_arguments_are_there() -> None:
    reader = CallReader(tool_format("hermes"))
    (call,) = reader.feed('<tool_call>\n{"name": "weather", "arguments": {')[:1]
    assert (call.kind, call.text) == ("call", "weather")
    assert [event.text for event in reader.feed('"city": "Ro')] == ['"city": "Ro']


@pytest.mark.parametrize("name", sorted({form.name for form in TOOL_FORMATS.values()}))
@pytest.mark.parametrize(
    "text", ["plain text ", "\n a < b, {x: [1, 2]} <tool", '{"named": 1}', "[1, 2]", "{", "<tool_call", "", " \n"]
)
@pytest.mark.parametrize("size", [1, 1000])
def test_a_text_without_calls_stays_as_it_is(name: str, text: str, size: int) -> None:
    assert read(name, [text[at : at + size] for at in range(0, len(text), size)]) == (text, [])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("<tool_call>no JSON</tool_call> after", "<tool_call>no JSON</tool_call> after"),
        ('<tool_call>{"name": 5}</tool_call>', '<tool_call>{"name": 5}</tool_call>'),
        ("before <tool_call>\n{", "before <tool_call>\n{"),
    ],
)
def test_what_is_no_call_is_text(text: str, words: str) -> None:
    assert read("hermes", [text]) == (words, [])


def test_other_orders_and_members_are_read_too() -> None:
    assert read("hermes", ['<tool_call>{"arguments": {"a": 1}, "name": "f"}</tool_call>'])[1] == [("f", '{"a": 1}')]
    text = '<tool_call>{"name": "f", "arguments": {"a": 1}, "id": "x"}</tool_call> yes'
    assert read("hermes", list(text)) == ("yes", [("f", '{"a": 1}')])
    assert read("hermes", ['<tool_call>{"name": "f", "arguments": "{\\"a\\": 1}"}</tool_call>'])[1] == [
        ("f", '{"a": 1}')
    ]


def test_a_call_that_is_cut_keeps_its_beginning() -> None:
    reader = CallReader(tool_format("hermes"))
    found = [*reader.feed('<tool_call>\n{"name": "f", "arguments": {"a": "b'), *reader.finish()]
    assert [(event.kind, event.text) for event in found] == [("call", "f"), ("arguments", '{"a": "b')]
    assert reader.is_open
