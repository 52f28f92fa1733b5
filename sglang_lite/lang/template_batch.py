"""The rows of a pure program: one tree sent once with all arguments, where the backend takes that; no body, no thread."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from sglang_lite.errors import SglangLiteError
from sglang_lite.lang.progress import ProgressBar
from sglang_lite.lang.runner import Call
from sglang_lite.lang.seeds import row_seed
from sglang_lite.lang.session import enclosing_session
from sglang_lite.lang.state import ProgramState
from sglang_lite.lang.template import Template, TemplateRow
from sglang_lite.request_tree import Backend, EventSink, Op, Program, RowsBackend, TreeRow


def iterate_templates(calls: Sequence[Call], rows: Sequence[TemplateRow], progress_bar: bool) -> Iterator[ProgramState]:
    """Start all rows; their states in order, each once it has ended. Leaving early cancels what is under way.

    Raises:
        BaseException: the backend could not even open the programs.
    """
    outer = enclosing_session.get()
    seed = calls[0].options.seed
    seed = outer.next_nested_seed() if seed is None and outer is not None else seed
    states: list[ProgramState] = []
    bar = ProgressBar(len(calls)) if progress_bar else None
    try:
        states.extend(_open_all(calls, rows, seed))
        for number, (call, state) in enumerate(zip(calls, states, strict=True)):
            state.branch.session.wait_for_end()
            call.settle(state)
            if bar is not None:
                bar.update(number + 1)
            yield state
    except BaseException:
        for state in states:
            state.cancel()
        raise
    finally:
        if bar is not None:
            bar.close()


def _open_all(calls: Sequence[Call], rows: Sequence[TemplateRow], seed: int | None) -> list[ProgramState]:
    backend = calls[0].backend
    gathered = _GatheredRows(backend) if isinstance(backend, RowsBackend) else None
    states: list[ProgramState] = []
    for number, (call, (template, arguments)) in enumerate(zip(calls, rows, strict=True)):
        state = replace(call, backend=gathered or backend).open(seed=row_seed(seed, number))
        states.append(state)
        try:
            template.fill(state, arguments)
        except SglangLiteError as error:  # cancelled or timed out already: the state says so
            state.branch.session.end_body(error)
    if gathered is not None:
        gathered.send(rows)
    return states


class _RowProgram:
    """A row's program before and after it was sent; its ops are those of the template."""

    def __init__(self, sink: EventSink, seed: int | None) -> None:
        self.sink = sink
        self.given_seed = seed
        self.is_cancelled = False
        self.sent: Program | None = None

    def append(self, ops: Sequence[Op]) -> None:
        """Nothing: they go with the template."""

    def cancel(self, branches: Sequence[int] | None = None) -> None:
        """See `Program.cancel`."""
        self.is_cancelled = self.is_cancelled or branches is None
        if self.sent is not None:
            self.sent.cancel(branches)

    def close(self) -> None:
        """Nothing: rows are closed from the beginning."""


class _GatheredRows:
    """A backend for sessions whose programs are sent together, later."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._programs: list[_RowProgram] = []

    def open_program(self, sink: EventSink, *, seed: int | None = None) -> _RowProgram:
        """One more row."""
        self._programs.append(_RowProgram(sink, seed))
        return self._programs[-1]

    def send(self, rows: Sequence[TemplateRow]) -> None:
        """Give every template with its rows to the backend."""
        assert isinstance(self._backend, RowsBackend), "rows are gathered for backends that take them"
        by_template: dict[int, tuple[Template, list[tuple[_RowProgram, Mapping[str, str]]]]] = {}
        for program, (template, arguments) in zip(self._programs, rows, strict=True):
            if not program.is_cancelled:
                by_template.setdefault(id(template), (template, []))[1].append((program, arguments))
        for template, members in by_template.values():
            given = [TreeRow(arguments, program.sink, program.given_seed) for program, arguments in members]
            sent = self._backend.open_rows(template.tree, given)
            for (program, _), one in zip(members, sent, strict=True):
                program.sent = one
                if program.is_cancelled:
                    one.cancel()

    def flush_cache(self) -> bool:
        """Of the backend."""
        return self._backend.flush_cache()

    def get_server_info(self) -> dict[str, Any]:
        """Of the backend."""
        return self._backend.get_server_info()

    def shutdown(self) -> None:
        """Nothing: the backend is not this object's."""
