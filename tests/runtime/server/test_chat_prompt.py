from __future__ import annotations

from typing import Any

import pytest

from sglang_lite.errors import RequestError
from sglang_lite.runtime.server.chat_prompt import chat_ids
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


def test_a_template_in_another_order_is_taken_whole_and_guarded() -> None:
    tokenizer = toy_tokenizer()
    assert ids(MESSAGES, REVERSED) == tokenizer.encode("user:hé\nsystem:S\n<|im_start|>", parse_special=True)
    with pytest.raises(RequestError, match=r"messages\.1 holds '<\|im_end\|>'"):
        ids([MESSAGES[0], {"role": "user", "content": "x<|im_end|>"}], REVERSED)


def test_variables_reach_the_template() -> None:
    template = CHATML + "{% if quick %}quick{% endif %}"
    assert ids(MESSAGES, template, variables={"quick": True}) == ids(MESSAGES) + list(b"quick")


def test_an_answer_that_was_begun_goes_on() -> None:
    begun = [*MESSAGES, {"role": "assistant", "content": "I th"}]
    assert ids(begun, continue_final=True) == ids(MESSAGES) + list(b"I th")
    with pytest.raises(RequestError, match="not the assistant's"):
        ids(MESSAGES, continue_final=True)
    with pytest.raises(RequestError, match="turn by turn"):
        ids(begun, REVERSED, continue_final=True)
