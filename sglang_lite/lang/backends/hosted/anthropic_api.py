"""Anthropic's messages."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

from sglang_lite import env
from sglang_lite.errors import ExecutionError, RequestError, UnsupportedError
from sglang_lite.lang.backends.hosted.abilities import Abilities
from sglang_lite.lang.backends.hosted.backend import HostedBackend, load_client
from sglang_lite.lang.backends.hosted.messages import Calls, Message, ModelReply, ModelRequest, TokenRow
from sglang_lite.lang.backends.hosted.retry import RetryPolicy
from sglang_lite.lang.chat_templates import named_template

_ANSWER = "answer"
"""The tool whose input is the answer, where that has to be of a form."""
_MAX_TOKENS = 4096
"""Where a gen has no limit: the API wants one."""


def anthropic_abilities(name: str, *, continues: bool = False) -> Abilities:
    """What the API can do. `continues`: the model is one of those that go on from the beginning of an answer."""
    return Abilities(
        name,
        params=frozenset({"top_k"}),
        continues=continues,
        counts=True,
        max_temperature=1.0,
        num_stops=64,
        blank_stops=False,
    )


class AnthropicAdapter:
    """Calls of one client of Anthropic's package."""

    def __init__(self, client: Any, model: str, abilities: Abilities) -> None:
        self._client = client
        self._model = model
        self._abilities = abilities

    @property
    def abilities(self) -> Abilities:
        """What the API can do."""
        return self._abilities

    async def generate(self, request: ModelRequest) -> ModelReply:
        """`n` messages side by side: the API gives one a call."""
        first = self._one(request)
        others = [self._one(replace(request, on_text=None)) for _ in range(request.n - 1)]
        replies = await asyncio.gather(first, *others)
        meta = dict(replies[0].meta)
        for name in ("prompt_tokens", "completion_tokens", "cached_tokens"):
            meta[name] = sum(reply.meta[name] for reply in replies)
        meta["requests"] = len(replies)
        return ModelReply(tuple(r.texts[0] for r in replies), replies[0].finish_reason, meta, replies[0].calls)

    async def _one(self, request: ModelRequest) -> ModelReply:
        fields = self._fields(request)
        if request.on_text is None:
            return _read(await self._client.messages.create(**fields), request)
        async with self._client.messages.stream(**fields) as stream:
            async for piece in stream.text_stream:
                request.on_text(piece)
            reply = _read(await stream.get_final_message(), request)
        if reply.calls is not None:
            request.on_text(reply.texts[0][len(reply.calls.spoken) :])
        return reply

    def _fields(self, request: ModelRequest) -> dict[str, Any]:
        system, messages = _split(request.messages)
        params = request.params
        extra: dict[str, Any] = {"temperature": params.temperature}
        if params.top_p != 1.0:
            extra["top_p"] = params.top_p
        if params.top_k != -1:
            extra["top_k"] = params.top_k
        fields: dict[str, Any] = {
            "model": self._model,
            "messages": messages,
            "max_tokens": request.max_tokens or _MAX_TOKENS,
            "extra_body": extra,  # the client's own fields for these come and go with its versions
        }
        if system:
            fields["system"] = system
        if request.stop:
            fields["stop_sequences"] = list(request.stop)
        if request.form is not None:
            fields["tools"] = [
                {"name": _ANSWER, "description": "Give the answer.", "input_schema": dict(request.form.schema)}
            ]
            fields["tool_choice"] = {"type": "tool", "name": _ANSWER}
        elif request.tools:
            fields["tools"] = [_tool(tool) for tool in request.tools]
            kinds = {"auto": "auto", "required": "any", "none": "none"}
            choice: dict[str, str] = {"type": kinds.get(request.tool_choice, "tool")}
            fields["tool_choice"] = choice if choice["type"] != "tool" else {**choice, "name": request.tool_choice}
        return fields

    async def score(self, prompt: str, choices: tuple[str, ...]) -> tuple[list[TokenRow], dict[str, Any]]:
        """Not an ability of this API.

        Raises:
            UnsupportedError: always.
        """
        raise UnsupportedError(f"scoring choices: {self._abilities.name} gives no log-probabilities")

    async def count(self, messages: tuple[Message, ...]) -> int:
        """Tokens of the messages, by the API's own count."""
        system, turns = _split(messages)
        fields: dict[str, Any] = {"model": self._model, "messages": turns or [{"role": "user", "content": "."}]}
        if system:
            fields["system"] = system
        return (await self._client.messages.count_tokens(**fields)).input_tokens

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()


