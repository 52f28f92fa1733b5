from __future__ import annotations

from sglang_lite.request_tree import Event, ForkOp, GenOp, OpFailed, SamplingParams, TextOp
from sglang_lite.runtime.executor.gate import ProgramGate, tokens_needed
from sglang_lite.runtime.executor.tree_executor import TreeExecutor
from tests.runtime.executor.test_program import HandPort
from tests.support.toy_text import toy_text

PARAMS = SamplingParams(max_new_tokens=10)
TWO = [TextOp(0, 0, "x" * 80), GenOp(1, 0, "a", PARAMS), GenOp(2, 0, "b", PARAMS)]
ONE = TWO[:2]


def other(letter: str) -> list[TextOp | GenOp]:
    return [TextOp(0, 0, letter * 80), *TWO[1:]]


def test_what_branches_share_is_counted_once() -> None:
    assert tokens_needed(TWO) == 20 + 10 + 10
    forked = [TextOp(0, 0, "x" * 80), ForkOp(1, 0, (1, 2)), GenOp(2, 1, "a", PARAMS), GenOp(3, 2, "a", PARAMS)]
    assert tokens_needed(forked) == 20 + 10 + 10 + 2 * 16
    assert tokens_needed([GenOp(0, 0, "a", PARAMS.with_(n=3))]) == 30


def test_programs_begin_in_order_as_far_as_the_pool_goes() -> None:
    gate = ProgramGate(100)
    assert [gate.may_begin(name, other(name)) for name in "abc"] == [True, True, False]
    assert gate.may_begin("d", ONE)  # it has nothing to come back to
    assert (gate.num_held, gate.next_ready()) == (1, None)
    gate.rests("a")
    assert (gate.next_ready(), gate.next_ready(), gate.num_held) == ("c", None, 0)


def test_a_program_larger_than_the_pool_begins_alone() -> None:
    gate = ProgramGate(10)
    assert gate.may_begin("a", other("a"))
    assert not gate.may_begin("b", other("b"))
    gate.rests("a")
    assert gate.next_ready() == "b"


def test_a_small_program_does_not_pass_one_that_waits() -> None:
    gate = ProgramGate(100)
    large = [TextOp(0, 0, "y" * 400), *TWO[1:]]
    assert gate.may_begin("a", other("a"))
    assert not gate.may_begin("large", large)
    assert not gate.may_begin("small", other("b"))
    gate.forget("large")
    assert gate.next_ready() == "small"


def test_what_programs_begin_alike_counts_once() -> None:
    gate = ProgramGate(85)
    assert [gate.may_begin(name, TWO) for name in "abcd"] == [True, True, True, False]


def test_without_a_pool_nobody_waits() -> None:
    gate = ProgramGate(None)
    assert all(gate.may_begin(str(number), TWO) for number in range(100))


class Held:
    """An executor with room for one of two programs."""

    def __init__(self) -> None:
        self.port = HandPort()
        self.executor = TreeExecutor(self.port, toy_text(), pool_tokens=50)
        self.events: dict[str, list[Event]] = {"p": [], "q": []}
        for letter, (name, sink) in zip("xy", self.events.items(), strict=True):
            self.executor.open(name, sink.append, seed=1)
            self.executor.append(name, other(letter))


def test_a_held_program_begins_when_the_one_before_it_is_over_or_rests() -> None:
    held = Held()
    assert (list(held.port.requests), held.executor.num_held, held.events["q"]) == (["r0"], 1, [])
    held.executor.append("q", [TextOp(3, 0, "more")])
    held.executor.close("q")
    held.executor.sweep()
    assert held.executor.num_programs == 2
    held.port.answer("r0", "a")
    held.executor.sweep()
    assert held.executor.num_held == 1  # it has another gen
    held.port.answer("r1", "b")
    held.executor.sweep()
    assert (held.executor.num_held, list(held.port.requests)) == (0, ["r0", "r1", "r2"])
    held.port.answer("r2", "a")
    held.port.answer("r3", "b")
    held.executor.sweep()
    assert held.executor.num_programs == 1
    assert len(held.events["q"]) == 4


def test_a_held_program_can_be_cancelled_and_ends_with_the_engine() -> None:
    held = Held()
    held.executor.cancel("q", None)
    assert {type(event) for event in held.events["q"][1:]} == {OpFailed}
    assert held.executor.num_held == 0
    again = Held()
    death = ValueError("gone")
    again.executor.fail_all(death)  # type: ignore[arg-type]
    assert [event.op for event in again.events["q"] if isinstance(event, OpFailed)] == [0, 1, 2]
