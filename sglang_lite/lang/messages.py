"""Messages in OpenAI's form: how those from outside become turns, and how turns are given back; waits for nothing."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from sglang_lite.chat_formats.calls import arguments_of
from sglang_lite.errors import RequestError, UnsupportedError
from sglang_lite.lang.futures import OpFuture
from sglang_lite.lang.tools.values import ThinkingToolValue, ToolReply, ToolValue
from sglang_lite.lang.values import Value
from sglang_lite.request_tree import RoleBeginOp, RoleEndOp

Message = dict[str, Any]


@dataclass(frozen=True, slots=True)
class GivenTurn:
    """A message from outside as a turn. `fields`: as of `RoleBeginOp`; `message`: the message itself, as a copy."""

    role: str
    text: str
    fields: str
    message: Message


def read_messages(messages: Iterable[Mapping[str, Any]]) -> list[GivenTurn]:
    """The turns that messages say; nothing given is changed.

    Raises:
        RequestError: one is no message; names its number and what is wrong.
        UnsupportedError: one has a part that is no text.
    """
    if isinstance(messages, str | Mapping):
        raise RequestError(f"reading messages: got {messages!r:.200}, expected a list of messages")
    return [_turn(number, message) for number, message in enumerate(messages)]


def _turn(number: int, message: object) -> GivenTurn:
    what = f"reading message {number}"
    if not isinstance(message, Mapping):
        raise RequestError(f"{what}: got {message!r:.200}, expected {{'role': ..., 'content': ...}}")
    given = copy.deepcopy(dict(cast("Mapping[str, Any]", message)))
    role = given.get("role")
    if not isinstance(role, str) or not role:
        raise RequestError(f"{what}: its role is {role!r}, expected a text such as user or assistant")
    text = content_text(given.get("content"), what)
    for index, call in enumerate(_calls(given, what)):
        _check_call(call, f"{what}, tool call {index}")
    fields = {key: value for key, value in given.items() if key not in ("role", "content") and value is not None}
    try:
        shown = json.dumps(fields, ensure_ascii=False)
    except (TypeError, ValueError) as error:
        raise RequestError(f"{what}: {error}; expected texts, numbers, lists and objects") from error
    return GivenTurn(role, text, shown, given)


def _calls(message: Message, what: str) -> Sequence[Any]:
    calls: Any = message.get("tool_calls") or ()
    if not isinstance(calls, list | tuple):
        raise RequestError(f"{what}: its tool_calls are {calls!r:.200}, expected a list")
    return cast("Sequence[Any]", calls)


def _check_call(call: Any, what: str) -> None:
    function: Any = cast("Mapping[str, Any]", call).get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping):
        raise RequestError(f"{what}: got {call!r:.200}, expected {{'id': ..., 'function': {{...}}}}")
    named = cast("Mapping[str, Any]", function)
    if not isinstance(named.get("name"), str):
        raise RequestError(f"{what}: its name is {named.get('name')!r}, expected a text")
    arguments_of(named.get("arguments"))


def content_text(content: Any, what: str) -> str:
    """The text of a message's content: a text, None, or a list of text parts.

    Raises:
        RequestError: it is none of these.
        UnsupportedError: a part is an image, sound or the like.
    """
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, list | tuple):
        raise RequestError(f"{what}: its content is {content!r:.200}, expected a text or a list of parts")
    texts: list[str] = []
    for part in cast("Sequence[Any]", content):
        kind: Any = cast("Mapping[str, Any]", part).get("type") if isinstance(part, Mapping) else None
        if kind != "text":
            raise UnsupportedError(f"{what}: a part of the type {kind!r} is not supported; give texts only")
        text = cast("Mapping[str, Any]", part).get("text")
        if not isinstance(text, str):
            raise RequestError(f"{what}: a part has the text {text!r:.200}, expected a text")
        texts.append(text)
    return "".join(texts)


@dataclass(frozen=True, slots=True)
class Happening:
    """What turns are read from: an op, what it stands for, and the message that it began with, if that was given.

    `is_hidden`: the text belongs to the template, not to a message.
    """

    future: OpFuture
    value: Value | None = None
    message: Message | None = None
    is_hidden: bool = False


def closed_turns(happenings: Iterable[Happening]) -> list[Message]:
    """The closed turns as messages: given ones as they were given; of others the text without leading white space.

    A turn in which a gen called tools has `tool_calls`, and a turn of a tool's result what it answers.
    """
    messages: list[Message] = []
    begun: Happening | None = None
    parts: list[str] = []
    calls: list[Message] = []
    for happening in happenings:
        op = happening.future.op
        if isinstance(op, RoleBeginOp):
            begun, parts, calls = happening, [], []
        elif isinstance(op, RoleEndOp) and begun is not None:
            messages.append(_message(begun, "".join(parts).lstrip(), calls))
            begun = None
        elif not happening.is_hidden:
            reply = _reply(happening)
            parts.append(happening.future.text_so_far if reply is None else reply.text)
            calls += [] if reply is None else [call.to_openai() for call in reply.tool_calls]
    return messages


def _reply(happening: Happening) -> ToolReply | None:
    """What a gen with tools that is done has answered."""
    value = happening.value
    if not isinstance(value, ToolValue | ThinkingToolValue) or value.future.done is None:
        return None
    reply: Any = value.get()
    return reply[0] if isinstance(reply, list) else reply  # pyright: ignore[reportUnknownVariableType]


def _message(begun: Happening, content: str, calls: list[Message]) -> Message:
    if begun.message is not None:
        return copy.deepcopy(begun.message)
    op = begun.future.op
    assert isinstance(op, RoleBeginOp), f"a turn begins with op {op.id}"
    fields: Message = json.loads(op.fields) if op.fields else {}
    return {"role": op.role, "content": content, **fields, **({"tool_calls": calls} if calls else {})}
