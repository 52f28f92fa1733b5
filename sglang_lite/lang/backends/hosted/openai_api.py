"""OpenAI's API, and servers that speak it: chat completions, completions, and what SGLang's servers take beside that."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Any

from sglang_lite import env
from sglang_lite.errors import ExecutionError, RequestError, UnsupportedError
from sglang_lite.lang.backends.hosted.abilities import Abilities
from sglang_lite.lang.backends.hosted.backend import HostedBackend, load_client
from sglang_lite.lang.backends.hosted.messages import Calls, Message, ModelReply, ModelRequest, TokenRow
from sglang_lite.lang.backends.hosted.retry import RetryPolicy
from sglang_lite.lang.backends.http_client import shared_loop
from sglang_lite.lang.chat_templates import named_template
from sglang_lite.request_tree import SamplingParams

_TEXT_MODELS = ("gpt-3.5-turbo-instruct", "davinci-002", "babbage-002")
_EXTRA = {
    "min_new_tokens": "min_tokens",
    **{
        name: name
        for name in (
            "top_k",
            "min_p",
            "repetition_penalty",
            "stop_token_ids",
            "stop_regex",
            "ignore_eos",
            "no_stop_trim",
        )
    },
}
"""Fields that SGLang's servers take beside OpenAI's, and their names there."""
_MODELS_TIMEOUT_S = 5.0
_DEFAULTS = SamplingParams()
_NO_LIMIT = 2048
"""Tokens of a completion without a limit: without one the API stops after 16."""


def openai_abilities(name: str, *, chat: bool, completion: bool, is_own_server: bool) -> Abilities:
    """What a model of OpenAI's API can do; `is_own_server`: the API of a server of SGLang's kind."""
    params = {"frequency_penalty", "presence_penalty", "logit_bias"}
    return Abilities(
        name,
        chat=chat,
        completion=completion,
        params=frozenset(params | set(_EXTRA) | {"skip_special_tokens"} if is_own_server else params),
        constraints=frozenset({"regex", "ebnf", "json_schema", "choices"} if is_own_server else ()),
        forms=chat,
        scores=completion and is_own_server,
        continues=chat and is_own_server,
        logprobs=True,
        num_stops=64 if is_own_server else 4,
    )


class OpenAIAdapter:
    """Calls of one client of OpenAI's package.

    Args:
        client: an asynchronous client, with the retries of its own switched off.
        limit_field: how the limit of a chat's answer is called.
    """

    def __init__(self, client: Any, model: str, abilities: Abilities, limit_field: str, *, is_own_server: bool) -> None:
        self._client = client
        self._model = model
        self._abilities = abilities
        self._limit_field = limit_field
        self._is_own_server = is_own_server

    @property
    def abilities(self) -> Abilities:
        """What the model can do."""
        return self._abilities

    async def generate(self, request: ModelRequest) -> ModelReply:
        """One chat completion or completion."""
        fields = self._common(request)
        if request.prompt is not None:
            fields |= {"prompt": request.prompt, "max_tokens": request.max_tokens}
            if request.max_tokens is None and not self._is_own_server:
                fields["max_tokens"] = _NO_LIMIT
            if request.logprob is not None:
                fields["logprobs"] = max(request.logprob.top_num, 1)
            return await read_reply(self._client.completions.create, fields, request, of_chat=False)
        return await read_reply(self._create_chat, self._chat_fields(fields, request), request, of_chat=True)

    async def _create_chat(self, **fields: Any) -> Any:
        return await self._client.chat.completions.create(**fields)

    def _common(self, request: ModelRequest) -> dict[str, Any]:
        params = request.params
        fields: dict[str, Any] = {"model": self._model, "temperature": params.temperature, "top_p": params.top_p}
        fields |= {"n": request.n, "seed": request.seed, "stop": list(request.stop) or None}
        for name in ("frequency_penalty", "presence_penalty"):
            if getattr(params, name):
                fields[name] = getattr(params, name)
        if params.logit_bias:
            fields["logit_bias"] = {str(token): bias for token, bias in params.logit_bias}
        if self._is_own_server:
            fields["extra_body"] = _extra(params)
        return {name: value for name, value in fields.items() if value is not None}

    def _chat_fields(self, fields: dict[str, Any], request: ModelRequest) -> dict[str, Any]:
        fields = {**fields, "messages": list(request.messages)}
        if request.max_tokens is not None:
            fields[self._limit_field] = request.max_tokens
        if request.form is not None:
            schema = {"name": "answer", "strict": request.form.is_strict, "schema": dict(request.form.schema)}
            fields["response_format"] = {"type": "json_schema", "json_schema": schema}
        if request.tools:
            fields |= {"tools": list(request.tools), "tool_choice": tool_choice(request)}
        if request.logprob is not None:
            fields |= {"logprobs": True, "top_logprobs": request.logprob.top_num}
        if request.continues:
            fields["extra_body"] = {**fields.get("extra_body", {}), "continue_final_message": True}
        return fields

    async def score(self, prompt: str, choices: tuple[str, ...]) -> tuple[list[TokenRow], dict[str, Any]]:
        """The tokens of each choice behind the prompt, from one call that echoes them."""
        reply = await self._client.completions.create(
            model=self._model,
            prompt=[prompt + c for c in choices],
            max_tokens=0,
            echo=True,
            logprobs=1,
            temperature=0.0,
        )
        ordered = sorted(reply.choices, key=lambda choice: choice.index)
        if len(ordered) != len(choices):
            raise ExecutionError(f"scoring choices: got {len(ordered)} answers, expected {len(choices)}")
        return [_row(choice.logprobs, len(prompt)) for choice in ordered], usage_meta(reply)

    async def count(self, messages: tuple[Message, ...]) -> int:
        """Not an ability of this API.

        Raises:
            UnsupportedError: always.
        """
        raise UnsupportedError(f"counting tokens: {self._abilities.name} does not count them before a call")

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()


def tool_choice(request: ModelRequest) -> Any:
    """A request's choice in OpenAI's form."""
    if request.tool_choice in ("auto", "required", "none"):
        return request.tool_choice
    return {"type": "function", "function": {"name": request.tool_choice}}


def _extra(params: SamplingParams) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, sent in {**_EXTRA, "skip_special_tokens": "skip_special_tokens"}.items():
        value = getattr(params, name)
        if value != getattr(_DEFAULTS, name):
            found[sent] = list(value) if isinstance(value, tuple) else value  # pyright: ignore[reportUnknownArgumentType]
    for name in ("regex", "ebnf", "json_schema"):
        if getattr(params, name) is not None:
            found[name] = getattr(params, name)
    if params.choices is not None:
        found["regex"] = "|".join(re.escape(choice) for choice in params.choices)
    return found


def _row(logprobs: Any, start: int) -> TokenRow:
    row: TokenRow = []
    for logprob, text, offset in zip(logprobs.token_logprobs, logprobs.tokens, logprobs.text_offset, strict=True):
        if offset + len(text) > start:
            row.append((logprob, -1, text))
    return row


async def read_reply(
    create: Callable[..., Awaitable[Any]], fields: dict[str, Any], request: ModelRequest, *, of_chat: bool
) -> ModelReply:
    """Make a call, whole or streamed, and read what it answers."""
    if request.on_text is not None:
        options = {"include_usage": True}
        return await _read_stream(await create(**fields, stream=True, stream_options=options), request, of_chat=of_chat)
    reply = await create(**fields)
    choices = sorted(reply.choices, key=lambda choice: choice.index)
    meta = usage_meta(reply)
    first = choices[0]
    if not of_chat:
        meta |= _completion_logprobs(first.logprobs)
        return ModelReply(tuple(choice.text for choice in choices), _reason(first.finish_reason), meta)
    calls = _calls(first.message)
    meta |= _chat_logprobs(getattr(first, "logprobs", None))
    texts = [_content(choice.message) for choice in choices]
    if calls is not None:
        texts[0] = calls.as_text()
    return ModelReply(tuple(texts), _reason(first.finish_reason), meta, calls)


def _content(message: Any) -> str:
    refusal = getattr(message, "refusal", None)
    if refusal:
        raise ExecutionError(f"reading an answer: the model refused: {refusal}")
    return message.content or ""


def _calls(message: Any) -> Calls | None:
    found = getattr(message, "tool_calls", None)
    if not found:
        return None
    calls = tuple(
        {
            "id": call.id,
            "type": "function",
            "function": {"name": call.function.name, "arguments": call.function.arguments},
        }
        for call in found
    )
    return Calls(calls, message.content or "")


async def _read_stream(stream: Any, request: ModelRequest, *, of_chat: bool) -> ModelReply:
    assert request.on_text is not None, "a stream nobody reads"
    texts = [""] * request.n
    reason = "stop"
    meta: dict[str, Any] = {}
    calls: dict[int, dict[str, Any]] = {}
    async for chunk in stream:
        if getattr(chunk, "usage", None) is not None:
            meta |= usage_meta(chunk)
        for choice in chunk.choices:
            piece = (choice.delta.content if of_chat else choice.text) or ""
            texts[choice.index] += piece
            if choice.index == 0:
                reason = _reason(choice.finish_reason) if choice.finish_reason else reason
                if of_chat:
                    _collect_calls(calls, choice.delta)
                if piece:
                    request.on_text(piece)
    if not calls:
        return ModelReply(tuple(texts), reason, meta)
    found = Calls(tuple(calls[index] for index in sorted(calls)), texts[0])
    shown = found.as_text()
    request.on_text(shown[len(texts[0]) :])
    return ModelReply((shown,), reason, meta, found)


def _collect_calls(calls: dict[int, dict[str, Any]], delta: Any) -> None:
    for part in getattr(delta, "tool_calls", None) or ():
        call = calls.setdefault(part.index, {"id": None, "type": "function", "function": {"name": "", "arguments": ""}})
        call["id"] = part.id or call["id"]
        call["function"]["name"] += part.function.name or ""
        call["function"]["arguments"] += part.function.arguments or ""


def _reason(reason: str | None) -> str:
    return "length" if reason in ("length", "max_tokens") else "stop"


def usage_meta(reply: Any) -> dict[str, Any]:
    """`meta_info` of what was spent."""
    usage = getattr(reply, "usage", None)
    meta: dict[str, Any] = {"id": getattr(reply, "id", "")}
    if usage is None:
        return meta
    details = getattr(usage, "prompt_tokens_details", None)
    cached = getattr(details, "cached_tokens", 0) if details is not None else 0
    meta |= {"prompt_tokens": usage.prompt_tokens, "completion_tokens": usage.completion_tokens or 0}
    return meta | {"cached_tokens": cached or 0}


def _chat_logprobs(logprobs: Any) -> dict[str, Any]:
    content = getattr(logprobs, "content", None)
    if not content:
        return {}
    return {
        "output_token_logprobs": [[entry.logprob, -1, entry.token] for entry in content],
        "output_top_logprobs": [[[top.logprob, -1, top.token] for top in entry.top_logprobs] for entry in content],
    }


def _completion_logprobs(logprobs: Any) -> dict[str, Any]:
    if logprobs is None:
        return {}
    tops: Any = logprobs.top_logprobs or ()
    return {
        "output_token_logprobs": [
            [logprob, -1, token] for logprob, token in zip(logprobs.token_logprobs, logprobs.tokens, strict=True)
        ],
        "output_top_logprobs": [[[value, -1, token] for token, value in top.items()] for top in tops],
    }


class OpenAI(HostedBackend):
    """OpenAI's API, or a server that speaks it, as a backend.

    Args:
        model_name: the model.
        is_chat_model: chat completions (True) or completions (False); None: as the model is known, and at another
            `base_url` both: turns go to the first, text outside turns to the second.
        chat_template: how turns are written out as text, by SGLang's names.
        is_azure: Azure's flavour of the client.
        api_key: default: the variable OPENAI_API_KEY.
        base_url: another server; it is asked once which models it has, which tells a server of SGLang's kind.
        max_retries: how often a call is made again.
        policy: instead of `max_retries`: the whole rule.
        client_args: for the client.

    Raises:
        RequestError: there is no key, or the package `openai` is not installed.
    """

    def __init__(
        self,
        model_name: str,
        is_chat_model: bool | None = None,
        chat_template: Any = None,
        is_azure: bool = False,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        max_retries: int = 4,
        policy: RetryPolicy | None = None,
        **client_args: Any,
    ) -> None:
        package = load_client("openai")
        key = api_key or env.variable("AZURE_OPENAI_API_KEY" if is_azure else "OPENAI_API_KEY")
        base_url = base_url or (None if is_azure else env.variable("OPENAI_BASE_URL"))
        if key is None and base_url is None:
            raise RequestError(
                f"making OpenAI({model_name!r}): there is no key; give api_key=... or set OPENAI_API_KEY"
            )
        arguments = {**client_args, "api_key": key or "none", "max_retries": 0}
        if base_url is not None:
            arguments["base_url"] = base_url
        client = (package.AsyncAzureOpenAI if is_azure else package.AsyncOpenAI)(**arguments)
        self.model_name = model_name
        name = f"OpenAI({model_name!r}{'' if base_url is None else f', base_url={base_url!r}'})"
        is_own_server = base_url is not None and _is_own_server(client)
        is_text = model_name in _TEXT_MODELS
        at_large = base_url is not None and is_chat_model is None
        abilities = openai_abilities(
            name,
            chat=at_large or (not is_text if is_chat_model is None else is_chat_model),
            completion=at_large or (is_text if is_chat_model is None else not is_chat_model),
            is_own_server=is_own_server,
        )
        self.is_chat_model = abilities.chat
        limit_field = "max_tokens" if base_url is not None else "max_completion_tokens"
        template = None if chat_template is None else named_template(str(getattr(chat_template, "name", chat_template)))
        super().__init__(
            OpenAIAdapter(client, model_name, abilities, limit_field, is_own_server=is_own_server),
            template=template,
            policy=policy or RetryPolicy(max_retries=max_retries),
            secrets=(key or "",),
        )


def _is_own_server(client: Any) -> bool:
    """True when the server says that it is of SGLang's kind; whatever else it answers, it is not."""

    async def ask() -> bool:
        try:
            models = await client.with_options(timeout=_MODELS_TIMEOUT_S).models.list()
        except Exception:  # noqa: BLE001 - a server without this route, or one that is not there yet, is simply another one
            return False
        return any(getattr(model, "owned_by", None) in ("sglang_lite", "sglang") for model in models.data)

    return shared_loop.start(ask()).result()


def from_string(rest: str) -> OpenAI:
    """`MODEL` or `MODEL@BASE_URL` of a backend string.

    Raises:
        RequestError: there is no model in it.
    """
    model, _, base_url = rest.partition("@")
    if not model:
        raise RequestError(f"reading the backend 'openai:{rest}': expected openai:MODEL or openai:MODEL@BASE_URL")
    return OpenAI(model, base_url=base_url or None)
