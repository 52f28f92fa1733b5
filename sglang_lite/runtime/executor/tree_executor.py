"""All running programs: opens them, feeds them ops, ends them; knows no model and no scheduler internals."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from sglang_lite.errors import SglangLiteError
from sglang_lite.request_tree import EventSink, Op
from sglang_lite.runtime.executor.ports import RequestPort, TextParts
from sglang_lite.runtime.executor.program import RunningProgram


class TreeExecutor:
    """Turns request trees into requests. All methods run on the engine's thread."""

    def __init__(self, port: RequestPort, text: TextParts) -> None:
        self._port = port
        self._text = text
        self._programs: dict[str, RunningProgram] = {}
        self._tickets = itertools.count(1)

    @property
    def num_programs(self) -> int:
        """Programs that are not over."""
        return len(self._programs)

    def open(self, name: str, sink: EventSink, seed: int) -> None:
        """Start a program under a new name."""
        assert name not in self._programs, f"program {name} exists already"
        self._programs[name] = RunningProgram(name, sink, seed, self._port, self._text, self._tickets)

    def append(self, name: str, ops: Sequence[Op]) -> None:
        """Give ops to a program; ops for a program that is over have no reader and are dropped."""
        if (program := self._programs.get(name)) is not None:
            program.append(ops)

    def cancel(self, name: str, branches: Sequence[int] | None) -> None:
        """Stop branches of a program (None: all)."""
        if (program := self._programs.get(name)) is not None:
            program.cancel(branches)

    def close(self, name: str) -> None:
        """No further ops come to this program."""
        if (program := self._programs.get(name)) is not None:
            program.close()
            self.sweep()

    def sweep(self) -> None:
        """Forget programs that are over; called after outputs were handed out."""
        for name in [name for name, program in self._programs.items() if program.is_over]:
            self._programs.pop(name).end()

    def fail_all(self, error: SglangLiteError) -> None:
        """The engine ends: every open op fails with `error`."""
        for program in self._programs.values():
            program.cancel(None, error)
        self._programs.clear()
