"""OpenAI's messages, checked and made into what templates take."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from sglang_lite.errors import RequestError, UnsupportedError
from sglang_lite.runtime.server.body import Body
from sglang_lite.runtime.server.errors import FieldError

_MEDIA = (
    "image_url",
    "input_audio",
    "file",
    "video_url",
    "audio_url",
    "input_image",
    "input_file",
    "image",
    "document",
)


class ChatMessage(Body):
    """One message."""

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: str | list[dict[str, Any]] | None = None
    name: str | None = None
    refusal: str | None = None
    tool_calls: list[dict[str, Any]] | None = None
    tool_call_id: str | None = None
    function_call: Any = None
    audio: Any = None
    annotations: Any = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    grammar_notes: list[str] | None = None


def messages_for_template(given: Sequence[ChatMessage]) -> list[dict[str, Any]]:
    """Messages as the template takes them: `developer` is `system`, parts of text are joined, results have names.

    Raises:
        RequestError: no message, a role, a call or content that is wrong or not built, by its place.
    """
    if not given:
        raise FieldError("reading the request: messages is empty, expected at least one", "messages")
    names: dict[str, str] = {}
    return [_message(f"messages.{i}", message, names) for i, message in enumerate(given)]


def joined_text(where: str, parts: Sequence[Any], kinds: tuple[str, ...] = ("text",)) -> str:
    """The text of parts of the given kinds.

    Raises:
        RequestError: another kind of part, or one without text, by its place.
    """
    return "".join(_part(f"{where}.{i}", part, kinds) for i, part in enumerate(parts))


def _message(where: str, message: ChatMessage, names: dict[str, str]) -> dict[str, Any]:
    if message.role == "function" or message.function_call is not None:
        raise UnsupportedError(f"reading the request: {where}: functions are not supported; use tools")
    if message.audio is not None:
        raise UnsupportedError(f"reading the request: {where}: audio is not supported; send text")
    known: dict[str, Any] = {
        "role": "system" if message.role == "developer" else message.role,
        "content": _content(f"{where}.content", message),
        "name": message.name,
        "reasoning_content": message.reasoning_content or message.reasoning,
    }
    if message.role == "tool":
        if not message.tool_call_id:
            raise FieldError(f"reading the request: {where}.tool_call_id is missing", f"{where}.tool_call_id")
        known |= {"tool_call_id": message.tool_call_id, "name": message.name or names.get(message.tool_call_id)}
    if message.tool_calls:
        if message.role != "assistant":
            raise FieldError(
                f"reading the request: {where} has tool_calls, expected them of the assistant only",
                f"{where}.tool_calls",
            )
        known["tool_calls"] = [
            _call(f"{where}.tool_calls.{i}", call, names) for i, call in enumerate(message.tool_calls)
        ]
    return {key: value for key, value in known.items() if value is not None}


def _call(where: str, call: dict[str, Any], names: dict[str, str]) -> dict[str, Any]:
    function = call.get("function")
    if call.get("type", "function") != "function" or not isinstance(function, dict):
        raise FieldError(
            f'reading the request: {where}: expected {{"id", "type": "function", "function": {{...}}}}', where
        )
    name, arguments = function.get("name"), function.get("arguments")
    if not isinstance(name, str) or not isinstance(arguments, str | None):
        raise FieldError(f"reading the request: {where}.function: expected a name and arguments as JSON text", where)
    if isinstance(call_id := call.get("id"), str):
        names[call_id] = name
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments or "{}"}}


def _content(where: str, message: ChatMessage) -> str:
    content = message.content
    if isinstance(content, str):
        return content
    if content is None:
        if message.role != "assistant":
            raise FieldError(f"reading the request: {where} is missing, expected text", where)
        return ""
    if not content:
        raise FieldError(f"reading the request: {where} is an empty list, expected parts of text", where)
    return joined_text(where, content, ("text", "refusal") if message.role == "assistant" else ("text",))


def _part(where: str, part: Any, kinds: tuple[str, ...]) -> str:
    if not isinstance(part, dict):
        raise RequestError(f"reading the request: {where}: got {part!r:.80}, expected an object with a type and text")
    kind = part.get("type")
    if kind in _MEDIA:
        raise UnsupportedError(f"reading the request: {where}: parts of type {kind} are not supported; send text")
    text = part.get("refusal" if kind == "refusal" else "text")
    if kind not in kinds or not isinstance(text, str):
        raise FieldError(f'reading the request: {where}: expected {{"type": "{kinds[0]}", "text": "..."}}', where)
    return text
