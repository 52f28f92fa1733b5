"""An answer as the items of a response and as the events that build them."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from typing import Any

from sglang_lite.runtime.server.answer_reader import Part

Json = dict[str, Any]


class ItemWriter:
    """Makes items out of parts as they come, and the events that tell of them.

    `items`: those so far; the last one may be open. Events have no `sequence_number` yet.
    """

    def __init__(self) -> None:
        self.items: list[Json] = []
        self._kind = ""

    def take(self, part: Part, logprobs: list[Json]) -> Iterator[Json]:
        """The events of one more part. `logprobs`: of the tokens that came with it, for text."""
        match part.kind:
            case "thinking":
                yield from self._open("reasoning")
                yield from self._grow_content("response.reasoning_text.delta", part.text, [])
            case "text":
                yield from self._open("message")
                yield from self._grow_content("response.output_text.delta", part.text, logprobs)
            case "call":
                yield from self._close("completed")
                yield from self._open("function_call", name=part.text, call_id=part.call_id)
            case "arguments":
                item = self.items[-1]
                item["arguments"] += part.text
                yield self._event("response.function_call_arguments.delta", delta=part.text)

    def finish(self, status: str) -> Iterator[Json]:
        """The end: the last item has `status`; an answer without anything is an empty message."""
        if not self.items:
            yield from self._open("message")
        yield from self._close(status)

    def _open(self, kind: str, **fields: Any) -> Iterator[Json]:
        if self._kind == kind and kind != "function_call":
            return
        yield from self._close("completed")
        self._kind = kind
        item: Json
        if kind == "message":
            item = {"id": _new_id("msg"), "type": kind, "status": "in_progress", "role": "assistant", "content": []}
        elif kind == "reasoning":
            item = {"id": _new_id("rs"), "type": kind, "status": "in_progress", "summary": [], "content": []}
        else:
            item = {"id": _new_id("fc"), "type": kind, "status": "in_progress", "arguments": "", **fields}
        self.items.append(item)
        yield {"type": "response.output_item.added", "output_index": len(self.items) - 1, "item": _copy(item)}
        if "content" in item:
            part: Json = {"type": "reasoning_text", "text": ""}
            if kind == "message":
                part = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
            item["content"].append(part)
            yield self._event("response.content_part.added", content_index=0, part=_copy(part))

    def _grow_content(self, event: str, text: str, logprobs: list[Json]) -> Iterator[Json]:
        part = self.items[-1]["content"][0]
        part["text"] += text
        more: Json = {}
        if part["type"] == "output_text":
            part["logprobs"] += logprobs
            more = {"logprobs": [{key: one[key] for key in ("token", "logprob", "top_logprobs")} for one in logprobs]}
        yield self._event(event, content_index=0, delta=text, **more)

    def _close(self, status: str) -> Iterator[Json]:
        if not self._kind:
            return
        item = self.items[-1]
        item["status"] = status
        if self._kind == "function_call":
            name, arguments = item["name"], item["arguments"]
            yield self._event("response.function_call_arguments.done", name=name, arguments=arguments)
        else:
            part = item["content"][0]
            is_text = part["type"] == "output_text"
            more: Json = {"logprobs": part["logprobs"]} if is_text else {}
            name = "response.output_text.done" if is_text else "response.reasoning_text.done"
            yield self._event(name, content_index=0, text=part["text"], **more)
            yield self._event("response.content_part.done", content_index=0, part=_copy(part))
        yield {"type": "response.output_item.done", "output_index": len(self.items) - 1, "item": _copy(item)}
        self._kind = ""

    def _event(self, kind: str, **fields: Any) -> Json:
        return {"type": kind, "item_id": self.items[-1]["id"], "output_index": len(self.items) - 1, **fields}


def _new_id(prefix: str) -> str:
    return f"{prefix}_{secrets.token_hex(16)}"


def _copy(value: Json) -> Json:
    return {key: [dict(one) for one in inner] if isinstance(inner, list) else inner for key, inner in value.items()}
