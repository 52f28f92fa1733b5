"""`/v1/programs`: the request tree as JSON over HTTP, its events by server-sent events with resume."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import asdict
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response
from pydantic import Field

from sglang_lite.errors import RequestError
from sglang_lite.op_json import VERSION, check_version, op_from_json
from sglang_lite.request_tree import Op, RequestTree
from sglang_lite.runtime.server.access import note
from sglang_lite.runtime.server.body import Body
from sglang_lite.runtime.server.errors import json_response
from sglang_lite.runtime.server.programs import ClientProgram, ClientRows, ProgramTable
from sglang_lite.runtime.server.service import Service
from sglang_lite.runtime.server.sse import DONE, EventStream, event


class OpenBody(Body):
    """The body that opens a program; with `stream` the answer is the program's events.

    With `rows` the ops are a whole tree that runs once for each row of arguments, each with its seed.
    """

    version: int = VERSION
    seed: int | None = Field(default=None, ge=0)
    ops: list[dict[str, Any]] = Field(default_factory=list)
    close: bool = False
    ttl_s: float | None = Field(default=None, ge=0)
    stream: bool = False
    rows: list[dict[str, str]] | None = None
    seeds: list[int | None] | None = None


class CheckBody(Body):
    """The body that asks what is wrong with a tree."""

    version: int = VERSION
    ops: list[dict[str, Any]] = Field(default_factory=list)


class AppendBody(Body):
    """The body that adds ops; `start` is the number of ops sent before, so that a repeated request adds nothing."""

    ops: list[dict[str, Any]] = Field(default_factory=list)
    start: int | None = Field(default=None, ge=0)
    close: bool = False


class CancelBody(Body):
    """The body that stops branches and what was forked from them, or rows; none named: all."""

    branches: list[int] | None = None
    rows: list[int] | None = None


def program_routes(service: Service, table: ProgramTable) -> APIRouter:
    """All routes of programs."""
    router = APIRouter()
    _add_check(router, service)

    @router.post("/v1/programs")
    async def open_program(request: Request) -> Response:
        body = await service.bodies.read(request, OpenBody)
        check_version(body.version)
        if body.rows is not None:
            program = _open_rows(table, body, body.rows)
            note(request.scope, program=program.name, ops=program.num_ops, rows=len(body.rows))
            return _stream(service, table, program, 0) if body.stream else json_response(_status(program), 201)
        ops = _ops(body.ops)
        program = table.open(body.seed, body.ttl_s)
        try:
            _give(table, program, ops, 0, close=body.close)
        except Exception:
            table.delete(program)
            raise
        note(request.scope, program=program.name, ops=len(ops))
        if body.stream:
            return _stream(service, table, program, 0)
        return json_response(_status(program), 201)

    @router.get("/v1/programs/{name}")
    async def program_status(name: str) -> Response:
        return json_response(_status(table.get(name)))

    @router.post("/v1/programs/{name}/ops")
    async def append(name: str, request: Request) -> Response:
        body = await service.bodies.read(request, AppendBody)
        program = table.get(name)
        _give(table, program, _ops(body.ops), body.start, close=body.close)
        note(request.scope, program=name, ops=len(body.ops))
        return json_response(_status(program))

    @router.post("/v1/programs/{name}/cancel")
    async def cancel(name: str, request: Request) -> Response:
        body = await service.bodies.read(request, CancelBody)
        program = table.get(name)
        assert program.program is not None, f"program {name} was opened"
        if isinstance(program, ClientRows):
            program.cancel_rows(body.rows)
        else:
            program.program.cancel(body.branches)
        return json_response(_status(program))

    @router.get("/v1/programs/{name}/events")
    async def events(name: str, request: Request) -> Response:
        program = table.get(name)
        after = _resume_after(request)
        if after > len(program.events):
            raise RequestError(f"reading events: after {after}, but the program {name} has {len(program.events)}")
        return _stream(service, table, program, after)

    @router.delete("/v1/programs/{name}")
    async def delete(name: str) -> Response:
        table.delete(table.get(name))
        return json_response({"id": name, "deleted": True})

    return router


def _add_check(router: APIRouter, service: Service) -> None:
    @router.post("/v1/programs/check")
    async def check(request: Request) -> Response:
        body = await service.bodies.read(request, CheckBody)
        check_version(body.version)
        findings = await asyncio.to_thread(service.engine.check, RequestTree.from_json({"ops": body.ops}))
        return json_response({"findings": [asdict(finding) for finding in findings]})


def _open_rows(table: ProgramTable, body: OpenBody, rows: list[dict[str, str]]) -> ClientProgram:
    return table.open_rows(RequestTree.from_json({"ops": body.ops}), rows, body.seeds, body.ttl_s)


def _stream(service: Service, table: ProgramTable, program: ClientProgram, after: int) -> EventStream:
    async def lines() -> AsyncGenerator[str, None]:
        reading = table.read(program, after)
        try:
            async for event_id, data in reading:
                yield event(data, event_id)
            if not program.is_gone:  # else the stream breaks off, and its reader asks again and is told
                yield DONE
        finally:
            await reading.aclose()

    return EventStream(lines(), service.config.heartbeat_s, {"x-program-id": program.name})


def _ops(data: list[dict[str, Any]]) -> list[Op]:
    return [op_from_json(one) for one in data]


def _give(table: ProgramTable, program: ClientProgram, ops: list[Op], start: int | None, *, close: bool) -> None:
    table.append(program, ops, start)
    if close:
        program.close()


def _status(program: ClientProgram) -> dict[str, Any]:
    return {
        "version": VERSION,
        "id": program.name,
        "ops": program.num_ops,
        "events": len(program.events),
        "closed": program.is_closed,
        "over": program.is_over,
        "ttl_s": program.ttl_s,
    }


def _resume_after(request: Request) -> int:
    text = request.headers.get("last-event-id") or request.query_params.get("after") or "0"
    if not (text.isascii() and text.isdecimal()) or len(text) > 15:
        raise RequestError(f"reading events: Last-Event-ID {text!r:.40}, expected a whole number")
    return int(text)
