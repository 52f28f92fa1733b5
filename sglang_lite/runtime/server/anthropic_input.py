"""The body of Anthropic's `/v1/messages`, checked and made into a chat request."""

from __future__ import annotations

import json
from typing import Any, Literal

from sglang_lite.errors import UnsupportedError
from sglang_lite.runtime.server.body import Body
from sglang_lite.runtime.server.errors import FieldError
from sglang_lite.runtime.server.openai_messages import ChatMessage, joined_text
from sglang_lite.runtime.server.openai_schemas import ChatBody

# Fields whose meaning would be lost; null, false and empty values are taken.
REFUSED_FIELDS = {
    "container": "this server runs no code",
    "context_management": "nothing is left out of a prompt",
    "mcp_servers": "this server calls no other",
}


class AnthropicMessage(Body):
    """One turn."""

    role: Literal["user", "assistant", "system"]
    content: str | list[dict[str, Any]]


class CountBody(Body):
    """The body of `/v1/messages/count_tokens`: what makes the prompt."""

    model: str = ""
    messages: list[AnthropicMessage]
    system: str | list[dict[str, Any]] | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: dict[str, Any] | None = None
    thinking: dict[str, Any] | None = None
    output_config: dict[str, Any] | None = None
    output_format: dict[str, Any] | None = None
    cache_control: dict[str, Any] | None = None
    mcp_servers: list[Any] | None = None
    context_management: Any = None

    def chat(self, **more: Any) -> ChatBody:
        """The chat request that this is; `more`: further fields of it.

        Raises:
            RequestError: a field is wrong or would lose its meaning, by its place.
        """
        for name, why in REFUSED_FIELDS.items():
            if name in type(self).model_fields and getattr(self, name) not in (None, False, [], {}, ""):
                raise UnsupportedError(f"reading the request: {name} is not supported: {why}")
        if not self.messages:
            raise FieldError("reading the request: messages is empty, expected at least one", "messages")
        messages: list[ChatMessage] = []
        if self.system:
            messages.append(ChatMessage(role="system", content=_text("system", self.system)))
        for index, message in enumerate(self.messages):
            messages += _turn(f"messages.{index}", message)
        choice, parallel = _choice(self.tool_choice)
        effort = (self.output_config or {}).get("effort")
        return ChatBody(
            messages=messages,
            continue_final_message=messages[-1].role == "assistant" and not messages[-1].tool_calls,
            tools=[_tool(i, tool) for i, tool in enumerate(self.tools)] if self.tools else None,
            tool_choice=choice,
            parallel_tool_calls=parallel,
            response_format=self._format(),
            reasoning_effort=effort
            if isinstance(effort, str) and not self._is_off
            else "none"
            if self._is_off
            else None,
            thinking_budget=self._budget(),
            **more,
        )

    @property
    def _is_off(self) -> bool:
        return (self.thinking or {}).get("type") == "disabled"

    def _budget(self) -> int | None:
        given = self.thinking or {}
        if given and given.get("type") not in ("enabled", "disabled", "adaptive"):
            raise FieldError(
                f"reading the request: thinking.type={given.get('type')!r:.40}, expected enabled, disabled or adaptive",
                "thinking",
            )
        budget = given.get("budget_tokens")
        if budget is None or self._is_off:
            return None
        if type(budget) is not int or budget < 1:
            raise FieldError(f"reading the request: thinking.budget_tokens={budget!r:.40}", "thinking.budget_tokens")
        return budget

    def _format(self) -> dict[str, Any] | None:
        given = self.output_format or (self.output_config or {}).get("format")
        if given is None:
            return None
        if (
            not isinstance(given, dict)
            or given.get("type") != "json_schema"
            or not isinstance(given.get("schema"), dict)
        ):
            raise FieldError(
                'reading the request: output_config.format, expected {"type": "json_schema", "schema": {...}}',
                "output_config.format",
            )
        return {"type": "json_schema", "json_schema": {"name": "output", "schema": given["schema"], "strict": False}}


