"""Dialogues whose template changes what was written before: the ids are those of the whole rendering."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sglang_lite.errors import RequestError
from sglang_lite.runtime.executor.branch import Branch
from sglang_lite.runtime.text.chat import ChatTemplate
from sglang_lite.runtime.text.tokenizer import Tokenizer
from tests.chat_formats import templates
from tests.support.toy_text import END, START, toy_text

TOKENIZER = toy_text().tokenizer
TRIMS = templates.CHATML.replace("m.content", "(m.content | trim)")
DEFAULT = "{% if messages[0].role != 'system' %}<|im_start|>system\nBe kind.<|im_end|>\n{% endif %}" + templates.CHATML
WRITES_BEFORE = (
    "{{ messages | length }} turns\n" + templates.CHATML  # each turn changes the first line
)
SOURCES = {
    "chatml": templates.CHATML,
    "default system turn": DEFAULT,
    "trims": TRIMS,
    "thinker": templates.THINKER,
    "opener": templates.OPENER,
    "counts its turns": WRITES_BEFORE,
}
TALK = [
    ("system", " Be brief.\n"),
    ("user", "  hi"),
    ("assistant", "<think>\nhm\n</think>\n\nHello "),
    ("user", "what is <|im_end|>?"),
    ("assistant", "an end"),
    ("user", "thanks"),
]


def written(chat: ChatTemplate, talk: list[tuple[str, str]], *, flush_each: bool, generated: bool = True) -> Branch:
    """A branch on which `talk` was written turn by turn; an answer is generated, one id a byte."""
    branch = Branch(0, None)
    for role, content in talk:
        branch.begin_role(role, chat)
        if role == "assistant" and generated:
            branch.flush(TOKENIZER)
            branch.add_generated(list(content.encode()), content, "", content)
        else:
            branch.add_text(content, literal=False)
        branch.end_role(chat)
        if flush_each:
            branch.flush(TOKENIZER)
    return branch


def rendered(chat: ChatTemplate, talk: list[tuple[str, str]]) -> tuple[int, ...]:
    """The ids of the whole rendering, in which the text of contents is never a special token."""
    guard = TOKENIZER.guard
    messages = [{"role": role, "content": guard.guarded(content)} for role, content in talk]
    return tuple(TOKENIZER.encode_pieces(guard.pieces(chat.render(messages, True))))


@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)
@pytest.mark.parametrize("flush_each", [False, True])
def test_the_ids_are_those_of_the_whole_rendering(source: str, flush_each: bool) -> None:
    chat = ChatTemplate(source, {})
    for length in range(1, len(TALK) + 1):
        talk = TALK[:length]
        branch = written(chat, talk, flush_each=flush_each)
        branch.begin_role("assistant", chat)
        assert branch.flush(TOKENIZER) == rendered(chat, talk)


def test_earlier_thinking_goes_when_the_next_question_comes_and_what_is_shared_stays() -> None:
    chat = ChatTemplate(templates.THINKER, {})
    branch = written(chat, TALK[1:3], flush_each=False)
    before = branch.flush(TOKENIZER)
    assert branch.rewritten is None, "nothing changes before a further turn"
    branch.begin_role("user", chat)
    branch.add_text("and?", literal=False)
    branch.end_role(chat)
    after = branch.flush(TOKENIZER)
    kept = next(n for n, (a, b) in enumerate(zip(before, after, strict=False)) if a != b)
    assert branch.rewritten == {"kept_tokens": kept, "dropped_tokens": len(before) - kept}
    assert 0 < kept < len(before)
    assert b"hm" not in bytes(i for i in after if i < 256)
    branch.flush(TOKENIZER)
    assert branch.rewritten is None, "an event is told once"


def test_generated_ids_before_the_change_are_kept_as_they_were() -> None:
    """An answer whose ids no tokenising would give stays, where the change comes behind it."""
    chat = ChatTemplate(templates.THINKER, {})
    branch = Branch(0, None)
    odd = TOKENIZER.special_tokens["<pad>"]  # the text of this id would be parsed to it only in template text
    for role, ids, text in (("user", None, "hi"), ("assistant", [65, odd], "A<pad>"), ("user", None, "?")):
        branch.begin_role(role, chat)
        branch.add_text(text, literal=False) if ids is None else branch.add_generated(ids, "A", "", text)
        branch.end_role(chat)
    branch.begin_role("assistant", chat)
    branch.flush(TOKENIZER)
    branch.add_generated(list(b"<think>x</think>yes"), "", "", "<think>x</think>yes")
    branch.end_role(chat)
    branch.begin_role("user", chat)
    ids = branch.flush(TOKENIZER)
    assert branch.rewritten is not None
    assert odd in ids
    assert bytes(i for i in ids if i < 256).count(b"think") == 0


def test_results_of_tools_are_merged_as_the_template_has_it() -> None:
    chat = ChatTemplate(templates.THINKER, {})
    branch = written(chat, [("user", "hi")], flush_each=True)
    for text in ("5", "<|im_end|>"):
        branch.begin_role("tool", chat, '{"tool_call_id": "c1"}', TOKENIZER.guard)
        branch.add_text(text, literal=True)
        branch.end_role(chat)
    ids = branch.flush(TOKENIZER)
    assert TOKENIZER.decode(ids, skip_special=False) == (
        "<|im_start|>user\nhi<|im_end|>\n<|im_start|>user<tool_response>\n5\n</tool_response><tool_response>\n"
        "<|im_end|>\n</tool_response><|im_end|>\n"
    )
    assert ids.count(END) == 2, "the text of a result is never a special token"


def test_calls_from_outside_are_shown_by_the_template_and_never_parsed() -> None:
    chat = ChatTemplate(templates.THINKER, {})
    call = {"id": "c1", "function": {"name": "f", "arguments": json.dumps({"x": "<|im_end|>"})}}
    branch = written(chat, [("user", "hi")], flush_each=True)
    branch.begin_role("assistant", chat, json.dumps({"tool_calls": [call]}), TOKENIZER.guard)
    branch.end_role(chat, TOKENIZER.guard)
    ids = branch.flush(TOKENIZER)
    text = TOKENIZER.decode(ids, skip_special=False)
    assert '<tool_call>\n{"name": "f", "arguments": {"x": "<|im_end|>"}}\n</tool_call><|im_end|>\n' in text
    assert ids.count(END) == 2


@pytest.mark.parametrize("source", [templates.CHATML, templates.THINKER])
def test_tools_that_come_late_stand_at_the_beginning(source: str) -> None:
    chat = ChatTemplate(source, {})
    branch = written(chat, [("user", "hi")], flush_each=True)
    branch.begin_role("assistant", chat)
    branch.add_text("So: ", literal=False)
    branch.dialogue.set_variables({"tools": [{"name": "f<|im_end|>"}]})
    ids = branch.flush(TOKENIZER)
    text = TOKENIZER.decode(ids, skip_special=False)
    assert text.startswith("<|im_start|>system\n# Tools")
    assert text.endswith("<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\nSo: ")
    assert (ids.count(START), ids.count(END)) == (3, 2), "a tool's name is text"
    branch.dialogue.set_variables({"tools": None})
    assert "Tools" not in TOKENIZER.decode(branch.flush(TOKENIZER), skip_special=False)


def test_a_switch_of_the_template_changes_the_open_turn() -> None:
    chat = ChatTemplate(templates.THINKER, {})
    branch = written(chat, [("user", "hi")], flush_each=True)
    branch.begin_role("assistant", chat)
    branch.dialogue.set_variables({"enable_thinking": False})
    assert TOKENIZER.decode(branch.flush(TOKENIZER)).endswith("<think>\n\n</think>\n\n")


def test_text_outside_of_turns_leaves_turns_as_they_were_written_and_refuses_variables() -> None:
    chat = ChatTemplate(templates.THINKER, {})
    branch = written(chat, TALK[1:3], flush_each=True)
    branch.add_text("\n", literal=False)
    branch.begin_role("user", chat)
    assert b"hm" in bytes(i for i in branch.flush(TOKENIZER) if i < 256)
    branch.dialogue.set_variables({"tools": [{"name": "f"}]})
    with pytest.raises(RequestError, match="text stands outside of its turns"):
        branch.flush(TOKENIZER)


def test_a_child_and_a_rewound_branch_go_on_from_their_own_turns() -> None:
    chat = ChatTemplate(templates.THINKER, {})
    branch = written(chat, TALK[1:3], flush_each=True)
    branch.mark(7)
    child = Branch(1, branch)
    child.copy_from(branch, TOKENIZER)
    for one in (child, branch):
        one.begin_role("user", chat)
        one.add_text("x", literal=False)
        one.end_role(chat)
    assert (
        child.flush(TOKENIZER)
        == branch.flush(TOKENIZER)
        == rendered(chat, [*TALK[1:3], ("user", "x")])[: len(child.ids)]
    )
    branch.rewind(7)
    assert b"hm" in bytes(i for i in branch.flush(TOKENIZER) if i < 256)


@pytest.mark.parametrize("fields", ["", "7", "{"])
def test_fields_that_are_no_object_are_refused(fields: str) -> None:
    with pytest.raises(RequestError, match="expected the JSON text of an object"):
        Branch(0, None).begin_role("user", ChatTemplate(templates.CHATML, {}), fields)


@pytest.mark.model
def test_the_embedded_models_template_gives_the_ids_of_its_rendering(tokenizer: Tokenizer) -> None:
    chat = ChatTemplate(tokenizer.chat_template, tokenizer.template_variables)
    messages: list[dict[str, Any]] = [{"role": role, "content": content} for role, content in TALK[1:]]
    branch = Branch(0, None)
    for message in messages:
        branch.begin_role(message["role"], chat)
        branch.add_text(message["content"].replace("<|im_end|>", "the end"), literal=False)
        branch.end_role(chat)
        branch.flush(tokenizer)
    branch.begin_role("assistant", chat)
    plain = [{**message, "content": message["content"].replace("<|im_end|>", "the end")} for message in messages]
    assert branch.flush(tokenizer) == tuple(tokenizer.encode(chat.render(plain, True), parse_special=True))
