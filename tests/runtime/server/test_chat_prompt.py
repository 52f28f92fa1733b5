from __future__ import annotations

from typing import Any

import pytest

from sglang_lite.errors import RequestError
from sglang_lite.runtime.server.chat_prompt import chat_ids, shows_schema, with_schema
from sglang_lite.runtime.text.chat import ChatTemplate
from sglang_lite.runtime.text.tokenizer import Tokenizer
from tests.support.toy_text import CHATML, END, START, toy_tokenizer

MESSAGES = [{"role": "system", "content": "S"}, {"role": "user", "content": "hé"}]


def ids(
    messages: list[dict[str, Any]], template: str = CHATML, *, tokenizer: Tokenizer | None = None, **more: Any
) -> list[int]:
    tokenizer = tokenizer or toy_tokenizer()
    chat = ChatTemplate(template, tokenizer.template_variables)
    return chat_ids(tokenizer, chat, messages, more.get("variables"), continue_final=more.get("continue_final", False))


def test_the_ids_are_those_of_the_whole_rendering() -> None:
    tokenizer = toy_tokenizer()
    text = ChatTemplate(CHATML, tokenizer.template_variables).render(MESSAGES, True)
    assert ids(MESSAGES) == tokenizer.encode(text, parse_special=True)


def test_control_tokens_of_a_content_are_text() -> None:
    found = ids([{"role": "user", "content": "<|im_end|>"}])
    assert found.count(END) == 2  # the default system turn's and the user's own
    assert bytes(i for i in found if i < 256).count(b"<|im_end|>") == 1


WITH_BOS = "{{ bos_token }}" + CHATML


@pytest.mark.parametrize(
    ("template", "add_bos", "count"), [(WITH_BOS, True, 1), (WITH_BOS, False, 1), (CHATML, False, 0)]
)
def test_one_begin_token_at_most(template: str, add_bos: bool, count: int) -> None:
    """Where the template writes it, the tokenizer does not add another."""
    bare = ids(MESSAGES, CHATML)
    found = ids(MESSAGES, template, tokenizer=toy_tokenizer(add_bos=add_bos))
    assert found == [START] * count + bare


REVERSED = "{% for m in messages | reverse %}{{ m['role'] }}:{{ m['content'] }}\n{% endfor %}<|im_start|>"


def test_a_template_in_another_order_keeps_contents_text_too() -> None:
    tokenizer = toy_tokenizer()
    assert ids(MESSAGES, REVERSED) == tokenizer.encode("user:hé\nsystem:S\n<|im_start|>", parse_special=True)
    found = ids([MESSAGES[0], {"role": "user", "content": "x<|im_end|>"}], REVERSED)
    assert END not in found
    assert bytes(i for i in found if i < 256) == b"user:x<|im_end|>\nsystem:S\n"


def test_variables_reach_the_template() -> None:
    template = CHATML + "{% if quick %}quick{% endif %}"
    assert ids(MESSAGES, template, variables={"quick": True}) == ids(MESSAGES) + list(b"quick")


def test_an_answer_that_was_begun_goes_on() -> None:
    begun = [*MESSAGES, {"role": "assistant", "content": "I th"}]
    assert ids(begun, continue_final=True) == ids(MESSAGES) + list(b"I th")
    with pytest.raises(RequestError, match="not the assistant's"):
        ids(MESSAGES, continue_final=True)
    with pytest.raises(RequestError, match="behind the others"):
        ids(begun, REVERSED, continue_final=True)


def test_an_answer_that_was_begun_keeps_its_white_space() -> None:
    trimming = CHATML.replace("m['content'] }}<", "m['content'] | trim }}<")
    begun = [*MESSAGES, {"role": "assistant", "content": " I th "}]
    assert ids(begun, trimming, continue_final=True) == ids(MESSAGES) + list(b" I th ")


TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}


def test_a_template_without_tools_gets_them_as_a_block() -> None:
    tokenizer = toy_tokenizer()
    chat = ChatTemplate(CHATML, tokenizer.template_variables)
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    messages = [
        *MESSAGES,
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": "<|im_end|>"},
    ]
    found = chat_ids(tokenizer, chat, messages, None, tools=[TOOL])
    text = bytes(i for i in found if i < 256).decode()
    assert text.startswith("system\nS\n\n# Tools")
    assert '<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>' in text
    assert text.endswith("user\n<tool_response>\n<|im_end|>\n</tool_response>\nassistant\n")
    assert found.count(END) == 4  # one a turn: what the tool gave ends none


SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}, "land": {"type": "string"}}}


@pytest.mark.parametrize(
    ("text", "schema", "is_there"),
    [
        ("Where?", SCHEMA, False),
        ('{"type": "object",\n "properties": {"city": {"type": "string"}, "land": {"type":"string"}}}', SCHEMA, True),
        ('Give "city" and "land".', SCHEMA, True),
        ('Give "city".', SCHEMA, False),
        ("Give the city and the land.", SCHEMA, False),
        ("Answer in JSON.", {"type": "object"}, True),
        ("Answer.", {"type": "object"}, False),
        ("Answer in JSON.", {"type": "integer"}, False),
    ],
)
def test_whether_messages_show_a_schema(text: str, schema: Any, is_there: bool) -> None:
    assert shows_schema([{"role": "user", "content": text}], schema) is is_there


def test_a_schema_goes_behind_the_system_message() -> None:
    shown = with_schema(MESSAGES, SCHEMA)
    assert [message["role"] for message in shown] == ["system", "user"]
    assert shown[0]["content"].startswith("S\n\nAnswer with JSON that fits")
    assert shows_schema(shown, SCHEMA)
    assert [message["role"] for message in with_schema(MESSAGES[1:], SCHEMA)] == ["system", "user"]
