"""The bodies of OpenAI's requests: every field is honoured, named as without effect, or refused by name."""

from __future__ import annotations

import json
from typing import Any, Literal, TypeAlias

from sglang_lite.errors import RequestError, UnsupportedError
from sglang_lite.request_tree import SamplingParams
from sglang_lite.runtime.server.body import Body
from sglang_lite.runtime.server.errors import FieldError
from sglang_lite.runtime.server.native import sampling_from
from sglang_lite.runtime.server.openai_messages import ChatMessage, messages_for_template

Ids: TypeAlias = list[int]

# Fields of OpenAI's and SGLang's requests that change nothing here: bookkeeping of another service.
WITHOUT_EFFECT_FIELDS = (
    "metadata",
    "model",
    "prompt_cache_key",
    "prompt_cache_retention",
    "return_hidden_states",
    "safety_identifier",
    "service_tier",
    "store",
    "stream_reasoning",
    "user",
)
# Fields whose meaning would be lost; null, false and empty values are taken.
REFUSED_FIELDS = {
    "audio": "this server gives text",
    "functions": "they are OpenAI's older form; use tools",
    "function_call": "it is OpenAI's older form; use tool_choice",
    "lora_path": "adapters are not built",
    "modalities": "this server gives text",
    "prediction": "predicted outputs are not built",
    "suffix": "the model does not fill in the middle",
    "verbosity": "the model has no such setting",
    "web_search_options": "this server reads no web",
}

INT64 = 1 << 63


class StreamOptions(Body):
    """What a stream carries beside its text."""

    include_usage: bool = False
    include_obfuscation: bool | None = None


class BookkeepingBody(Body):
    """Fields without effect."""

    user: str | None = None
    metadata: dict[str, Any] | None = None
    store: bool | None = None
    service_tier: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    prompt_cache_retention: str | None = None
    cache_salt: str | None = None
    return_hidden_states: Literal[False] | None = None


class SamplingBody(BookkeepingBody):
    """What both kinds of requests share. OpenAI's names first, then SGLang's further ones."""

    model: str = ""
    n: int = 1
    seed: int | None = None
    stop: str | list[str] | None = None
    stream: bool = False
    stream_options: StreamOptions | None = None
    temperature: float | None = None
    top_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: dict[str, float] | None = None
    lora_path: Any = None
    rid: str | None = None
    top_k: int | None = None
    min_p: float | None = None
    min_tokens: int | None = None
    repetition_penalty: float | None = None
    stop_token_ids: Ids | None = None
    stop_regex: str | list[str] | None = None
    ignore_eos: bool | None = None
    no_stop_trim: bool | None = None
    skip_special_tokens: bool | None = None
    regex: str | None = None
    ebnf: str | None = None
    json_schema: str | None = None
    structural_tag: str | None = None
    json_whitespace: str | None = None
    jump_forward: str | None = None

    def sampling(self, max_new_tokens: int | None, constraint: dict[str, Any] | None = None) -> SamplingParams:
        """The request's sampling parameters, checked; `constraint`: those that `response_format` stands for.

        Raises:
            RequestError: a wrong value, named.
        """
        values: dict[str, Any] = {"max_new_tokens": max_new_tokens, "n": self.n}
        same = (
            "stop", "temperature", "top_p", "presence_penalty", "frequency_penalty", "logit_bias", "top_k", "min_p",
            "repetition_penalty", "stop_token_ids", "stop_regex", "ignore_eos", "no_stop_trim", "skip_special_tokens",
            "regex", "ebnf", "json_schema", "structural_tag", "json_whitespace", "jump_forward",
        )  # fmt: skip
        values |= {name: value for name in same if (value := getattr(self, name)) is not None}
        if self.min_tokens is not None:
            values["min_new_tokens"] = self.min_tokens
        if self.seed is not None:
            values["seed"] = self.seed % INT64
        return sampling_from(values | (constraint or {}))

    def check(self, max_n: int) -> None:
        """Refuse what would lose its meaning.

        Raises:
            RequestError: names the field.
        """
        for name, why in REFUSED_FIELDS.items():
            if name in type(self).model_fields and getattr(self, name) not in (None, False, [], {}, "", ["text"]):
                raise UnsupportedError(f"reading the request: {name} is not supported: {why}")
        if self.n > max_n:
            raise FieldError(f"reading the request: n={self.n}, expected at most {max_n}", "n")
        if self.stream_options is not None and not self.stream:
            raise FieldError(
                "reading the request: stream_options without stream, expected stream=true", "stream_options"
            )

    @property
    def wants_usage(self) -> bool:
        """The stream ends with a chunk of usage."""
        return self.stream_options is not None and self.stream_options.include_usage


