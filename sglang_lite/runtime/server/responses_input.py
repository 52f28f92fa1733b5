"""The body of `/v1/responses`, checked and made into a chat request; what needs a store is refused by name."""

from __future__ import annotations

from typing import Any

from sglang_lite.errors import RequestError, UnsupportedError
from sglang_lite.runtime.server.body import Body
from sglang_lite.runtime.server.errors import FieldError
from sglang_lite.runtime.server.openai_messages import ChatMessage, joined_text
from sglang_lite.runtime.server.openai_schemas import ChatBody

# Fields whose meaning would be lost; null, false and empty values are taken.
REFUSED_FIELDS = {
    "background": "requests run while their client waits",
    "context_management": "nothing is compacted",
    "conversation": "nothing is stored; send all turns as input",
    "previous_response_id": "nothing is stored; send all turns as input",
    "prompt": "there are no stored prompts; send the text",
}
INCLUDES = ("message.output_text.logprobs", "reasoning.encrypted_content")
_TEXT_KINDS = ("input_text", "output_text", "text", "refusal", "summary_text", "reasoning_text")


class ResponsesBody(Body):
    """The body of `/v1/responses`."""

    model: str = ""
    input: str | list[dict[str, Any]]
    instructions: str | None = None
    max_output_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_logprobs: int | None = None
    stream: bool = False
    stream_options: dict[str, Any] | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    max_tool_calls: int | None = None
    text: dict[str, Any] | None = None
    reasoning: dict[str, Any] | None = None
    include: list[str] | None = None
    truncation: str | None = None
    store: bool | None = None
    background: bool | None = None
    context_management: Any = None
    conversation: Any = None
    previous_response_id: str | None = None
    prompt: Any = None
    metadata: dict[str, Any] | None = None
    user: str | None = None
    service_tier: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    prompt_cache_retention: str | None = None
    cache_salt: str | None = None
    seed: int | None = None
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    stop: str | list[str] | None = None
    logit_bias: dict[str, float] | None = None
    ignore_eos: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    thinking_budget: int | None = None
    rid: str | None = None

    @property
    def wants_logprobs(self) -> bool:
        """Log-probabilities of the text are asked for."""
        return self.top_logprobs is not None or INCLUDES[0] in (self.include or ())

    def chat(self) -> ChatBody:
        """The chat request that this is.

        Raises:
            RequestError: a field is wrong or would lose its meaning, by its place.
        """
        self._check()
        messages = [ChatMessage(role="system", content=self.instructions)] if self.instructions else []
        messages += _messages(self.input)
        same = (
            "temperature", "top_p", "stream", "parallel_tool_calls", "cache_salt", "seed", "top_k", "min_p", "stop",
            "repetition_penalty", "presence_penalty", "frequency_penalty", "logit_bias", "ignore_eos",
            "chat_template_kwargs", "thinking_budget", "rid",
        )  # fmt: skip
        values: dict[str, Any] = {name: getattr(self, name) for name in same}
        if self.wants_logprobs:
            values |= {"logprobs": True, "top_logprobs": self.top_logprobs}
        return ChatBody(
            messages=messages,
            max_completion_tokens=self.max_output_tokens,
            response_format=self._format(),
            tools=[_tool(i, tool) for i, tool in enumerate(self.tools)] if self.tools else None,
            tool_choice=self.tool_choice,
            reasoning_effort=(self.reasoning or {}).get("effort"),
            **values,
        )

    def _check(self) -> None:
        for name, why in REFUSED_FIELDS.items():
            if getattr(self, name) not in (None, False, [], {}, ""):
                raise UnsupportedError(f"reading the request: {name} is not supported: {why}")
        if self.truncation not in (None, "disabled"):
            raise UnsupportedError(
                f"reading the request: truncation={self.truncation!r:.40} is not supported, expected disabled: nothing is "
                "left out of a prompt"
            )
        for name in self.include or ():
            if name not in INCLUDES:
                raise UnsupportedError(f"reading the request: include has {name!r:.80}, expected some of {INCLUDES}")
        if self.max_output_tokens is not None and self.max_output_tokens < 1:
            raise FieldError(
                f"reading the request: max_output_tokens={self.max_output_tokens}, expected at least 1",
                "max_output_tokens",
            )
        if self.top_logprobs is not None and not 0 <= self.top_logprobs <= 20:
            raise FieldError(f"reading the request: top_logprobs={self.top_logprobs}, expected 0 to 20", "top_logprobs")
        if self.stream_options is not None and not self.stream:
            raise FieldError(
                "reading the request: stream_options without stream, expected stream=true", "stream_options"
            )
        if not isinstance((self.reasoning or {}).get("effort", ""), str | None):
            raise FieldError("reading the request: reasoning.effort is no text", "reasoning.effort")

    def _format(self) -> dict[str, Any] | None:
        given = (self.text or {}).get("format")
        if given is None or not isinstance(given, dict) or given.get("type") != "json_schema":
            if given is not None and not isinstance(given, dict):
                raise FieldError("reading the request: text.format is no object", "text.format")
            return given
        return {"type": "json_schema", "json_schema": {key: given.get(key) for key in ("name", "schema", "strict")}}


