"""Results of ops and the signal that wakes their readers."""

from __future__ import annotations

from typing import Any

import pytest

from sglang_lite.errors import ExecutionError
from sglang_lite.lang.futures import OpFuture, Signal
from sglang_lite.request_tree import OpDone, TextOp
from tests.lang.support import Background


def make() -> tuple[OpFuture, Signal, list[str]]:
    calls: list[str] = []
    signal = Signal(lambda: calls.append("before wait"), lambda: calls.append("interrupted"))
    return OpFuture(TextOp(3, 0, "t"), signal), signal, calls


def end(signal: Signal, future: OpFuture, result: Any) -> None:
    with signal.changed:
        if isinstance(result, Exception):
            future.error = result
        else:
            future.finish(result)
        signal.notify()


def test_a_reader_waits_for_the_result_and_sends_first_what_is_kept_back() -> None:
    future, signal, calls = make()
    reader = Background(future.result)
    done = OpDone(3, "text", "value")
    end(signal, future, done)
    assert reader.result() is done
    assert calls in ([], ["before wait"]), "it depends on who was first"
    assert future.text_so_far == "text"


def test_a_result_that_is_there_is_not_waited_for() -> None:
    future, signal, calls = make()
    end(signal, future, OpDone(3, "text"))
    assert future.result().text == "text"
    assert calls == []


def test_an_error_is_raised_at_every_read() -> None:
    future, signal, _ = make()
    future.pieces.extend(["half ", "way"])
    end(signal, future, ExecutionError("planned"))
    future.wait()
    for _ in range(2):
        with pytest.raises(ExecutionError, match="planned"):
            future.result()
    assert (future.has_ended, future.text_so_far) == (True, "half way")


def test_what_a_choice_method_reported_is_added_to_the_meta() -> None:
    future, signal, _ = make()
    future.decision_meta = {"by": "method", "id": "method's"}
    done = OpDone(3, meta={"id": "backend's", "n": 1})
    end(signal, future, done)
    assert future.result().meta == {"id": "method's", "n": 1, "by": "method"}
    assert done.meta == {"id": "backend's", "n": 1}


def test_listeners_hear_every_change_until_they_stop() -> None:
    _, signal, _ = make()
    heard: list[int] = []
    stop = signal.listen(lambda: heard.append(1))
    with signal.changed:
        signal.notify()
        signal.notify()
    stop()
    with signal.changed:
        signal.notify()
    assert heard == [1, 1]


def test_many_readers_of_one_signal_wake_for_their_own_condition() -> None:
    _, signal, calls = make()
    state = [0]
    readers = [Background(lambda limit=limit: signal.wait_for(lambda: state[0] >= limit)) for limit in (1, 2, 3)]
    for _ in range(3):
        with signal.changed:
            state[0] += 1
            signal.notify()
    for reader in readers:
        reader.result()
    assert len(calls) <= 3, "each wait sends what is kept back at most once"
