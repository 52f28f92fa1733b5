"""All running programs: opens them, feeds them ops, ends them; knows no model and no scheduler internals."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from sglang_lite.errors import ProgramError, SglangLiteError
from sglang_lite.request_tree import EventSink, Op, RequestTree, TreeRow
from sglang_lite.runtime.executor.gate import ProgramGate
from sglang_lite.runtime.executor.ports import RequestPort, SaltedPort, TextParts
from sglang_lite.runtime.executor.program import RunningProgram


class TreeExecutor:
    """Turns request trees into requests. All methods run on the engine's thread.

    Args:
        pool_tokens: KV that the programs share, in tokens; None: programs are never held back for lack of it.
    """

    def __init__(self, port: RequestPort, text: TextParts, pool_tokens: int | None = None) -> None:
        self._port = port
        self._text = text
        self._programs: dict[str, RunningProgram] = {}
        self._tickets = itertools.count(1)
        self._numbers = itertools.count(1)
        self._gate = ProgramGate(pool_tokens)
        self._held: dict[str, list[Op]] = {}
        """Ops of the programs that have not begun."""

    @property
    def num_held(self) -> int:
        """Programs that wait until the pool has room for them."""
        return self._gate.num_held

    @property
    def num_programs(self) -> int:
        """Programs that are not over."""
        return len(self._programs)

    def open(self, name: str, sink: EventSink, seed: int, namespace: str = "") -> None:
        """Start a program under a new name; it shares prefixes with requests of the same namespace."""
        assert name not in self._programs, f"program {name} exists already"
        number = next(self._numbers)
        port = SaltedPort(self._port, namespace) if namespace else self._port
        self._programs[name] = RunningProgram(name, sink, seed, port, self._text, self._tickets, number)

    def open_rows(self, tree: RequestTree, rows: Sequence[tuple[str, TreeRow, int]], namespace: str = "") -> None:
        """Start and close a program for each row (its name, the row, its seed): `tree` with the row's arguments."""
        for name, row, seed in rows:
            self.open(name, row.sink, seed, namespace)
            program = self._programs[name]
            try:
                ops = tree.bound(row.arguments)
            except ProgramError as error:
                program.refuse(list(tree.ops.values()), error)
            else:
                self.append(name, ops)
            program.close()
        self.sweep()

    def append(self, name: str, ops: Sequence[Op]) -> None:
        """Give ops to a program; ops for a program that is over have no reader and are dropped."""
        if (program := self._programs.get(name)) is None:
            return
        if name in self._held:
            self._held[name].extend(ops)
        elif program.has_begun or self._gate.may_begin(name, ops):
            program.append(ops)
        else:
            self._held[name] = list(ops)

    def cancel(self, name: str, branches: Sequence[int] | None) -> None:
        """Stop branches of a program (None: all)."""
        if (program := self._programs.get(name)) is not None:
            if (ops := self._held.pop(name, None)) is not None:
                self._gate.forget(name)
                program.append(ops)
            program.cancel(branches)

    def close(self, name: str) -> None:
        """No further ops come to this program."""
        if (program := self._programs.get(name)) is not None:
            program.close()
            self.sweep()

    def sweep(self) -> None:
        """Decide what is decided at the end of a step, forget programs that are over; called after outputs were handed out."""
        over: list[str] = []
        for name, program in self._programs.items():
            if program.end_step() and name not in self._held:
                over.append(name)
        for name in over:
            self._programs.pop(name).end()
        self._let_begin()

    def _let_begin(self) -> None:
        """Begin the programs that were held back, as far as there is room."""
        if not self._gate.num_held:
            return
        for name in self._gate.under_way:
            if (program := self._programs.get(name)) is None or program.is_idle:
                self._gate.rests(name)
        while (name := self._gate.next_ready()) is not None:
            self._programs[name].append(self._held.pop(name))

    def fail_all(self, error: SglangLiteError) -> None:
        """The engine ends: every open op fails with `error`."""
        for name, program in self._programs.items():
            program.refuse(self._held.pop(name, []), error)
            program.cancel(None, error)
        self._programs.clear()