def _tool(index: int, tool: dict[str, Any]) -> dict[str, Any]:
    """A tool in the form of chats; of a kind that is not built: as it is, to be refused there."""
    if tool.get("type") != "function":
        return tool if "type" in tool else {**tool, "type": None}
    return {"type": "function", "function": {key: value for key, value in tool.items() if key != "type"}}


def _messages(given: str | list[dict[str, Any]]) -> list[ChatMessage]:
    if isinstance(given, str):
        return [ChatMessage(role="user", content=given)]
    if not given:
        raise FieldError("reading the request: input is an empty list, expected text or items", "input")
    messages: list[ChatMessage] = []
    thinking: str | None = None
    for index, item in enumerate(given):
        where, kind = f"input.{index}", item.get("type", "message")
        last = messages[-1] if messages and messages[-1].role == "assistant" else None
        match kind:
            case "message":
                role = item.get("role")
                if role not in ("system", "developer", "user", "assistant"):
                    raise FieldError(f"reading the request: {where}.role is {role!r:.40}", f"{where}.role")
                text = _text(f"{where}.content", item.get("content"))
                own = thinking if role == "assistant" else None
                messages.append(ChatMessage(role=role, content=text, reasoning_content=own))
                thinking = None
            case "function_call":
                call = _call(where, item)
                if last is None:
                    last = ChatMessage(role="assistant", content="", reasoning_content=thinking)
                    messages.append(last)
                    thinking = None
                last.tool_calls = [*(last.tool_calls or []), call]
            case "function_call_output":
                call_id, output = item.get("call_id"), item.get("output")
                if not isinstance(call_id, str):
                    raise FieldError(f"reading the request: {where}.call_id is missing", f"{where}.call_id")
                text = _text(f"{where}.output", output)
                messages.append(ChatMessage(role="tool", tool_call_id=call_id, content=text))
            case "reasoning":
                parts = item.get("content") or item.get("summary") or []
                thinking = _text(f"{where}.content", parts) if parts else None
            case _:
                raise UnsupportedError(f"reading the request: {where}: items of type {kind!r:.40} are not supported")
    if not messages:
        raise RequestError("reading the request: input has no message, expected at least one")
    return messages


def _call(where: str, item: dict[str, Any]) -> dict[str, Any]:
    call_id, name, arguments = (item.get(key) for key in ("call_id", "name", "arguments"))
    if not isinstance(call_id, str) or not isinstance(name, str) or not isinstance(arguments, str):
        raise FieldError(f"reading the request: {where}: expected call_id, name and arguments, all text", where)
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def _text(where: str, content: Any) -> str:
    if isinstance(content, str):
        return content
    if not isinstance(content, list) or not content:
        raise FieldError(f"reading the request: {where}: expected text or parts of text", where)
    kinds = [part.get("type") for part in content if isinstance(part, dict)]
    for kind in dict.fromkeys(kinds):
        if kind not in _TEXT_KINDS and kind not in ("input_image", "input_file", "input_audio"):
            raise FieldError(f"reading the request: {where}: parts of type {kind!r:.40}, expected input_text", where)
    return joined_text(where, content, _TEXT_KINDS)
