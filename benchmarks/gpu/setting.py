"""Where a check runs, how large it is, and what a section of it gives. Knows no kernel and no model."""

from __future__ import annotations

import signal
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, Literal

import torch

Size = Literal["full", "quick", "cpu"]


@dataclass(frozen=True)
class Setting:
    """One run.

    Attributes:
        size: `full`, `quick` (fewer shapes and repeats) or `cpu` (tiny shapes, kernels under Triton's interpreter).
        device: as torch names it.

    """

    size: Size
    device: str

    @property
    def is_gpu(self) -> bool:
        """Kernels run as machine code, and times mean something."""
        return self.device != "cpu"

    def wait(self) -> None:
        """Return when the device has done what was queued."""
        if self.is_gpu:
            torch.cuda.synchronize()

    def works(self) -> bool:
        """Whether the device still does what it is told: after an illegal address it does nothing more for this process."""
        try:
            self.wait()
        except RuntimeError:
            return False
        return True


class CheckError(Exception):
    """A check that does not hold. `figures`: what was measured until then."""

    def __init__(self, message: str, figures: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.figures = figures or {}


class _TooLongError(Exception):
    pass


@dataclass(frozen=True)
class Section:
    """A part that stands alone. `limit_s`: after so long it has failed. `is_optional`: its failure does not fail the run."""

    name: str
    run: Callable[[Setting], dict[str, Any]]
    limit_s: float
    is_optional: bool = False


@dataclass
class Outcome:
    """What a section gave. `error` None: it holds."""

    name: str
    seconds: float = 0.0
    figures: dict[str, Any] = field(default_factory=dict[str, Any])
    error: str | None = None
    is_optional: bool = False

    @property
    def fails(self) -> bool:
        """The run has failed by it."""
        return self.error is not None and not self.is_optional


def run_section(section: Section, setting: Setting) -> Outcome:
    """Run it under its time limit; nothing that it raises goes further, so the next one runs all the same."""
    outcome = Outcome(section.name, is_optional=section.is_optional)
    start = time.perf_counter()
    try:
        with _limited(section.limit_s):
            outcome.figures = section.run(setting)
            setting.wait()
    except _TooLongError:
        outcome.error = f"took longer than its {section.limit_s:.0f} s"
    except CheckError as error:
        outcome.error, outcome.figures = str(error), error.figures
    except Exception as error:  # noqa: BLE001 - a report of all sections is worth more than the first failure
        outcome.error = f"{type(error).__name__}: {error}\n{traceback.format_exc(limit=-4)}"
    outcome.seconds = time.perf_counter() - start
    return outcome


@contextmanager
def _limited(seconds: float) -> Iterator[None]:
    """Raise in the main thread after so long; a call into the device ends first."""

    def expire(_number: int, _frame: FrameType | None) -> None:
        raise _TooLongError

    before = signal.signal(signal.SIGALRM, expire)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def seconds_of(setting: Setting, work: Callable[[], object], repeats: int, together: int = 1) -> float:
    """The median time of `work`, in seconds on the device (on the CPU: of the clock), after one run to warm up.

    `together`: so many calls are queued at once and share their time, so that what the host does before a call does not count
    as long as the device has work.
    """
    work()
    setting.wait()
    times: list[float] = []
    for _ in range(repeats):
        if setting.is_gpu:
            first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            first.record()
            for _ in range(together):
                work()
            last.record()
            last.synchronize()
            times.append(first.elapsed_time(last) / 1e3 / together)
        else:
            start = time.perf_counter()
            work()
            times.append(time.perf_counter() - start)
    return sorted(times)[len(times) // 2]
