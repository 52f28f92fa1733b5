"""The server as one ASGI application: routes, keys, log, put together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fastapi import FastAPI
from fastapi.middleware.cors import CORSMiddleware

from sglang_lite.runtime.server import openapi_document
from sglang_lite.runtime.server.access import AccessLog
from sglang_lite.runtime.server.anthropic_messages import anthropic_routes
from sglang_lite.runtime.server.asgi import App, Receive, Scope, Send
from sglang_lite.runtime.server.auth import OPEN_PATHS, KeyCheck, KeyRing
from sglang_lite.runtime.server.config import ServerConfig
from sglang_lite.runtime.server.door import Door
from sglang_lite.runtime.server.engine_port import EnginePort
from sglang_lite.runtime.server.errors import install_handlers
from sglang_lite.runtime.server.isolation import IsolatedEngine, KeySpaces
from sglang_lite.runtime.server.native import native_routes
from sglang_lite.runtime.server.observed import ObservedEngine
from sglang_lite.runtime.server.openai_chat import chat_routes
from sglang_lite.runtime.server.openai_completions import completion_routes
from sglang_lite.runtime.server.operations import operation_routes
from sglang_lite.runtime.server.program_routes import program_routes
from sglang_lite.runtime.server.programs import ProgramTable
from sglang_lite.runtime.server.recent_programs import RecentPrograms
from sglang_lite.runtime.server.responses import responses_routes
from sglang_lite.runtime.server.scoring import score_routes
from sglang_lite.runtime.server.service import Service
from sglang_lite.runtime.server.tracing import Spans
from sglang_lite.runtime.server.viewer import PAGE_PATHS, viewer_routes
from sglang_lite.runtime.server.viewer_access import ViewerAccess


@dataclass(frozen=True)
class ServerApp:
    """The ASGI application and what its owner may touch."""

    api: FastAPI
    service: Service
    keys: KeyRing
    admin_keys: KeyRing
    log: AccessLog
    programs: ProgramTable
    door: Door

    @property
    def in_flight(self) -> int:
        """HTTP requests under way."""
        return self.log.in_flight

    @property
    def is_draining(self) -> bool:
        """The end has begun."""
        return self.service.phase == "draining"

    def drain(self) -> None:
        """Be not ready from here on; what runs goes on."""
        self.service.phase = "draining"

    def refuse_new(self) -> None:
        """Turn new work away from here on; probes are answered, what runs goes on."""
        self.door.is_closed = True

    def end_programs(self) -> None:
        """Stop every program."""
        self.programs.delete_all()

    def reload_keys(self) -> None:
        """Read the API keys again.

        Raises:
            RequestError: they cannot be read; those of before stay.
        """
        self.keys.reload()
        self.admin_keys.reload()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection's request."""
        await self.log(scope, receive, send)


def create_app(
    engine: EnginePort, config: ServerConfig, stands_s: Callable[[], float] = lambda: 0.0, spans: Spans | None = None
) -> ServerApp:
    """Everything over one engine, which must run and is not stopped here. `stands_s`: see `Service`. `spans`: where spans of
    requests go.

    Raises:
        RequestError: the keys cannot be read.
    """
    if config.cache_isolation == "key":
        engine = IsolatedEngine(engine)
    service = Service.of(ObservedEngine(engine, config.log_requests_level), config, stands_s)
    recent = RecentPrograms(service.model_name)
    programs = ProgramTable(engine, config, recent)

    # No pages of the framework: they load scripts from elsewhere. No redirects: a path is a route or it is not.
    api = FastAPI(title="sglang_lite", docs_url=None, redoc_url=None, redirect_slashes=False)
    keys = KeyRing(config.read_keys)
    admin_keys = KeyRing(config.read_admin_keys)
    access = ViewerAccess(config, keys, admin_keys)
    guarded: App = KeyCheck(
        KeySpaces(api) if config.cache_isolation == "key" else api,
        keys,
        OPEN_PATHS if access.mode == "off" else OPEN_PATHS | PAGE_PATHS,
        admin_keys,
    )
    if config.cors_origins:
        guarded = CORSMiddleware(
            guarded,
            allow_origins=config.cors_origins,
            allow_methods=["*"],
            allow_headers=["*"],
            expose_headers=["X-Request-Id", "traceparent"],
        )
    door = Door(guarded)
    log = AccessLog(door, spans)
    install_handlers(api)
    for routes in (
        operation_routes(service, log),
        native_routes(service),
        score_routes(service),
        completion_routes(service),
        chat_routes(service),
        responses_routes(service),
        anthropic_routes(service),
        program_routes(service, programs),
        viewer_routes(service, access, recent),
    ):
        api.include_router(routes)
    openapi_document.install(api)
    return ServerApp(api, service, keys, admin_keys, log, programs, door)
