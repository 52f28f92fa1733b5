"""Programs of clients: their ops in, their events kept until read; what executes them is the engine's program."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any

from sglang_lite.errors import RequestError
from sglang_lite.op_json import event_to_json
from sglang_lite.request_tree import (
    Event,
    EventSink,
    Op,
    OpDone,
    OpFailed,
    Program,
    RequestTree,
    TreeRow,
)
from sglang_lite.runtime.server.config import ServerConfig
from sglang_lite.runtime.server.engine_port import EnginePort
from sglang_lite.runtime.server.errors import HttpError
from sglang_lite.runtime.server.recent_programs import RecentProgram, RecentPrograms

_SEEN_ROWS = 4
"""Rows of a tree whose records the page shows."""


class ClientProgram:
    """One program of a client. All methods run on the event loop but `sink`, which the engine calls.

    Event number i has the id i + 1. The program is over when it is closed and every op has ended.
    """

    def __init__(self, name: str, loop: asyncio.AbstractEventLoop, ttl_s: float) -> None:
        self.name = name
        self.ttl_s = ttl_s
        self.events: list[dict[str, Any]] = []
        self.num_ops = 0
        self.num_readers = 0
        self.is_closed = False
        self.is_gone = False
        """Ended by force: readers get no further event, and no end."""
        self.program: Program | None = None
        self.seen: RecentProgram | None = None
        """Its record for the page."""
        self.expiry: asyncio.TimerHandle | None = None
        self._loop = loop
        self._num_open = 0
        self._changed = asyncio.Event()

    def sink(self, event: Event) -> None:
        """Take an event, on a thread of the engine."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._take, event)

    def _take(self, event: Event) -> None:
        if self.seen is not None:
            self.seen.take(event)
        if self.is_gone:
            return
        self.events.append(event_to_json(event))
        self._num_open -= isinstance(event, OpDone | OpFailed)
        self._notify()

    @property
    def is_over(self) -> bool:
        """No event comes any more."""
        return self.is_closed and self._num_open == 0

    def append(self, ops: Sequence[Op], start: int | None) -> None:
        """Pass ops on. `start`: how many the client had sent before them; those that came already are left out.

        Raises:
            HttpError: ops are missing before these, or the program is closed.
        """
        assert self.program is not None, f"program {self.name} was opened"
        known = self.num_ops if start is None else start
        if known > self.num_ops:
            raise HttpError(
                409, f"ops {self.num_ops} to {known} are missing; send from {self.num_ops}", code="ops_missing"
            )
        new = ops[self.num_ops - known :]
        if new and self.is_closed:
            raise HttpError(409, f"the program {self.name} is closed; open another one", code="program_closed")
        self.num_ops += len(new)
        self._num_open += len(new)
        if self.seen is not None:
            self.seen.sent(new)
        if new:
            self.program.append(new)

    def close(self) -> None:
        """No further ops come. Idempotent."""
        assert self.program is not None, f"program {self.name} was opened"
        if not self.is_closed:
            self.is_closed = True
            self.program.close()
            self._notify()

    def end(self) -> None:
        """Stop everything; readers are left."""
        assert self.program is not None, f"program {self.name} was opened"
        self.is_gone = True
        if not self.is_over:
            self.program.cancel()
        self.close()
        self._notify()

    async def read(self, after: int) -> AsyncGenerator[tuple[int, dict[str, Any]], None]:
        """(id, event) from the first one after `after` on, until the program is over."""
        while True:
            changed = self._changed
            while after < len(self.events):
                after += 1
                yield after, self.events[after - 1]
            if self.is_over or self.is_gone:
                return
            await changed.wait()

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


class _AllRows:
    """The programs of all rows as one (see `request_tree.Program`)."""

    def __init__(self, programs: Sequence[Program]) -> None:
        self._programs = programs

    def append(self, ops: Sequence[Op]) -> None:
        """Nothing: the tree is whole."""

    def cancel(self, branches: Sequence[int] | None = None) -> None:
        """Stop every row."""
        for program in self._programs:
            program.cancel(branches)

    def close(self) -> None:
        """Nothing: rows are closed from the beginning."""


class ClientRows(ClientProgram):
    """A `ClientProgram` that is a tree with rows: closed from the beginning, over when all ops of all rows have ended."""

    def __init__(self, name: str, loop: asyncio.AbstractEventLoop, ttl_s: float, num_ops: int) -> None:
        super().__init__(name, loop, ttl_s)
        self.is_closed = True
        self.num_ops = num_ops
        self._num_open = num_ops
        self.seen_rows: dict[int, RecentProgram] = {}
        """The records of the first rows for the page."""
        self._rows: Sequence[Program] = ()

    def row_sink(self, row: int) -> EventSink:
        """Takes the events of one row, on a thread of the engine."""

        def sink(event: Event) -> None:
            if not self._loop.is_closed():
                self._loop.call_soon_threadsafe(self._take_row, row, event)

        return sink

    def _take_row(self, row: int, event: Event) -> None:
        if row in self.seen_rows:
            self.seen_rows[row].take(event)
        if self.is_gone:
            return
        self.events.append(event_to_json(event) | {"row": row})
        self._num_open -= isinstance(event, OpDone | OpFailed)
        self._notify()

    def start(self, engine: EnginePort, tree: RequestTree, rows: Sequence[TreeRow]) -> None:
        """Give all rows to the engine, at once."""
        self._rows = engine.open_rows(tree, rows)
        self.program = _AllRows(self._rows)

    def cancel_rows(self, numbers: Sequence[int] | None) -> None:
        """Stop some rows (None: all); a number that no row has is left out."""
        for number in range(len(self._rows)) if numbers is None else numbers:
            if 0 <= number < len(self._rows):
                self._rows[number].cancel()


