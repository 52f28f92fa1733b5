"""Puts a load on a server of OpenAI's API and measures it: when each request begins, and when its tokens come."""

from __future__ import annotations

import asyncio
import json
import math
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from sglang_lite.cli.load_data import Body
from sglang_lite.errors import ExecutionError
from sglang_lite.lang.backends.http_client import HEADERS_ID, HttpClient, RefusedError

PERCENTILES = (50, 95, 99)


@dataclass(slots=True)
class Measured:
    """One request, in seconds since the run began. `arrivals_s`: of each piece of text. `error`: why it failed."""

    start_s: float = 0.0
    end_s: float = 0.0
    arrivals_s: list[float] = field(default_factory=list[float])
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Load:
    """How requests come: `rate` a second, at random as of independent users (None: as fast as may be), at most `concurrency`
    at a time (None: any number); one that takes longer than `timeout_s` has failed.
    """

    rate: float | None = None
    concurrency: int | None = None
    timeout_s: float = 600.0
    seed: int = 0


async def find_model(http: HttpClient) -> str:
    """The first model that the server names.

    Raises:
        ExecutionError: it names none, or is not there.
    """
    answer = await http.request("GET", "/v1/models")
    if answer.status >= 400:
        raise ExecutionError(
            f"asking {http.base_url} for its models: it answered {answer.status}: {answer.body[:200]!r}"
        )
    models: list[dict[str, Any]] = answer.json().get("data") or []
    if not models:
        raise ExecutionError(f"asking {http.base_url} for its models: it has none; name one")
    return str(models[0]["id"])


async def run_load(
    http: HttpClient, bodies: Sequence[Body], model: str, load: Load, on_end: Callable[[Measured], None]
) -> list[Measured]:
    """Send all bodies; `on_end` is told of each end. Waits are drawn beforehand, so that a slow server gets no fewer."""
    draw = random.Random(load.seed)
    slots = asyncio.Semaphore(load.concurrency or len(bodies) or 1)
    begun_s = time.perf_counter()
    due_s, tasks = 0.0, list[asyncio.Task[Measured]]()

    async def one(body: Body) -> Measured:
        measured = Measured()
        async with slots:
            measured.start_s = time.perf_counter() - begun_s
            try:
                async with asyncio.timeout(load.timeout_s):
                    await _stream(http, body | {"model": model}, measured, begun_s)
            except TimeoutError:
                measured.error = "timeout"
            except RefusedError as error:
                measured.error = f"HTTP {error.answer.status}"
            except (ExecutionError, ValueError, LookupError, TypeError) as error:
                measured.error = type(error).__name__
            measured.end_s = time.perf_counter() - begun_s
        on_end(measured)
        return measured

    for body in bodies:
        if load.rate is not None:
            await asyncio.sleep(max(0.0, begun_s + due_s - time.perf_counter()))
            due_s += draw.expovariate(load.rate)
        tasks.append(asyncio.create_task(one(body)))
    return list(await asyncio.gather(*tasks))


async def _stream(http: HttpClient, body: Body, measured: Measured, begun_s: float) -> None:
    path = "/v1/chat/completions" if "messages" in body else "/v1/completions"
    sent = body | {"stream": True, "stream_options": {"include_usage": True}}
    events = http.events("POST", path, sent, {})
    is_whole = False
    try:
        async for event_id, data in events:
            if event_id == HEADERS_ID:
                continue
            if data == "[DONE]":
                is_whole = True
                break
            _note(json.loads(data), measured, time.perf_counter() - begun_s)
    finally:
        await events.aclose()
    if not is_whole:
        raise ExecutionError("the stream broke off")


def _note(chunk: dict[str, Any], measured: Measured, now_s: float) -> None:
    if "error" in chunk:
        raise ExecutionError(str(chunk["error"]))
    for choice in chunk.get("choices") or ():
        if choice.get("text") or (choice.get("delta") or {}).get("content"):
            measured.arrivals_s.append(now_s)
            measured.completion_tokens += 1  # as long as the server does not say
    if usage := chunk.get("usage"):
        measured.prompt_tokens = usage.get("prompt_tokens") or 0
        measured.completion_tokens = usage.get("completion_tokens") or 0
        measured.cached_tokens = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0


def percentile(values: Sequence[float], percent: float) -> float | None:
    """The value that `percent` percent do not exceed (nearest rank); None: there are no values."""
    if not values:
        return None
    ordered = sorted(values)
    return ordered[max(math.ceil(len(ordered) * percent / 100) - 1, 0)]


def summary(measured: Sequence[Measured]) -> dict[str, Any]:
    """Throughput, latencies (milliseconds, by percentile) and errors of a run.

    Inter-token times: where a piece of a stream holds several tokens, its time is divided among them.
    """
    good = [m for m in measured if m.error is None]
    wall_s = max((m.end_s for m in measured), default=0.0) - min((m.start_s for m in measured), default=0.0)
    between: list[float] = []
    for m in good:
        gaps = [after - before for before, after in zip(m.arrivals_s, m.arrivals_s[1:], strict=False)]
        share = max(1.0, m.completion_tokens / max(len(m.arrivals_s), 1))
        between += [gap / share for gap in gaps]
    series = {
        "ttft_ms": [m.arrivals_s[0] - m.start_s for m in good if m.arrivals_s],
        "inter_token_ms": between,
        "end_to_end_ms": [m.end_s - m.start_s for m in good],
    }
    completion, prompt = sum(m.completion_tokens for m in good), sum(m.prompt_tokens for m in good)
    per_s = 1 / wall_s if wall_s else 0.0
    return {
        "requests": len(measured),
        "errors": dict(Counter(m.error for m in measured if m.error is not None)),
        "wall_s": wall_s,
        "requests_per_s": len(good) * per_s,
        "output_tokens_per_s": completion * per_s,
        "prompt_tokens_per_s": prompt * per_s,
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "cached_tokens": sum(m.cached_tokens for m in good),
        **{name: _percentiles(values) for name, values in series.items()},
    }


def _percentiles(values: Sequence[float]) -> dict[str, float | None]:
    found = {f"p{percent}": percentile(values, percent) for percent in PERCENTILES}
    return {name: None if value is None else value * 1000 for name, value in found.items()}
