"""Routes for those who run the server: probes and metrics; none of them waits for the engine."""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.responses import Response

from sglang_lite.errors import EngineStoppedError
from sglang_lite.runtime.server.access import AccessLog
from sglang_lite.runtime.server.errors import HttpError
from sglang_lite.runtime.server.metrics import CONTENT_TYPE, Sample, metrics_text
from sglang_lite.runtime.server.service import Service

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

    return router
