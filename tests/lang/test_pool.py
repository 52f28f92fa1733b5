"""Threads for jobs: few, but enough."""

from __future__ import annotations

import threading
from collections.abc import Callable

from sglang_lite.lang.pool import Lane, ThreadPool
from tests.lang.support import TIMEOUT


class Jobs:
    """Jobs on a pool of its own that note what runs, on how many threads."""

    def __init__(self, limit: int) -> None:
        self.pool = ThreadPool(limit)
        self.changed = threading.Condition()
        self.threads: set[int] = set()
        self.started: list[object] = []
        self.num_done = 0

    def job(self, name: object, work: Callable[[], None] = lambda: None) -> Callable[[], None]:
        def run() -> None:
            with self.changed:
                self.threads.add(threading.get_ident())
                self.started.append(name)
                self.changed.notify_all()
            work()
            with self.changed:
                self.num_done += 1
                self.changed.notify_all()

        return run

    def wait(self, is_true: Callable[[], bool]) -> None:
        with self.changed:
            assert self.changed.wait_for(is_true, TIMEOUT), (self.started, self.num_done)


def test_jobs_that_do_not_wait_share_one_thread_and_keep_their_order() -> None:
    jobs, lane, gate = Jobs(8), Lane(8), threading.Event()
    jobs.pool.submit(lane, jobs.job("first", lambda: gate.wait(TIMEOUT) and None))
    for number in range(50):
        jobs.pool.submit(lane, jobs.job(number))
    gate.set()
    jobs.wait(lambda: jobs.num_done == 51)
    assert jobs.started == ["first", *range(50)]
    assert len(jobs.threads) == 1


def test_a_waiting_job_makes_room_up_to_the_limit() -> None:
    jobs, lane, gate = Jobs(3), Lane(100), threading.Event()

    def work() -> None:
        with jobs.pool.waiting():
            gate.wait(TIMEOUT)

    for number in range(10):
        jobs.pool.submit(lane, jobs.job(number, work))
    jobs.wait(lambda: len(jobs.started) == 3)
    gate.set()
    jobs.wait(lambda: jobs.num_done == 10)
    assert len(jobs.threads) <= 3


def test_a_lane_has_a_limit_of_its_own() -> None:
    jobs, narrow, wide, gate = Jobs(8), Lane(1), Lane(8), threading.Event()

    def work() -> None:
        with jobs.pool.waiting():
            gate.wait(TIMEOUT)

    jobs.pool.submit(narrow, jobs.job("narrow 1", work))
    jobs.pool.submit(narrow, jobs.job("narrow 2", work))
    jobs.pool.submit(wide, jobs.job("wide", work))
    jobs.wait(lambda: "wide" in jobs.started)
    assert "narrow 2" not in jobs.started
    gate.set()
    jobs.wait(lambda: jobs.num_done == 3)


def test_the_newest_lane_goes_first() -> None:
    jobs, old, new, gate = Jobs(1), Lane(8), Lane(8), threading.Event()
    jobs.pool.submit(old, jobs.job("old 1", lambda: gate.wait(TIMEOUT) and None))
    jobs.wait(lambda: jobs.started == ["old 1"])
    jobs.pool.submit(old, jobs.job("old 2"))
    jobs.pool.submit(new, jobs.job("new 1"))
    jobs.pool.submit(new, jobs.job("new 2"))
    gate.set()
    jobs.wait(lambda: jobs.num_done == 4)
    assert jobs.started == ["old 1", "new 1", "new 2", "old 2"]


def test_a_job_that_waits_for_jobs_of_its_own_does_not_count() -> None:
    """A limit of one thread, and each job waits for one that it submitted."""
    jobs, outer, inner = Jobs(1), Lane(8), Lane(8)

    def work() -> None:
        done = threading.Event()
        jobs.pool.submit(inner, jobs.job("inner", done.set))
        with jobs.pool.waiting(for_own_jobs=True):
            assert done.wait(TIMEOUT)

    for _ in range(3):
        jobs.pool.submit(outer, jobs.job("outer", work))
    jobs.wait(lambda: jobs.num_done == 6)


def test_a_nudge_adds_a_thread_though_nobody_waits() -> None:
    jobs, lane = Jobs(2), Lane(8)
    meeting = threading.Barrier(2, timeout=TIMEOUT)
    for _ in range(2):
        jobs.pool.submit(lane, jobs.job("tool", lambda: meeting.wait() and None))
    jobs.wait(lambda: len(jobs.started) == 1)
    jobs.pool.nudge()
    jobs.wait(lambda: jobs.num_done == 2)


def test_dropped_jobs_never_start() -> None:
    jobs, lane, gate = Jobs(1), Lane(8), threading.Event()
    jobs.pool.submit(lane, jobs.job("first", lambda: gate.wait(TIMEOUT) and None))
    jobs.wait(lambda: len(jobs.started) == 1)
    jobs.pool.submit(lane, jobs.job("never"))
    jobs.pool.drop(lane)
    gate.set()
    jobs.pool.submit(lane, jobs.job("last"))
    jobs.wait(lambda: jobs.num_done == 2)
    assert jobs.started == ["first", "last"]


def test_waiting_elsewhere_changes_nothing() -> None:
    pool = ThreadPool(1)
    with pool.waiting(), pool.waiting(for_own_jobs=True):
        pass
    done = threading.Event()
    pool.submit(Lane(1), done.set)
    assert done.wait(TIMEOUT)