class MessagesBody(CountBody):
    """The body of `/v1/messages`."""

    max_tokens: int
    stop_sequences: list[str] | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    stream: bool = False
    metadata: dict[str, Any] | None = None
    service_tier: str | None = None
    container: Any = None
    inference_geo: str | None = None

    def chat(self, **more: Any) -> ChatBody:
        """See `CountBody.chat`."""
        if self.max_tokens < 1:
            raise FieldError(f"reading the request: max_tokens={self.max_tokens}, expected at least 1", "max_tokens")
        return super().chat(
            max_completion_tokens=self.max_tokens,
            stop=self.stop_sequences,
            temperature=self.temperature,
            top_p=self.top_p,
            top_k=self.top_k,
            stream=self.stream,
            **more,
        )


def _turn(where: str, message: AnthropicMessage) -> list[ChatMessage]:
    """A turn as chat messages: results of tools are messages of their own, before the text beside them."""
    content = message.content
    if isinstance(content, str):
        return [ChatMessage(role=message.role, content=content)]
    if not content:
        raise FieldError(f"reading the request: {where}.content is an empty list", f"{where}.content")
    results: list[ChatMessage] = []
    texts: list[Any] = []
    thinking = ""
    calls: list[dict[str, Any]] = []
    for index, block in enumerate(content):
        at = f"{where}.content.{index}"
        match block.get("type"), message.role:
            case "tool_result", "user":
                results.append(_result(at, block))
            case "tool_use", "assistant":
                calls.append(_call(at, block))
            case "thinking", "assistant":
                thinking += str(block.get("thinking") or "")
            case "redacted_thinking", "assistant":
                continue
            case _:
                texts.append(block)
    text = _text(f"{where}.content", texts) if texts else ""
    if message.role == "assistant":
        own = ChatMessage(role="assistant", content=text, reasoning_content=thinking or None)
        own.tool_calls = calls or None
        return [own]
    return [*results, *([ChatMessage(role=message.role, content=text)] if texts else [])]


def _result(where: str, block: dict[str, Any]) -> ChatMessage:
    call_id, content = block.get("tool_use_id"), block.get("content")
    if not isinstance(call_id, str):
        raise FieldError(f"reading the request: {where}.tool_use_id is missing", f"{where}.tool_use_id")
    text = _text(f"{where}.content", content) if content else ""
    return ChatMessage(role="tool", tool_call_id=call_id, content=f"Error: {text}" if block.get("is_error") else text)


def _call(where: str, block: dict[str, Any]) -> dict[str, Any]:
    call_id, name, given = block.get("id"), block.get("name"), block.get("input")
    if not isinstance(call_id, str) or not isinstance(name, str) or not isinstance(given, dict):
        raise FieldError(f"reading the request: {where}: expected an id, a name and input as an object", where)
    function = {"name": name, "arguments": json.dumps(given, ensure_ascii=False)}
    return {"id": call_id, "type": "function", "function": function}


def _text(where: str, content: Any) -> str:
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise FieldError(f"reading the request: {where}: expected text or blocks of text", where)
    return joined_text(where, content)


def _tool(index: int, tool: dict[str, Any]) -> dict[str, Any]:
    where = f"tools.{index}"
    if tool.get("type") not in (None, "custom"):
        raise UnsupportedError(
            f"reading the request: {where}: tools of type {tool['type']!r:.40} are not supported; describe one by its schema"
        )
    if not isinstance(tool.get("input_schema"), dict):
        raise FieldError(f"reading the request: {where}.input_schema is missing, expected a JSON Schema", where)
    function = {"name": tool.get("name"), "description": tool.get("description"), "parameters": tool["input_schema"]}
    return {"type": "function", "function": function | {"strict": tool.get("strict") is True}}


def _choice(given: dict[str, Any] | None) -> tuple[Any, bool | None]:
    """OpenAI's `tool_choice` and `parallel_tool_calls`."""
    if given is None:
        return None, None
    parallel = False if given.get("disable_parallel_tool_use") is True else None
    match given.get("type"):
        case "auto" | "none":
            return given["type"], parallel
        case "any":
            return "required", parallel
        case "tool":
            return {"type": "function", "function": {"name": given.get("name")}}, parallel
        case kind:
            raise FieldError(
                f"reading the request: tool_choice.type={kind!r:.40}, expected auto, any, tool or none", "tool_choice"
            )