class CompletionBody(SamplingBody):
    """The body of `/v1/completions`."""

    prompt: str | list[str] | Ids | list[Ids]
    max_tokens: int | None = None
    echo: bool = False
    logprobs: int | None = None
    best_of: int | None = None
    suffix: str | None = None


class ChatBody(SamplingBody):
    """The body of `/v1/chat/completions`."""

    messages: list[ChatMessage]
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    response_format: dict[str, Any] | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    functions: list[Any] | None = None
    function_call: Any = None
    audio: Any = None
    modalities: Any = None
    prediction: Any = None
    reasoning_effort: str | None = None
    verbosity: Any = None
    web_search_options: Any = None
    chat_template_kwargs: dict[str, Any] | None = None
    continue_final_message: bool = False
    separate_reasoning: bool | None = None
    stream_reasoning: bool | None = None
    thinking_budget: int | None = None

    @property
    def own_constraint(self) -> bool:
        """One of SGLang's fields constrains the answer."""
        return any(getattr(self, name) is not None for name in ("regex", "ebnf", "json_schema", "structural_tag"))

    def messages_for_template(self) -> list[dict[str, Any]]:
        """Messages as the template takes them: `developer` is `system`, parts of text are joined.

        Raises:
            RequestError: no message, a role or content that is not built, by its place.
        """
        return messages_for_template(self.messages)

    def constraint(self) -> dict[str, Any]:
        """The sampling parameters that `response_format` stands for; {}: any text.

        With `strict` a keyword that cannot be enforced is an error; without, as with OpenAI, it is left out of the masks,
        checked at the end and named in the reply's `grammar_notes`.

        Raises:
            RequestError: a type that is not known, or a schema that is missing.
        """
        given = self.response_format
        if given is None or given.get("type") == "text":
            return {}
        if given.get("type") == "json_object":
            return {"json_schema": '{"type": "object"}'}
        if given.get("type") == "structural_tag":
            return {"structural_tag": json.dumps(given)}
        if given.get("type") != "json_schema":
            raise FieldError(
                f"reading the request: response_format of type {given.get('type')!r:.40}, expected text, json_object, json_schema or structural_tag",
                "response_format",
            )
        wanted = given.get("json_schema")
        schema = wanted.get("schema") if isinstance(wanted, dict) else None
        if not isinstance(schema, dict | bool):
            raise FieldError(
                "reading the request: response_format has no json_schema.schema, expected an object", "response_format"
            )
        is_strict = isinstance(wanted, dict) and wanted.get("strict") is True
        return {"json_schema": json.dumps(schema), "json_strict": is_strict}


def max_tokens_of(body: ChatBody) -> int | None:
    """The longest answer; None: up to the context.

    Raises:
        RequestError: both names are set and differ, or the value is below 1.
    """
    old, new = body.max_tokens, body.max_completion_tokens
    if old is not None and new is not None and old != new:
        raise RequestError(
            f"reading the request: max_tokens={old} and max_completion_tokens={new}, expected one of them"
        )
    wanted = old if new is None else new
    if wanted is not None and wanted < 1:
        raise FieldError(f"reading the request: max_tokens={wanted}, expected at least 1", "max_tokens")
    return wanted
