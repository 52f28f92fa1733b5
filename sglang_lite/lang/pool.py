"""Threads for program bodies: as few as run Python at a time, daemons all; it knows nothing of programs.

A thread that waits for a value makes room for another one as long as jobs wait; one that waits for jobs of its own
(a nested batch) does not count towards the limit, so nesting cannot block itself.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Generator
from contextlib import contextmanager

MAX_THREADS = 128


class Lane:
    """The jobs of one owner, at most `limit` of them under way at a time. Filled and emptied by the pool."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.jobs: deque[Callable[[], None]] = deque()
        self.running = 0

    @property
    def is_ready(self) -> bool:
        """True when a job waits that may start now."""
        return bool(self.jobs) and self.running < self.limit


class _Here(threading.local):
    """What the running thread is to the pool."""

    is_worker = False


class ThreadPool:
    """Runs jobs lane by lane, the newest lane first: the jobs of a nested batch are what its owner waits for."""

    def __init__(self, limit: int = MAX_THREADS) -> None:
        self.limit = limit
        self._lock = threading.Lock()
        self._lanes: list[Lane] = []
        self._threads = 0
        self._waiting = 0
        self._uncounted = 0
        self._here = _Here()

    def submit(self, lane: Lane, job: Callable[[], None]) -> None:
        """Run `job`, which must not raise, when its turn in `lane` comes."""
        with self._lock:
            if lane not in self._lanes:
                self._lanes.append(lane)
            lane.jobs.append(job)
            self._grow()

    def drop(self, lane: Lane) -> None:
        """Forget the jobs of `lane` that have not started."""
        with self._lock:
            lane.jobs.clear()

    def nudge(self) -> None:
        """Add a thread if jobs wait: its caller saw that those at work do not get on (they may sit in a tool)."""
        with self._lock:
            self._grow(even_if_busy=True)

    @contextmanager
    def waiting(self, for_own_jobs: bool = False) -> Generator[None]:
        """Around a wait: on a thread of the pool, another one may take over meanwhile."""
        if not self._here.is_worker:
            yield
            return
        with self._lock:
            self._waiting += 1
            self._uncounted += for_own_jobs
            self._grow()
        try:
            yield
        finally:
            with self._lock:
                self._waiting -= 1
                self._uncounted -= for_own_jobs

    def _grow(self, even_if_busy: bool = False) -> None:
        at_work = self._threads - self._waiting
        may_start = self._threads - self._uncounted < self.limit
        if may_start and (even_if_busy or at_work <= 0) and any(lane.is_ready for lane in self._lanes):
            thread = threading.Thread(target=self._work, name="sglang_lite-body", daemon=True)
            self._threads += 1
            try:
                thread.start()
            except BaseException:
                if thread.ident is None:
                    self._threads -= 1
                raise

    def _take(self) -> tuple[Lane, Callable[[], None]] | None:
        self._lanes = [lane for lane in self._lanes if lane.jobs]
        for lane in reversed(self._lanes):
            if lane.is_ready:
                lane.running += 1
                return lane, lane.jobs.popleft()
        return None

    def _work(self) -> None:
        self._here.is_worker = True
        while True:
            with self._lock:
                taken = self._take()
                if taken is None:
                    self._threads -= 1
                    return
            lane, job = taken
            job()
            with self._lock:
                lane.running -= 1


shared_pool = ThreadPool()
"""The pool of the process: `run_batch` bodies and the decisions of choice methods that a program brings."""
