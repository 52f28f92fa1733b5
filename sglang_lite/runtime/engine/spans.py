"""Times methods from outside while a recording runs; what is not recorded costs nothing. Knows no scheduler and no model."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol


class Span(NamedTuple):
    """One call. Times by the clock of its `Spans`, in seconds; `thread`: the identity of the one that made it."""

    part: str
    began_s: float
    ended_s: float
    thread: int


class RangeMarker(Protocol):
    """What is told of the begin and the end of each call, such as NVTX."""

    def push(self, name: str) -> None:
        """A call begins."""
        ...

    def pop(self) -> None:
        """The call that began last ends."""
        ...


class DeviceTimer(Protocol):
    """Times what a call queued on a device, which runs it later."""

    def stamp(self) -> Any:
        """A mark in the device's queue."""
        ...

    def seconds_between(self, first: Any, second: Any) -> float:
        """Of two marks that the device has passed."""
        ...

    def wait(self) -> None:
        """Return when the device has passed all marks."""
        ...


class DeviceSpan(NamedTuple):
    """What one call queued: where it begins and ends on the device, in seconds since the first one began."""

    part: str
    began_s: float
    ended_s: float


class Spans:
    """Wraps methods of objects and classes, and keeps when each call began and ended.

    Attributes:
        spans: all calls that have ended, inner ones first.
        seconds: by part, without what was called from there and is a part itself.

    """

    def __init__(
        self,
        clock: Callable[[], float] = time.perf_counter,
        marker: RangeMarker | None = None,
        device: DeviceTimer | None = None,
    ) -> None:
        """Begin with nothing wrapped. `marker`, `device`: told of calls, if given."""
        self.spans: list[Span] = []
        self.seconds: dict[str, float] = defaultdict(float)
        self._clock = clock
        self._marker = marker
        self._device = device
        self._stamps: list[tuple[str, Any, Any]] = []
        self._stacks: dict[int, list[list[Any]]] = defaultdict(list)
        self._undo: list[Callable[[], None]] = []

    def wrap(
        self,
        owner: Any,
        name: str,
        part: str,
        *,
        on_device: bool = False,
        then: Callable[[Any], None] | None = None,
    ) -> None:
        """Time a method of an object or of a class; one that does not exist is left out.

        `on_device`: the device's time of what the call queues is kept, too. `then` gets what the call returned.
        """
        if (function := getattr(owner, name, None)) is None:
            return
        is_own = name in vars(owner)

        def timed(*args: Any, **kwargs: Any) -> Any:
            self.enter(part)
            first = self._device.stamp() if on_device and self._device is not None else None
            try:
                result = function(*args, **kwargs)
            finally:
                if first is not None and self._device is not None:
                    self._stamps.append((part, first, self._device.stamp()))
                self.leave()
            if then is not None:
                then(result)
            return result

        setattr(owner, name, timed)
        self._undo.append((lambda: setattr(owner, name, function)) if is_own else (lambda: delattr(owner, name)))

    def on_end(self, undo: Callable[[], None]) -> None:
        """Call `undo` at `unwrap`."""
        self._undo.append(undo)

    def enter(self, part: str) -> None:
        """A call of this thread begins."""
        if self._marker is not None:
            self._marker.push(part)
        now = self._clock()
        self._stacks[threading.get_ident()].append([part, now, 0.0])

    def leave(self) -> None:
        """The call of this thread that began last ends."""
        now, thread = self._clock(), threading.get_ident()
        stack = self._stacks[thread]
        if not stack:  # it began before the recording
            return
        part, began, inside = stack.pop()
        self.spans.append(Span(part, began, now, thread))
        self.seconds[part] += now - began - inside
        if stack:
            stack[-1][2] += now - began
        if self._marker is not None:
            self._marker.pop()

    def take(self) -> dict[str, float]:
        """`seconds` since the last call; they and the calls are forgotten."""
        taken, self.seconds = dict(self.seconds), defaultdict(float)
        self.spans.clear()
        return taken

    def unwrap(self) -> None:
        """Everything as it was before the first `wrap`."""
        for undo in reversed(self._undo):
            undo()
        self._undo.clear()

    def device_spans(self) -> list[DeviceSpan]:
        """What the device did for the calls that were wrapped with `on_device`; waits for it."""
        if self._device is None or not self._stamps:
            return []
        self._device.wait()
        origin = self._stamps[0][1]
        between = self._device.seconds_between
        return [DeviceSpan(part, between(origin, first), between(origin, last)) for part, first, last in self._stamps]


def idle_share(spans: list[DeviceSpan]) -> float | None:
    """The share of the time from the first begin to the last end in which none of `spans` runs; None without any."""
    if not spans:
        return None
    ordered = sorted(spans, key=lambda span: span.began_s)
    busy, end = 0.0, ordered[0].began_s
    for span in ordered:
        busy += max(span.ended_s - max(span.began_s, end), 0.0)
        end = max(end, span.ended_s)
    whole = end - ordered[0].began_s
    return 1 - busy / whole if whole > 0 else 0.0


def shares(seconds: Mapping[str, float], groups: Mapping[str, str]) -> dict[str, float]:
    """Seconds by part as shares of all of it by group; a part without a group is a group of its own."""
    total = sum(seconds.values()) or 1.0
    found: dict[str, float] = defaultdict(float)
    for part, value in seconds.items():
        found[groups.get(part, part)] += value / total
    return dict(found)