def _split(messages: tuple[Message, ...]) -> tuple[str, list[dict[str, Any]]]:
    """The system texts, which have a place of their own, and the turns in the API's form."""
    system = "\n\n".join(str(m["content"]) for m in messages if m["role"] == "system" and m["content"])
    return system, [_turn(message) for message in messages if message["role"] != "system"]


def _turn(message: Message) -> dict[str, Any]:
    if message["role"] == "tool":
        result = {"type": "tool_result", "tool_use_id": message.get("tool_call_id"), "content": message["content"]}
        return {"role": "user", "content": [result]}
    calls: list[Mapping[str, Any]] = message.get("tool_calls") or []
    if not calls:
        return {"role": message["role"], "content": message["content"]}
    said = [{"type": "text", "text": message["content"]}] if message["content"] else []
    uses = [
        {
            "type": "tool_use",
            "id": call["id"],
            "name": call["function"]["name"],
            "input": json.loads(call["function"]["arguments"] or "{}"),
        }
        for call in calls
    ]
    return {"role": "assistant", "content": [*said, *uses]}


def _tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    inner = cast("Mapping[str, Any]", tool.get("function", tool))
    schema: Any = inner.get("parameters") or {"type": "object"}
    return {"name": inner["name"], "description": inner.get("description", ""), "input_schema": schema}


def _read(reply: Any, request: ModelRequest) -> ModelReply:
    usage = reply.usage
    cached = getattr(usage, "cache_read_input_tokens", 0) or 0
    written = getattr(usage, "cache_creation_input_tokens", 0) or 0
    meta = {
        "id": reply.id,
        "prompt_tokens": usage.input_tokens + cached + written,
        "completion_tokens": usage.output_tokens,
        "cached_tokens": cached,
    }
    if reply.stop_reason == "refusal":
        raise ExecutionError("reading an answer: the model refused")
    reason = "length" if reply.stop_reason == "max_tokens" else "stop"
    text = "".join(block.text for block in reply.content if block.type == "text")
    uses = [block for block in reply.content if block.type == "tool_use"]
    if request.form is not None:
        return ModelReply((json.dumps(uses[0].input, ensure_ascii=False) if uses else text,), reason, meta)
    if not uses:
        return ModelReply((text,), reason, meta)
    calls = tuple(
        {
            "id": use.id,
            "type": "function",
            "function": {"name": use.name, "arguments": json.dumps(use.input, ensure_ascii=False)},
        }
        for use in uses
    )
    found = Calls(calls, text)
    return ModelReply((found.as_text(),), reason, meta, found)


class Anthropic(HostedBackend):
    """Anthropic's API as a backend.

    Args:
        model_name: the model.
        api_key: default: the variable ANTHROPIC_API_KEY.
        continues_turns: the model goes on from the beginning of an answer; newer ones refuse that.
        max_retries: how often a call is made again.
        policy: instead of `max_retries`: the whole rule.
        client_args: for the client.

    Raises:
        RequestError: there is no key, or the package `anthropic` is not installed.
    """

    def __init__(
        self,
        model_name: str,
        *,
        api_key: str | None = None,
        continues_turns: bool = False,
        max_retries: int = 4,
        policy: RetryPolicy | None = None,
        **client_args: Any,
    ) -> None:
        package = load_client("anthropic")
        key = api_key or env.variable("ANTHROPIC_API_KEY")
        if key is None:
            raise RequestError(
                f"making Anthropic({model_name!r}): there is no key; give api_key=... or set ANTHROPIC_API_KEY"
            )
        client = package.AsyncAnthropic(**{**client_args, "api_key": key, "max_retries": 0})
        abilities = anthropic_abilities(f"Anthropic({model_name!r})", continues=continues_turns)
        self.model_name = model_name
        self.is_chat_model = True
        super().__init__(
            AnthropicAdapter(client, model_name, abilities),
            template=named_template("claude"),
            policy=policy or RetryPolicy(max_retries=max_retries),
            secrets=(key,),
        )


def from_string(rest: str) -> Anthropic:
    """`MODEL` of a backend string.

    Raises:
        RequestError: there is no model in it.
    """
    if not rest:
        raise RequestError("reading the backend 'anthropic:': expected anthropic:MODEL")
    return Anthropic(rest)
