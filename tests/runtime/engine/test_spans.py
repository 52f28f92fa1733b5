"""Times of wrapped calls: each without its inner ones, gaps of a device, and everything as it was afterwards."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from sglang_lite.runtime.engine.spans import DeviceSpan, Spans, idle_share, shares


class Clock:
    """A second passes with every look."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


class Worker:
    """An outer call of two inner ones."""

    def outer(self) -> int:
        return self.inner() + self.inner()

    def inner(self) -> int:
        return 21

    def failing(self) -> None:
        raise KeyError("x")


class Marker:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def push(self, name: str) -> None:
        self.told.append(f"+{name}")

    def pop(self) -> None:
        self.told.append("-")


class Timer:
    """A device on which a mark comes every half second."""

    def __init__(self) -> None:
        self.count = 0
        self.has_waited = False

    def stamp(self) -> int:
        self.count += 1
        return self.count

    def seconds_between(self, first: Any, second: Any) -> float:
        assert self.has_waited, "marks are read before the device has passed them"
        return (second - first) / 2

    def wait(self) -> None:
        self.has_waited = True


def test_a_part_is_without_the_parts_it_calls() -> None:
    """Looks at the clock: outer 1, inner 2 to 3, inner 4 to 5, outer ends at 6."""
    worker, spans = Worker(), Spans(Clock())
    spans.wrap(worker, "outer", "out")
    spans.wrap(worker, "inner", "in")
    assert worker.outer() == 42
    assert spans.seconds == {"in": 2.0, "out": 3.0}
    assert [(span.part, span.began_s, span.ended_s) for span in spans.spans] == [
        ("in", 2.0, 3.0),
        ("in", 4.0, 5.0),
        ("out", 1.0, 6.0),
    ]


def test_what_is_taken_is_forgotten() -> None:
    worker, spans = Worker(), Spans(Clock())
    spans.wrap(worker, "inner", "in")
    worker.inner()
    assert (spans.take(), spans.take(), spans.spans) == ({"in": 1.0}, {}, [])
    worker.inner()
    assert spans.take() == {"in": 1.0}


def test_everything_is_as_it_was_afterwards() -> None:
    worker, spans = Worker(), Spans()
    spans.wrap(worker, "outer", "out")
    spans.wrap(Worker, "inner", "in")
    spans.wrap(worker, "no_such_method", "nothing")
    spans.on_end(lambda: worker.__dict__.update(ended=True))
    spans.unwrap()
    assert vars(worker) == {"ended": True}
    assert Worker.inner.__qualname__ == "Worker.inner"
    assert worker.outer() == 42
    assert not spans.spans


def test_a_call_that_raises_ends_its_span() -> None:
    worker, marker = Worker(), Marker()
    spans = Spans(Clock(), marker)
    spans.wrap(worker, "failing", "bad")
    with pytest.raises(KeyError):
        worker.failing()
    worker.inner()
    assert (spans.seconds, marker.told) == ({"bad": 1.0}, ["+bad", "-"])


def test_threads_have_calls_of_their_own() -> None:
    """A call of another thread is not inside the one that happens to run."""
    worker, spans = Worker(), Spans(Clock())
    spans.wrap(worker, "inner", "in")
    spans.enter("waiting")
    thread = threading.Thread(target=worker.inner)
    thread.start()
    thread.join()
    spans.leave()
    assert spans.seconds == {"in": 1.0, "waiting": 3.0}
    assert len({span.thread for span in spans.spans}) == 2
    spans.leave()  # of a call that began before the recording
    assert len(spans.spans) == 2


def test_the_result_can_be_wrapped_and_the_device_timed() -> None:
    worker, timer, seen = Worker(), Timer(), []
    spans = Spans(Clock(), device=timer)
    spans.wrap(worker, "outer", "out", on_device=True, then=seen.append)
    spans.wrap(worker, "inner", "in")
    worker.outer()
    worker.outer()
    assert seen == [42, 42]
    assert spans.device_spans() == [DeviceSpan("out", 0.0, 0.5), DeviceSpan("out", 1.0, 1.5)]
    assert Spans().device_spans() == []


def test_a_device_stands_still_between_its_spans() -> None:
    spans = [
        DeviceSpan("a", 0.0, 4.0),
        DeviceSpan("b", 1.0, 2.0),
        DeviceSpan("c", 6.0, 8.0),
        DeviceSpan("d", 7.0, 10.0),
    ]
    assert idle_share(spans) == pytest.approx(0.2)
    assert idle_share([]) is None
    assert idle_share([DeviceSpan("a", 1.0, 1.0)]) == 0.0


def test_shares_are_summed_by_group() -> None:
    assert shares({"a": 1.0, "b": 2.0, "c": 1.0}, {"a": "x", "b": "x"}) == {"x": 0.75, "c": 0.25}
    assert shares({}, {}) == {}
