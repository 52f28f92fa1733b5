"""Routes for those who run the server: probes and metrics; they need nothing of the engine that could wait long."""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi import APIRouter
from fastapi.responses import Response

from sglang_lite.errors import EngineStoppedError
from sglang_lite.runtime.server.access import AccessLog
from sglang_lite.runtime.server.errors import HttpError
from sglang_lite.runtime.server.service import Service

_PATIENCE_S = 1.0
"""How long a probe waits for a busy engine; one in a long step is busy, not ill."""


def operation_routes(service: Service, log: AccessLog) -> APIRouter:
    """Probes and metrics."""
    router = APIRouter()

    @router.get("/livez")
    async def livez() -> Response:
        stands_s = service.stands_s()
        if stands_s > service.config.watchdog_timeout_s:
            raise HttpError(503, f"the scheduler has work and did no step for {stands_s:.0f} s", code="stuck")
        return Response("ok", media_type="text/plain")

    @router.get("/readyz")
    @router.get("/health")
    async def readyz() -> Response:
        if service.phase != "ready":
            raise HttpError(503, f"the server is {service.phase}", code="not_ready")
        await _check_engine(service)
        return Response("ok", media_type="text/plain")

    @router.get("/metrics")
    async def metrics() -> Response:
        info = await asyncio.to_thread(service.engine.get_server_info)
        return Response(metrics_text(info, service, log), media_type="text/plain; version=0.0.4")

    return router


async def _check_engine(service: Service) -> None:
    try:
        async with asyncio.timeout(_PATIENCE_S):
            await asyncio.to_thread(service.engine.get_server_info)
    except TimeoutError:
        return
    except EngineStoppedError as error:
        raise HttpError(503, f"the engine does not run: {error}", code="engine_stopped") from error


def metrics_text(info: dict[str, Any], service: Service, log: AccessLog) -> str:
    """Prometheus' text format: SGLang's names where the meaning is the same, ours below `sglang_lite:`."""
    known = info["cached_tokens"] + info["computed_tokens"]
    kv = info["kv"]
    used = (kv["protected_pages"] + kv["private_pages"]) / kv["total_pages"]
    label = f'{{model_name="{_escaped(service.model_name)}"}}'
    rows = [
        ("sglang:num_running_reqs", "gauge", "Requests in the running batch", info["running"] + info["prefilling"]),
        ("sglang:num_queue_reqs", "gauge", "Requests that wait", info["waiting"] + info["waiting_for_grammar"]),
        ("sglang:token_usage", "gauge", "Share of the KV pool that running requests hold", used),
        ("sglang:cache_hit_rate", "gauge", "Share of prompt tokens that were cached", info["cached_tokens"] / known if known else 0.0),
        ("sglang:prompt_tokens_total", "counter", "Prompt tokens of finished requests", service.counters["prompt_tokens"]),
        ("sglang:generation_tokens_total", "counter", "Output tokens of finished requests", service.counters["generation_tokens"]),
        ("sglang_lite:forced_tokens_total", "counter", "Output tokens that a constraint forced", info["forced_tokens"]),
        ("sglang_lite:programs", "gauge", "Programs under way", info["programs"]),
        ("sglang_lite:http_requests_in_flight", "gauge", "HTTP requests under way", log.in_flight),
        ("sglang_lite:http_requests_total", "counter", "HTTP requests that ended", log.num_requests),
        ("sglang_lite:http_disconnects_total", "counter", "Clients that went away", log.num_disconnects),
    ]  # fmt: skip
    lines: list[str] = []
    for name, kind, text, value in rows:
        lines += [f"# HELP {name} {text}", f"# TYPE {name} {kind}", f"{name}{label} {value}"]
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
