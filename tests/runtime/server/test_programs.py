from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from sglang_lite.request_tree import EventSink, Op, OpDone, TextOp
from sglang_lite.runtime.server.config import ServerConfig
from sglang_lite.runtime.server.errors import HttpError
from sglang_lite.runtime.server.programs import ProgramTable


class HandProgram:
    def __init__(self, sink: EventSink) -> None:
        self.sink = sink
        self.ops: list[Op] = []
        self.num_cancels = 0
        self.num_closes = 0

    def append(self, ops: Sequence[Op]) -> None:
        self.ops.extend(ops)

    def cancel(self, branches: Sequence[int] | None = None) -> None:
        self.num_cancels += 1

    def close(self) -> None:
        self.num_closes += 1


class HandEngine:
    """Opens programs whose events the test sends."""

    def __init__(self) -> None:
        self.programs: list[HandProgram] = []

    def open_program(self, sink: EventSink, *, seed: int | None = None) -> HandProgram:
        self.programs.append(HandProgram(sink))
        return self.programs[-1]


def table() -> tuple[ProgramTable, HandEngine]:
    engine = HandEngine()
    return ProgramTable(engine, ServerConfig(program_ttl_s=1000.0)), engine  # type: ignore[arg-type]


def ops(*numbers: int) -> list[Op]:
    return [TextOp(number, 0, "t") for number in numbers]


def test_ops_that_came_before_are_left_out() -> None:
    async def run() -> None:
        programs, engine = table()
        program = programs.open(None, None)
        programs.append(program, ops(0, 1), 0)
        programs.append(program, ops(1, 2), 1)
        programs.append(program, ops(0), 0)
        assert [op.id for op in engine.programs[0].ops] == [0, 1, 2]
        with pytest.raises(HttpError, match="ops 3 to 4 are missing"):
            programs.append(program, ops(5), 4)
        programs.delete_all()

    asyncio.run(run())


def test_readers_get_every_event_once_from_where_they_ask() -> None:
    async def run() -> None:
        programs, engine = table()
        program = programs.open(None, None)
        programs.append(program, ops(0, 1, 2), None)
        got: list[Any] = []

        async def reader() -> None:
            async for number, data in programs.read(program, 1):
                got.append((number, data["op"]))

        task = asyncio.create_task(reader())
        for number in range(3):
            engine.programs[0].sink(OpDone(number))
            await asyncio.sleep(0)
        program.close()
        await task
        assert got == [(2, 1), (3, 2)]
        programs.delete_all()

    asyncio.run(run())


def test_deleting_cancels_leaves_readers_and_keeps_late_events_out() -> None:
    async def run() -> None:
        programs, engine = table()
        program = programs.open(None, None)
        programs.append(program, ops(0), None)
        task = asyncio.create_task(anext(programs.read(program, 0), None))
        await asyncio.sleep(0)
        programs.delete(program)
        programs.delete(program)
        engine.programs[0].sink(OpDone(0))
        assert await task is None
        assert (engine.programs[0].num_cancels, engine.programs[0].num_closes) == (1, 1)
        assert program.events == []
        with pytest.raises(HttpError, match="open it again"):
            programs.get(program.name)

    asyncio.run(run())


def test_a_finished_program_is_not_cancelled_and_does_not_count() -> None:
    async def run() -> None:
        engine = HandEngine()
        programs = ProgramTable(engine, ServerConfig(max_programs=1, program_ttl_s=1000.0))  # type: ignore[arg-type]
        first = programs.open(None, None)
        first.close()
        second = programs.open(None, None)
        with pytest.raises(HttpError, match="at most 1"):
            programs.open(None, None)
        programs.delete_all()
        assert [program.num_cancels for program in engine.programs] == [0, 1]
        assert second.is_gone

    asyncio.run(run())
