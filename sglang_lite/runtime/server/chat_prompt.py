"""From messages to token ids: the model's template, in which nothing that a message says becomes a control token."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sglang_lite.chat_formats.adapt import adapt
from sglang_lite.errors import RequestError
from sglang_lite.runtime.server.service import with_bos
from sglang_lite.runtime.text.chat import ChatTemplate
from sglang_lite.runtime.text.chat_pieces import Piece
from sglang_lite.runtime.text.tokenizer import Tokenizer

Messages = Sequence[dict[str, Any]]

_ANSWER = "\ue000answer\ue001"  # stands for an answer that was begun; no template tests for it


def chat_ids(
    tokenizer: Tokenizer,
    chat: ChatTemplate,
    messages: Messages,
    variables: Mapping[str, Any] | None,
    *,
    continue_final: bool = False,
    tools: Sequence[Mapping[str, Any]] | None = None,
) -> list[int]:
    """The prompt's ids: those of the template's text, except that what messages, tools and variables say is only text.

    Args:
        continue_final: the last message, the assistant's, is the beginning of the answer.
        tools: in OpenAI's form; see `adapt` for templates that show none.

    Raises:
        RequestError: the template refuses the messages (its own words), or a call in them is malformed.
    """
    if continue_final and messages[-1]["role"] != "assistant":
        raise RequestError("reading the request: continue_final_message, but the last message is not the assistant's")
    guard = tokenizer.guard
    shown, shown_tools = adapt(guard.guarded(messages), guard.guarded(tools), chat.format)
    given = {**guard.guarded(variables or {}), **shown_tools}
    begun = ""
    if continue_final:
        begun = shown[-1].get("content") or ""
        shown = [*shown[:-1], {**shown[-1], "content": _ANSWER}]
    text = chat.render(shown, not continue_final, given)
    if continue_final:
        before = text.partition(_ANSWER)[0]
        contents = [str(message.get("content") or "").strip() for message in shown[:-1]]
        if text.count(_ANSWER) != 1 or any(content not in before for content in contents):
            raise RequestError(
                "reading the request: continue_final_message needs a template that shows the last message once, and "
                "behind the others; leave it out"
            )
        text = before + begun
    pieces: list[Piece] = guard.pieces(text)
    return with_bos(tokenizer, tokenizer.encode_pieces(pieces), from_template=True)


def schema_block(schema: Any) -> str:
    """What tells a model the form of its answer; `{"type": "object"}` alone: any JSON object."""
    if schema == {"type": "object"}:
        return "Answer with a JSON object and nothing else."
    return (
        f"Answer with JSON that fits this JSON Schema, and with nothing else:\n{json.dumps(schema, ensure_ascii=False)}"
    )


def shows_schema(messages: Messages, schema: Any) -> bool:
    """Whether a message has the schema: as it is, white space aside, or at least each of its member names in quotes."""
    text = "\n".join(str(message.get("content") or "") for message in messages)
    if schema == {"type": "object"}:
        return "json" in text.lower()
    plain = re.sub(r"\s+", "", text)
    if any(re.sub(r"\s+", "", json.dumps(schema, ensure_ascii=ascii_only)) in plain for ascii_only in (False, True)):
        return True
    names = set(_member_names(schema))
    return bool(names) and all(f'"{name}"' in text for name in names)


def with_schema(messages: Messages, schema: Any) -> list[dict[str, Any]]:
    """The messages with the form of the answer at the end of the system message, a new one if there is none."""
    block = schema_block(schema)
    if messages[0]["role"] == "system":
        first = {**messages[0], "content": f"{messages[0].get('content') or ''}\n\n{block}".lstrip()}
        return [first, *messages[1:]]
    return [{"role": "system", "content": block}, *messages]


def _member_names(schema: Any) -> Iterator[str]:
    if isinstance(schema, Mapping):
        properties = schema.get("properties")
        if isinstance(properties, Mapping):
            yield from map(str, properties)
        for value in schema.values():
            yield from _member_names(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from _member_names(value)
