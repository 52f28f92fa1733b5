"""LiteLLM: one client for many APIs, whose answers look like OpenAI's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sglang_lite.errors import RequestError, UnsupportedError
from sglang_lite.lang.backends.hosted.abilities import Abilities
from sglang_lite.lang.backends.hosted.backend import HostedBackend, load_client
from sglang_lite.lang.backends.hosted.messages import Message, ModelReply, ModelRequest, TokenRow
from sglang_lite.lang.backends.hosted.openai_api import read_reply, tool_choice
from sglang_lite.lang.backends.hosted.retry import RetryPolicy
from sglang_lite.lang.chat_templates import named_template


def litellm_abilities(name: str) -> Abilities:
    """What can be asked of every API behind it."""
    return Abilities(name, params=frozenset({"frequency_penalty", "presence_penalty"}))


class LiteLLMAdapter:
    """Calls of LiteLLM's module. `settings`: what goes with every call."""

    def __init__(self, module: Any, model: str, abilities: Abilities, settings: Mapping[str, Any]) -> None:
        self._module = module
        self._model = model
        self._abilities = abilities
        self._settings = dict(settings)

    @property
    def abilities(self) -> Abilities:
        """What the API can do."""
        return self._abilities

    async def generate(self, request: ModelRequest) -> ModelReply:
        """One chat completion."""
        params = request.params
        fields: dict[str, Any] = {
            **self._settings,
            "model": self._model,
            "messages": list(request.messages),
            "temperature": params.temperature,
            "top_p": params.top_p,
            "n": request.n,
            "seed": request.seed,
            "stop": list(request.stop) or None,
            "max_tokens": request.max_tokens,
            "frequency_penalty": params.frequency_penalty or None,
            "presence_penalty": params.presence_penalty or None,
            "tools": list(request.tools) or None,
            "tool_choice": tool_choice(request) if request.tools else None,
        }
        if request.form is not None:
            schema = {"name": "answer", "strict": request.form.is_strict, "schema": dict(request.form.schema)}
            fields["response_format"] = {"type": "json_schema", "json_schema": schema}
        kept = {name: value for name, value in fields.items() if value is not None}
        return await read_reply(self._module.acompletion, kept, request, of_chat=True)

    async def score(self, prompt: str, choices: tuple[str, ...]) -> tuple[list[TokenRow], dict[str, Any]]:
        """Not an ability of this client.

        Raises:
            UnsupportedError: always.
        """
        raise UnsupportedError(f"scoring choices: {self._abilities.name} gives no log-probabilities")

    async def count(self, messages: tuple[Message, ...]) -> int:
        """Not an ability of this client.

        Raises:
            UnsupportedError: always.
        """
        raise UnsupportedError(f"counting tokens: {self._abilities.name} does not count them before a call")

    async def close(self) -> None:
        """There is nothing to close."""


class LiteLLM(HostedBackend):
    """Any API that LiteLLM knows as a backend.

    Args:
        model_name: the model, as LiteLLM names it.
        chat_template: how turns are written out as text, by SGLang's names.
        api_key, organization, base_url, timeout, default_headers: go with every call; None: as LiteLLM finds them.
        max_retries: how often a call is made again; None: 4.
        policy: instead of `max_retries`: the whole rule.

    Raises:
        RequestError: the package `litellm` is not installed.
    """

    def __init__(
        self,
        model_name: str,
        chat_template: Any = None,
        api_key: str | None = None,
        organization: str | None = None,
        base_url: str | None = None,
        timeout: float | None = 600,
        max_retries: int | None = None,
        default_headers: Mapping[str, str] | None = None,
        *,
        policy: RetryPolicy | None = None,
    ) -> None:
        settings: dict[str, Any] = {
            "api_key": api_key,
            "organization": organization,
            "base_url": base_url,
            "timeout": timeout,
        }
        settings["extra_headers"] = None if default_headers is None else dict(default_headers)
        given = {name: value for name, value in settings.items() if value is not None}
        self.model_name = model_name
        self.is_chat_model = True
        adapter = LiteLLMAdapter(
            load_client("litellm"), model_name, litellm_abilities(f"LiteLLM({model_name!r})"), given
        )
        template = None if chat_template is None else named_template(str(getattr(chat_template, "name", chat_template)))
        super().__init__(
            adapter,
            template=template,
            policy=policy or RetryPolicy(max_retries=4 if max_retries is None else max_retries),
            secrets=(api_key or "",),
        )


def from_string(rest: str) -> LiteLLM:
    """`MODEL` of a backend string.

    Raises:
        RequestError: there is no model in it.
    """
    if not rest:
        raise RequestError("reading the backend 'litellm:': expected litellm:MODEL")
    return LiteLLM(rest)
