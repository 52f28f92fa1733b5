"""The server as one ASGI application: routes, keys, log, put together."""

from __future__ import annotations

from dataclasses import dataclass

from fastapi import FastAPI
from fastapi.middleware.cors import CORSMiddleware

from sglang_lite.runtime.server.access import AccessLog
from sglang_lite.runtime.server.asgi import App, Receive, Scope, Send
from sglang_lite.runtime.server.auth import KeyCheck, KeyRing
from sglang_lite.runtime.server.config import ServerConfig
from sglang_lite.runtime.server.engine_port import EnginePort
from sglang_lite.runtime.server.errors import install_handlers
from sglang_lite.runtime.server.native import native_routes
from sglang_lite.runtime.server.openai_chat import chat_routes
from sglang_lite.runtime.server.openai_completions import completion_routes
from sglang_lite.runtime.server.operations import operation_routes
from sglang_lite.runtime.server.program_routes import program_routes
from sglang_lite.runtime.server.programs import ProgramTable
from sglang_lite.runtime.server.service import Service


@dataclass(frozen=True)
class ServerApp:
    """The ASGI application and what its owner may touch."""

    api: FastAPI
    service: Service
    keys: KeyRing
    log: AccessLog
    programs: ProgramTable

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection's request."""
        await self.log(scope, receive, send)


def create_app(engine: EnginePort, config: ServerConfig) -> ServerApp:
    """Everything over one engine, which must run and is not stopped here.

    Raises:
        RequestError: the keys cannot be read.
    """
    service = Service.of(engine, config)
    programs = ProgramTable(engine, config)

    # No pages of the framework: they load scripts from elsewhere. No redirects: a path is a route or it is not.
    api = FastAPI(title="sglang_lite", docs_url=None, redoc_url=None, redirect_slashes=False)
    keys = KeyRing(config.read_keys)
    guarded: App = KeyCheck(api, keys)
    if config.cors_origins:
        guarded = CORSMiddleware(
            guarded,
            allow_origins=config.cors_origins,
            allow_methods=["*"],
            allow_headers=["*"],
            expose_headers=["X-Request-Id"],
        )
    log = AccessLog(guarded)
    install_handlers(api)
    for routes in (
        operation_routes(service, log),
        native_routes(service),
        completion_routes(service),
        chat_routes(service),
        program_routes(service, programs),
    ):
        api.include_router(routes)
    return ServerApp(api, service, keys, log, programs)
