"""Programs on a server that has only `/generate`, as SGLang's: whole texts in, named templates; it knows no program route.

Route and fields: SGLang's `/generate` (`python/sglang/srt/managers/io_struct.py`, `GenerateReqInput`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import fields
from typing import Any, cast

from sglang_lite.errors import ContextLengthError, ExecutionError, RequestError
from sglang_lite.lang.backends.hosted.abilities import Abilities
from sglang_lite.lang.backends.hosted.backend import HostedBackend
from sglang_lite.lang.backends.hosted.messages import Message, ModelReply, ModelRequest, TokenRow
from sglang_lite.lang.backends.hosted.retry import RetryPolicy
from sglang_lite.lang.backends.http_client import HEADERS_ID, Answer, HttpClient, RefusedError, UnreachableError
from sglang_lite.lang.backends.server_answers import error_of
from sglang_lite.lang.chat_templates import NamedTemplate
from sglang_lite.op_json import with_entries
from sglang_lite.request_tree import LogprobParams, SamplingParams
from sglang_lite.sampling_params import CONSTRAINTS

_NOT_SENT = frozenset(
    {"max_new_tokens", "temperature", "stop", "seed", "choices", "logit_bias", "json_whitespace", "json_strict"}
    | {"jump_forward", "thinking", "thinking_budget"}
)
"""Fields that go under another name, or not at all: what SGLang's server does not know."""

_PARAMS = frozenset(f.name for f in fields(SamplingParams)) - {"thinking_budget"}
_DEFAULTS = SamplingParams()
_WINDOW = 4
"""Tokens at the end of the text that choices are compared with: its last ones may change with what follows."""


class ConnectionFault(Exception):  # noqa: N818 - the retries know errors of connections by this word
    """No answer came."""


class ServerFault(Exception):  # noqa: N818 - as `ConnectionFault`, an error that may pass
    """The server could not answer; the same call may succeed later."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer.body[:500].decode("utf-8", "replace"))
        self.status_code = answer.status
        self.response = answer


class GenerateAdapter:
    """Calls of `/generate` on one server."""

    def __init__(self, http: HttpClient) -> None:
        self._http = http
        self._abilities = Abilities(
            f"RuntimeEndpoint({http.base_url!r})",
            chat=False,
            completion=True,
            params=_PARAMS,
            constraints=frozenset(CONSTRAINTS),
            forms=False,
            scores=True,
            scores_alone=True,
            logprobs=True,
            prompt_logprobs=True,
            counts=True,
            prefills=True,
            max_temperature=float("inf"),
            num_stops=1 << 30,
        )

    @property
    def abilities(self) -> Abilities:
        """What the route can do."""
        return self._abilities

    async def generate(self, request: ModelRequest) -> ModelReply:
        """One request, streamed where `on_text` is given."""
        assert request.prompt is not None, "there are no turns on this route"
        body = {"text": request.prompt, "sampling_params": _sampling(request), **_wanted(request.logprob)}
        if request.on_text is None:
            answer = await self._ask(body)
            replies = cast("list[dict[str, Any]]", answer if isinstance(answer, list) else [answer])
        else:
            replies = await self._streamed(body, request)
        metas = [with_entries(reply["meta_info"]) for reply in replies]
        reasons: list[dict[str, Any]] = [meta.get("finish_reason") or {} for meta in metas]
        for reason in reasons:
            if reason.get("type") == "abort":
                raise ExecutionError(f"generating: the server aborted it: {reason.get('message')}")
        meta = metas[0] if len(metas) == 1 else metas[0] | {"samples": metas}
        return ModelReply(tuple(reply["text"] for reply in replies), str(reasons[0].get("type", "stop")), meta)

    async def _streamed(self, body: dict[str, Any], request: ModelRequest) -> list[dict[str, Any]]:
        """The last reply of each sample; texts come whole each time, and the first sample's are handed on in pieces."""
        assert request.on_text is not None, "a stream nobody reads"
        last: dict[int, dict[str, Any]] = {}
        num_shown = 0
        events = self._http.events("POST", "/generate", {**body, "stream": True}, {})
        try:
            async for event_id, data in events:
                if event_id == HEADERS_ID:
                    continue
                if data == "[DONE]":
                    return [last[index] for index in sorted(last)]
                reply = json.loads(data)
                if "error" in reply:
                    raise error_of(Answer(500, {}, data.encode()), "generating")
                index = reply.get("index", 0)
                last[index] = reply
                if index == 0 and (piece := reply["text"][num_shown:]):
                    num_shown = len(reply["text"])
                    request.on_text(piece)
        except RefusedError as error:
            raise _fault(error.answer) from None
        except UnreachableError as error:
            raise ConnectionFault(str(error)) from error
        finally:
            await events.aclose()
        raise ConnectionFault(f"reading a stream of {self._http.base_url}: it broke off")

    async def score(self, prompt: str, choices: tuple[str, ...]) -> tuple[list[TokenRow], dict[str, Any]]:
        """The tokens of each choice behind the prompt: from the first one on that the text without choices has not.

        Two requests, as SGLang's client makes them: the length of the text in tokens (its KV stays in the server's cache), then
        all choices at once, and beside them the text's own last tokens.
        """
        if not prompt:
            whole = await self._scored({"text": list(choices)}, 0)
            return [_row(reply, ()) for reply in whole], _spent(whole)
        first = await self.count_text(prompt)
        start = max(first - _WINDOW, 0)
        head, *scored = await self._scored({"text": [prompt, *(prompt + choice for choice in choices)]}, start)
        own = [entry[1] for entry in head["meta_info"]["input_token_logprobs"]]
        return [_row(reply, own) for reply in scored], _spent(scored)

    async def score_alone(self, rows: Sequence[TokenRow]) -> list[TokenRow]:
        """The same tokens without the prompt."""
        replies = await self._scored({"input_ids": [[token for _, token, _ in row] for row in rows]}, 0)
        return [_row(reply, ()) for reply in replies]

    async def count_text(self, text: str) -> int:
        """Tokens of a text."""
        reply = await self._ask({"text": text, "sampling_params": {"max_new_tokens": 0, "temperature": 0.0}})
        return int(reply["meta_info"]["prompt_tokens"])

    async def _scored(self, inputs: dict[str, Any], start: int) -> list[dict[str, Any]]:
        wanted = _wanted(LogprobParams(start_len=start, with_text=True))
        replies = await self._ask({**inputs, "sampling_params": {"max_new_tokens": 0, "temperature": 0.0}, **wanted})
        assert isinstance(replies, list), "a list of texts has a list of replies"
        return cast("list[dict[str, Any]]", replies)

    async def _ask(self, body: dict[str, Any]) -> Any:
        try:
            answer = await self._http.request("POST", "/generate", body)
        except UnreachableError as error:
            raise ConnectionFault(str(error)) from error
        if answer.status >= 400:
            raise _fault(answer)
        return answer.json()

    async def count(self, messages: tuple[Message, ...]) -> int:
        """Tokens of turns, which this route has not.

        Raises:
            RequestError: always.
        """
        raise RequestError("counting tokens: the server has texts only, no turns")

    async def close(self) -> None:
        """Nothing: the connections are their owner's."""


