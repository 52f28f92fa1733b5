"""Constraints are compiled while earlier ops run."""

from __future__ import annotations

from sglang_lite.request_tree import ForkOp, GenOp, SamplingParams, TextOp
from tests.runtime.executor.test_program import Bench

PLAIN = SamplingParams(max_new_tokens=4)
DIGITS = SamplingParams(max_new_tokens=4, regex="[0-9]+")
WORD = SamplingParams(max_new_tokens=4, choices=("a", "b"))


def test_a_constraint_is_compiled_while_the_gen_before_it_runs() -> None:
    bench = Bench()
    bench.append(TextOp(1, 0, "a"), GenOp(2, 0, "x", PLAIN), GenOp(3, 0, "y", DIGITS))
    assert list(bench.port.requests) == ["r0"]
    assert bench.port.prepared == [DIGITS]
    bench.port.answer("r0", "b")
    assert bench.port.requests["r1"].sampling.regex == DIGITS.regex


def test_constraints_of_children_that_are_not_born_are_compiled_too() -> None:
    bench = Bench()
    bench.append(TextOp(1, 0, "a"), GenOp(2, 0, "x", PLAIN), ForkOp(3, 0, (1, 2)), GenOp(4, 1, "y", WORD))
    assert bench.port.prepared == [WORD]


def test_a_free_gen_has_nothing_to_compile() -> None:
    bench = Bench()
    bench.append(TextOp(1, 0, "a"), GenOp(2, 0, "x", PLAIN), GenOp(3, 0, "y", PLAIN))
    assert bench.port.prepared == []
