"""Chats from outside: messages become turns, and come back as they were."""

from __future__ import annotations

import copy
from typing import Any

import pytest

import sglang_lite as sgl
from sglang_lite.errors import ProgramError, RequestError, UnsupportedError
from sglang_lite.request_tree import TextOp

CHAT: list[dict[str, Any]] = [
    {"role": "system", "content": " Be kind. "},
    {"role": "user", "content": [{"type": "text", "text": "What is "}, {"type": "text", "text": "<|im_end|>?"}]},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "find", "arguments": '{"q": "end"}'}}],
    },
    {"role": "tool", "tool_call_id": "c1", "content": "A mark."},
    {"role": "assistant", "content": "A mark.", "name": "Ann"},
]


@sgl.function
def goes_on(s: sgl.ProgramState, chat: list[dict[str, Any]]) -> None:
    s.extend(chat)
    s += sgl.user("Thanks") + sgl.assistant(sgl.gen("x"))


def test_messages_come_back_as_they_were_with_what_was_added() -> None:
    given = copy.deepcopy(CHAT)
    backend = sgl.ScriptedBackend(["Welcome"])
    state = goes_on.run(given, backend=backend)
    assert given == CHAT
    assert state.messages() == [
        *CHAT,
        {"role": "user", "content": "Thanks"},
        {"role": "assistant", "content": "Welcome"},
    ]
    state.messages()[0]["content"] = "changed"
    assert state.messages()[0] == CHAT[0], "what is given back is a copy"
    prompt = backend.calls[0].prompt
    assert 'ASSISTANT:<tool_call>\n{"name": "find", "arguments": {"q": "end"}}\n</tool_call>\n' in prompt
    assert "TOOL:A mark.\n" in prompt
    texts = [op for op in state.branch.session.tree.ops.values() if isinstance(op, TextOp)]
    assert all(op.literal for op in texts)


def test_what_one_run_gave_goes_into_another_one() -> None:
    first = goes_on.run(CHAT, backend=sgl.ScriptedBackend(["Welcome"]))
    second = goes_on.run(first.messages(), backend=sgl.ScriptedBackend(["Again"]))
    assert second.messages()[: len(first.messages())] == first.messages()


@pytest.mark.parametrize(
    ("message", "error", "words"),
    [
        ("hi", RequestError, "reading message 1: got 'hi'"),
        ({"content": "x"}, RequestError, "its role is None"),
        ({"role": "user", "content": 7}, RequestError, "its content is 7"),
        ({"role": "user", "content": [{"type": "image_url"}]}, UnsupportedError, "'image_url' is not supported"),
        ({"role": "user", "content": [{"type": "text"}]}, RequestError, "a part has the text None"),
        ({"role": "assistant", "tool_calls": [{}]}, RequestError, "tool call 0: got {}"),
        ({"role": "assistant", "tool_calls": 1}, RequestError, "its tool_calls are 1"),
        (
            {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{"}}]},
            RequestError,
            "no JSON",
        ),
        ({"role": "user", "content": "x", "extra": object()}, RequestError, "expected texts, numbers"),
    ],
)
def test_what_is_no_message_is_refused_before_anything_is_appended(
    message: Any, error: type[Exception], words: str
) -> None:
    @sgl.function
    def program(s: sgl.ProgramState) -> None:
        with pytest.raises(error) as caught:
            s.extend([CHAT[0], message])
        assert words in str(caught.value)
        assert s.text() == ""

    program.run(backend=sgl.ScriptedBackend([]))


def test_one_message_is_no_list() -> None:
    @sgl.function
    def program(s: sgl.ProgramState) -> None:
        s.extend(CHAT[0])  # pyright: ignore[reportArgumentType] - that is what is tested

    with pytest.raises(RequestError, match="expected a list of messages"):
        program.run(backend=sgl.ScriptedBackend([]))


def test_an_open_turn_takes_no_messages() -> None:
    @sgl.function
    def program(s: sgl.ProgramState) -> None:
        with s.user():
            s.extend(CHAT)

    with pytest.raises(ProgramError, match="Nested roles are not allowed"):
        program.run(backend=sgl.ScriptedBackend([]))


@pytest.mark.model
def test_on_a_real_model_messages_are_the_rendering_and_go_on(engine: sgl.Engine) -> None:
    state = goes_on.run(CHAT, backend=engine, max_new_tokens=4, temperature=0)
    assert state.messages()[:5] == CHAT
    assert len(state.messages()) == 7
    from sglang_lite.chat_formats import adapt

    chat = engine._parts.text.chat  # pyright: ignore[reportPrivateUsage] - the prompt that the engine must have made
    tokenizer = engine.tokenizer
    turns = [{**m, "content": "What is <|im_end|>?"} if m["role"] == "user" else m for m in CHAT]
    shown, _ = adapt(tokenizer.guard.guarded([*turns, {"role": "user", "content": "Thanks"}]), None, chat.format)
    ids = tokenizer.encode_pieces(tokenizer.guard.pieces(chat.render(shown, True)))
    assert state.get_meta_info("x")["prompt_tokens"] == len(ids)
