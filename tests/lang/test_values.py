"""What a name stands for."""

from __future__ import annotations

from typing import Any

import pytest

from sglang_lite.errors import ExecutionError
from sglang_lite.lang.futures import OpFuture, Signal
from sglang_lite.lang.values import GatherValue, OpValue, PlainValue, ScopeValue
from sglang_lite.request_tree import GenOp, OpDone, SamplingParams

SIGNAL = Signal(lambda: None, lambda: None)


def future(number: int, value: Any = None, error: Exception | None = None, **meta: Any) -> OpFuture:
    made = OpFuture(GenOp(number, 0, "x", SamplingParams()), SIGNAL)
    if error is None:
        made.finish(OpDone(number, str(value), value, meta=meta))
    else:
        made.error = error
    return made


def test_a_plain_value_is_itself_and_needs_nothing() -> None:
    thing = object()
    value = PlainValue(thing)
    assert value.get() is thing
    assert (value.meta(), value.ops()) == (None, [])


def test_an_ops_value_is_its_result_and_copies_cannot_change_it() -> None:
    made = future(0, ["a", "b"], tokens=2)
    value = OpValue(made)
    value.get().append("c")
    value.meta()["tokens"] = 9
    assert (value.get(), value.meta(), value.ops()) == (["a", "b"], {"tokens": 2}, [made])


def test_a_scope_is_the_text_of_its_ops() -> None:
    parts = [future(0, "a"), future(1, "b")]
    value = ScopeValue(parts)
    assert (value.get(), value.meta(), value.ops()) == ("ab", None, parts)


def test_a_gathered_value_is_a_list_and_nests() -> None:
    first, second = future(0, "a", n=1), future(1, "b", n=2)
    value = GatherValue([OpValue(first), GatherValue([OpValue(second), PlainValue(3)])])
    assert value.get() == ["a", ["b", 3]]
    assert value.meta() == [{"n": 1}, [{"n": 2}, None]]
    assert value.ops() == [first, second]


@pytest.mark.parametrize("kind", [OpValue, lambda f: ScopeValue([f]), lambda f: GatherValue([OpValue(f)])])
def test_a_failed_op_fails_every_value_that_needs_it(kind: Any) -> None:
    value = kind(future(0, error=ExecutionError("planned")))
    with pytest.raises(ExecutionError, match="planned"):
        value.get()
