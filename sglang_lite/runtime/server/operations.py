"""Routes for those who run the server: probes and metrics, none of which waits for the engine, and profiles."""

from __future__ import annotations

import asyncio
from functools import partial

from fastapi import APIRouter, Request
from fastapi.responses import Response
from pydantic import Field

from sglang_lite.errors import EngineStoppedError, UnsupportedError
from sglang_lite.runtime.server.access import AccessLog
from sglang_lite.runtime.server.body import Body
from sglang_lite.runtime.server.errors import HttpError, json_response
from sglang_lite.runtime.server.metrics import CONTENT_TYPE, Sample, metrics_text
from sglang_lite.runtime.server.service import Service


class ProfileBody(Body):
    """The body of `/start_profile`, which may be left out; what only other profilers have is without effect."""

    num_steps: int | None = Field(default=None, ge=1)
    output_dir: str | None = None
    activities: list[str] | None = None
    profile_by_stage: bool | None = None
    record_shapes: bool | None = None
    with_stack: bool | None = None


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
        try:
            service.engine.check_running()
        except EngineStoppedError as error:
            raise HttpError(503, f"the engine does not run: {error}", code="engine_stopped") from error
        return Response("ok", media_type="text/plain")

    @router.get("/metrics")
    async def metrics() -> Response:
        snapshot = service.engine.snapshot()  # of a moment ago: an answer may not wait for a step
        samples = [
            Sample("sglang_lite:http_requests_in_flight", "gauge", "HTTP requests under way", log.in_flight),
            Sample("sglang_lite:http_requests_total", "counter", "HTTP requests that ended", log.num_requests),
            Sample("sglang_lite:http_disconnects_total", "counter", "Clients that went away", log.num_disconnects),
            Sample("sglang_lite:scheduler_restarts_total", "counter", "Scheduler processes that were started again", snapshot.get("restarts", 0)),
            Sample("sglang_lite:scheduler_stands_seconds", "gauge", "Seconds since the last step, with work to do", service.stands_s()),
        ]  # fmt: skip
        text = metrics_text(samples, snapshot, {"model_name": service.model_name})
        return Response(text, headers={"content-type": CONTENT_TYPE})

    @router.post("/start_profile")
    async def start_profile(request: Request) -> Response:
        body = ProfileBody() if _is_empty(request) else await service.bodies.read(request, ProfileBody)
        if body.output_dir is not None:
            raise UnsupportedError("starting a profile: output_dir is not supported; start with --profile-folder")
        call = partial(service.engine.call, "start_profile", folder=service.config.profile_folder)
        path = await asyncio.to_thread(call, num_steps=body.num_steps)
        return json_response({"success": True, "file": path})

    @router.post("/stop_profile")
    async def stop_profile(request: Request) -> Response:
        path = await asyncio.to_thread(service.engine.call, "stop_profile")
        return json_response({"success": True, "file": path})

    return router


def _is_empty(request: Request) -> bool:
    return request.headers.get("content-length", "0") == "0" and "transfer-encoding" not in request.headers