class GenerateBackend(HostedBackend):
    """What runs the programs of a `RuntimeEndpoint` whose server has no `/v1/programs`."""

    def __init__(self, http: HttpClient, template: NamedTemplate, patience_s: float) -> None:
        retries = max(1, round(patience_s / 4))
        policy = RetryPolicy(max_retries=min(retries, 6))
        super().__init__(GenerateAdapter(http), template=template, policy=policy, secrets=())

    def role_text(self, role: str, before: Sequence[str]) -> tuple[str, str]:
        """What begins and ends a turn of `role` after turns of the roles `before`, as SGLang writes it."""
        return self._template.begin(role, before), self._template.role_text(role)[1]


def _sampling(request: ModelRequest) -> dict[str, Any]:
    params = request.params
    sent: dict[str, Any] = {"max_new_tokens": request.max_tokens, "temperature": params.temperature}
    for f in fields(SamplingParams):
        value = getattr(params, f.name)
        if f.name not in _NOT_SENT and value != getattr(_DEFAULTS, f.name):
            sent[f.name] = list(value) if isinstance(value, tuple) else value  # pyright: ignore[reportUnknownArgumentType]
    if request.stop:
        sent["stop"] = list(request.stop)
    if request.seed is not None:
        sent["sampling_seed"] = request.seed
    if params.logit_bias:
        sent["logit_bias"] = {str(token): bias for token, bias in params.logit_bias}
    if params.choices is not None:
        sent["regex"] = "|".join(f"(?:{re.escape(choice)})" for choice in params.choices)
    return sent


def _wanted(logprob: LogprobParams | None) -> dict[str, Any]:
    if logprob is None:
        return {}
    wanted: dict[str, Any] = {"return_logprob": True, "return_text_in_logprobs": logprob.with_text}
    if logprob.start_len is not None:
        wanted["logprob_start_len"] = logprob.start_len
    if logprob.top_num:
        wanted["top_logprobs_num"] = logprob.top_num
    if logprob.token_ids:
        wanted["token_ids_logprob"] = list(logprob.token_ids)
    return wanted


def _row(reply: dict[str, Any], own: Sequence[int]) -> TokenRow:
    """The entries behind those that have the ids `own`."""
    entries = reply["meta_info"]["input_token_logprobs"]
    pairs = zip(own, entries, strict=False)
    same = next((n for n, (token, entry) in enumerate(pairs) if token != entry[1]), min(len(own), len(entries)))
    return [(entry[0], entry[1], entry[2] or "") for entry in entries[same:]]


def _spent(replies: Sequence[dict[str, Any]]) -> dict[str, Any]:
    metas = [reply["meta_info"] for reply in replies]
    total = {name: sum(meta.get(name) or 0 for meta in metas) for name in ("prompt_tokens", "cached_tokens")}
    return {"id": metas[0].get("id", ""), **total, "completion_tokens": 0, "requests": 2}


def _fault(answer: Answer) -> Exception:
    if answer.status in (408, 409, 429) or answer.status >= 500:
        return ServerFault(answer)
    error = error_of(answer, "generating")
    is_long = "context length" in str(error) and not isinstance(error, ContextLengthError)
    return ContextLengthError(str(error)) if is_long else error