class ProgramTable:
    """The programs of one server, by name; one that nobody reads for its `ttl_s` is ended and forgotten."""

    def __init__(self, engine: EnginePort, config: ServerConfig, recent: RecentPrograms | None = None) -> None:
        self._recent = recent
        self._engine = engine
        self._config = config
        self._programs: dict[str, ClientProgram] = {}

    def __len__(self) -> int:
        return len(self._programs)

    def open(self, seed: int | None, ttl_s: float | None) -> ClientProgram:
        """Start a program.

        Raises:
            HttpError: too many run.
        """
        ttl_s = self._check_open(ttl_s)
        program = ClientProgram(_new_name(), asyncio.get_running_loop(), ttl_s)
        program.program = self._engine.open_program(program.sink, seed=seed)
        if self._recent is not None:
            program.seen = self._recent.open(program.name, seed)
        self._keep(program)
        return program

    def open_rows(
        self,
        tree: RequestTree,
        rows: Sequence[Mapping[str, str]],
        seeds: Sequence[int | None] | None,
        ttl_s: float | None,
    ) -> ClientRows:
        """Start a tree with rows of arguments.

        Raises:
            HttpError: too many programs run.
            RequestError: too many ops, an argument is missing, or there are not as many seeds as rows.
        """
        what = f"opening a tree of {len(tree.ops)} ops with {len(rows)} rows"
        if len(tree.ops) * len(rows) > self._config.max_ops:
            raise RequestError(f"{what}: more than {self._config.max_ops} ops; send fewer rows at a time")
        if seeds is not None and len(seeds) != len(rows):
            raise RequestError(f"{what}: got {len(seeds)} seeds, expected one for each row")
        for number, row in enumerate(rows):
            if missing := [name for name in tree.arguments if name not in row]:
                raise RequestError(f"{what}: row {number} has no {missing}, expected values for {tree.arguments}")
        ttl_s = self._check_open(ttl_s)
        program = ClientRows(_new_name(), asyncio.get_running_loop(), ttl_s, len(tree.ops) * len(rows))
        given = [
            TreeRow(row, program.row_sink(number), seed)
            for number, (row, seed) in enumerate(zip(rows, seeds or [None] * len(rows), strict=True))
        ]
        if self._recent is not None:
            for number, row in enumerate(given[:_SEEN_ROWS]):
                seen = program.seen_rows[number] = self._recent.open(f"{program.name}-{number}", row.seed)
                seen.sent(tree.bound(row.arguments))
        program.start(self._engine, tree, given)
        self._keep(program)
        return program

    def _check_open(self, ttl_s: float | None) -> float:
        """How long a new program lives without a reader.

        Raises:
            HttpError: too many run.
        """
        running = sum(not program.is_over for program in self._programs.values())
        if running >= self._config.max_programs:
            raise HttpError(
                503, f"{running} programs run, at most {self._config.max_programs}; try again", code="too_many_programs"
            )
        return self._config.program_ttl_s if ttl_s is None else min(ttl_s, self._config.program_ttl_s)

    def _keep(self, program: ClientProgram) -> None:
        self._programs[program.name] = program
        self._expire_later(program)

    def get(self, name: str) -> ClientProgram:
        """A program by its name.

        Raises:
            HttpError: 404; the client may give all its ops to a new one.
        """
        program = self._programs.get(name)
        if program is None:
            raise HttpError(
                404, f"no program {name!r:.80}: it ended, or nobody read it; open it again", code="program_not_found"
            )
        return program

    def append(self, program: ClientProgram, ops: Sequence[Op], start: int | None) -> None:
        """Give ops to a program within the limit.

        Raises:
            RequestError: too many ops.
        """
        if program.num_ops + len(ops) > self._config.max_ops:
            raise RequestError(f"appending to a program: more than {self._config.max_ops} ops; split the program")
        program.append(ops, start)
        if not program.num_readers:
            self._expire_later(program)

    def delete(self, program: ClientProgram) -> None:
        """End and forget a program at once. Idempotent."""
        if program.expiry is not None:
            program.expiry.cancel()
        if self._programs.pop(program.name, None) is not None:
            program.end()

    def delete_all(self) -> None:
        """End every program."""
        for program in list(self._programs.values()):
            self.delete(program)

    async def read(self, program: ClientProgram, after: int) -> AsyncGenerator[tuple[int, dict[str, Any]], None]:
        """The program's events for one reader; it lives on for its `ttl_s` after the last one left."""
        program.num_readers += 1
        if program.expiry is not None:
            program.expiry.cancel()
        try:
            async for item in program.read(after):
                yield item
        finally:
            program.num_readers -= 1
            if not program.num_readers:
                self._expire_later(program)

    def _expire_later(self, program: ClientProgram) -> None:
        if program.expiry is not None:
            program.expiry.cancel()
        if program.name in self._programs:
            program.expiry = asyncio.get_running_loop().call_later(program.ttl_s, self.delete, program)


def _new_name() -> str:
    return f"prog_{secrets.token_hex(12)}"
