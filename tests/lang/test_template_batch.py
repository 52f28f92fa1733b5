"""Rows of a pure program on their way: cancelled, timed out, and a backend that takes none."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import pytest

import sglang_lite as sgl
from sglang_lite.errors import CancelledError, EngineStoppedError
from sglang_lite.lang.backends.scripted import ScriptedBackend
from sglang_lite.request_tree import OpFailed, Program, RequestTree, TreeRow


@sgl.function(pure=True)
def ask(s: sgl.ProgramState, q: str) -> None:
    s += q + sgl.gen("x") + " " + sgl.gen("y")


class Silent(ScriptedBackend):
    """Takes rows and never answers; `cancelled` has the rows that were given up."""

    def __init__(self) -> None:
        super().__init__()
        self.cancelled: list[int] = []

    def open_rows(self, tree: RequestTree, rows: Sequence[TreeRow]) -> list[Program]:
        return [self._program(number) for number in range(len(rows))]

    def _program(self, number: int) -> Program:
        cancelled = self.cancelled

        class One:
            def append(self, ops: Any) -> None:
                raise AssertionError("the tree is whole")

            def cancel(self, branches: Any = None) -> None:
                cancelled.append(number)

            def close(self) -> None:
                return None

        return One()


def test_rows_that_take_too_long_are_cancelled_one_by_one() -> None:
    backend = Silent()
    states = list(ask.run_batch([{"q": "a"}, {"q": "b"}], backend=backend, options=sgl.RunOptions(timeout=0.05)))
    assert sorted(backend.cancelled) == [0, 1]
    assert all(state.error() is not None for state in states)


def test_ops_that_failed_are_not_cancelled_as_well() -> None:
    class Fails(Silent):
        def open_rows(self, tree: RequestTree, rows: Sequence[TreeRow]) -> list[Program]:
            for row in rows:
                for op in tree.ops:
                    row.sink(OpFailed(op, CancelledError("enough")))
            return super().open_rows(tree, rows)

    backend = Fails()
    states = list(ask.run_batch([{"q": "a"}, {"q": "b"}], backend=backend))
    assert [str(state.error()) for state in states] == ["enough", "enough"]
    assert backend.cancelled == []


def test_a_backend_that_takes_no_rows_any_more_says_so() -> None:
    class Gone(Silent):
        def open_rows(self, tree: RequestTree, rows: Sequence[TreeRow]) -> list[Program]:
            raise EngineStoppedError("gone")

    with pytest.raises(EngineStoppedError, match="gone"):
        ask.run_batch([{"q": "a"}], backend=Gone())


def test_no_thread_waits_for_a_row() -> None:
    before = threading.active_count()
    most = 0

    class Watching(ScriptedBackend):
        def open_rows(self, tree: RequestTree, rows: Sequence[TreeRow]) -> list[Program]:
            nonlocal most
            programs: list[Program] = []
            for row in rows:
                program = self.open_program(row.sink)
                program.append(tree.bound(row.arguments))
                program.close()
                programs.append(program)
            most = threading.active_count()
            return programs

    states = list(ask.run_batch([{"q": str(i)} for i in range(100)], backend=Watching()))
    assert len(states) == 100
    assert most <= before + 2
