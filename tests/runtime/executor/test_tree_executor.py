from __future__ import annotations

from sglang_lite.errors import EngineStoppedError
from sglang_lite.request_tree import Event, GenOp, OpFailed, SamplingParams, TextOp
from sglang_lite.runtime.executor.tree_executor import TreeExecutor
from tests.runtime.executor.test_program import HandPort
from tests.support.toy_text import toy_text


def test_what_comes_for_a_program_that_is_over_is_dropped() -> None:
    executor = TreeExecutor(HandPort(), toy_text())
    events: list[Event] = []
    executor.open("p", events.append, seed=1)
    executor.close("p")
    executor.append("p", [TextOp(1, 0, "late")])
    executor.cancel("p", None)
    assert (executor.num_programs, events) == (0, [])


def test_the_end_of_the_engine_fails_every_open_op() -> None:
    executor = TreeExecutor(HandPort(), toy_text())
    events: dict[str, list[Event]] = {"p": [], "q": []}
    for name, sink in events.items():
        executor.open(name, sink.append, seed=1)
        executor.append(name, [TextOp(1, 0, "a"), GenOp(2, 0, "x", SamplingParams())])
    death = EngineStoppedError("gone")
    executor.fail_all(death)
    for sink in events.values():
        assert sink[-1] == OpFailed(2, death)
    assert executor.num_programs == 0
