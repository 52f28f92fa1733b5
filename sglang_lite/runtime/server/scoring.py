"""`/v1/score`, SGLang's: how likely each of some tokens follows a text; it knows no other route."""

from __future__ import annotations

import asyncio
import math
import time
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response
from pydantic import Field

from sglang_lite.errors import RequestError
from sglang_lite.runtime.server.access import note
from sglang_lite.runtime.server.body import Body
from sglang_lite.runtime.server.errors import json_response
from sglang_lite.runtime.server.service import Service, facts_of, usage_of
from sglang_lite.runtime.server.sse import unless_gone

Ids = list[int]


class ScoreBody(Body):
    """The body of `/v1/score`. `query` and `items` are all texts or all token ids."""

    query: str | Ids = ""
    items: str | list[str] | list[Ids] = Field(default_factory=list)
    label_token_ids: Ids
    apply_softmax: bool = False
    item_first: bool = False
    model: str | None = None
    user: str | None = None


def score_routes(service: Service) -> APIRouter:
    """The route."""
    router = APIRouter()

    @router.post("/v1/score")
    async def score(request: Request) -> Response:
        body = await service.bodies.read(request, ScoreBody)
        prompts = await _prompts(service, body)
        _check_labels(service, body.label_token_ids)
        service.check_batch(len(prompts))
        replies = await unless_gone(request, _run(service, prompts, body.label_token_ids))
        usage = usage_of(replies)
        service.count(usage)
        note(request.scope, **facts_of(usage, ["score"]))
        scores = [_scores(reply, body.label_token_ids, softmax=body.apply_softmax) for reply in replies]
        return json_response(
            {
                "object": "scoring",
                "model": service.model_name,
                "created": int(time.time_ns() // 1_000_000_000),
                "scores": scores,
                "usage": usage,
            }
        )

    return router


async def _run(service: Service, prompts: list[Ids], labels: Ids) -> list[dict[str, Any]]:
    params = {"max_new_tokens": 1, "temperature": 0}
    started = [
        service.engine.async_generate(
            input_ids=ids, sampling_params=params, return_logprob=True, token_ids_logprob=list(dict.fromkeys(labels))
        )
        for ids in prompts
    ]
    tasks = [asyncio.ensure_future(one) for one in started]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()


async def _prompts(service: Service, body: ScoreBody) -> list[Ids]:
    """Query and item as one sequence of tokens for each item; texts are put together before they are tokenised.

    Raises:
        RequestError: texts and ids are mixed, or there is nothing to score after.
    """
    items = [body.items] if isinstance(body.items, str) else list(body.items)
    if not items:
        raise RequestError("scoring: items is empty, expected at least one")
    prompts: list[Ids] = []
    for item in items:
        if isinstance(item, str) and isinstance(body.query, str):
            text = item + body.query if body.item_first else body.query + item
            prompts.append(await service.encode(text))
        elif not isinstance(item, str) and not isinstance(body.query, str):
            prompts.append([*item, *body.query] if body.item_first else [*body.query, *item])
        elif not isinstance(item, str) and body.query == "":
            prompts.append(list(item))
        else:
            raise RequestError("scoring: query and items are of different kinds, expected texts or token ids for both")
        if not prompts[-1]:
            raise RequestError("scoring: a prompt is empty, expected a query or an item with text")
    return prompts


def _check_labels(service: Service, labels: Ids) -> None:
    size = service.tokenizer.vocab_size
    if not labels:
        raise RequestError("scoring: label_token_ids is empty, expected at least one token id")
    if wrong := [one for one in labels if not 0 <= one < size]:
        raise RequestError(f"scoring: label_token_ids has {wrong[0]}, expected 0 to {size - 1}")


def _scores(reply: dict[str, Any], labels: Ids, *, softmax: bool) -> list[float]:
    """Probabilities of the labels, over all tokens or, with `softmax`, among themselves."""
    entries = reply["meta_info"]["output_token_ids_logprobs"][0]
    logprobs = {token: logprob for logprob, token, _ in entries}
    values = [logprobs[label] for label in labels]
    if not softmax:
        return [math.exp(value) for value in values]
    highest = max(values)
    weights = [math.exp(value - highest) for value in values]
    return [weight / sum(weights) for weight in weights]
