"""Actions at their time, unless called off."""

from __future__ import annotations

import threading

from sglang_lite.lang.deadlines import DeadlineClock
from tests.lang.support import TIMEOUT


def test_actions_come_in_the_order_of_their_times() -> None:
    now = [0.0]
    clock, came, done = DeadlineClock(lambda: now[0]), list[str](), threading.Event()

    def late() -> None:
        came.append("late")
        done.set()

    with clock._changed:  # its thread looks when both are due
        clock.set(30, late)
        clock.set(10, lambda: came.append("early"))
        now[0] = 40.0
    assert done.wait(TIMEOUT)
    assert came == ["early", "late"]


def test_an_action_that_was_called_off_does_not_come_and_holds_up_nothing() -> None:
    now = [0.0]
    clock, came, done = DeadlineClock(lambda: now[0]), list[str](), threading.Event()
    hour = clock.set(3600, lambda: came.append("hour"))
    soon = clock.set(10, lambda: came.append("soon"))
    clock.call_off(soon)
    clock.call_off(hour)
    now[0] = 4000.0
    clock.set(0.0, done.set)
    assert done.wait(TIMEOUT)
    assert came == []


def test_the_thread_ends_with_the_last_deadline_and_comes_back() -> None:
    clock = DeadlineClock()
    for _ in range(2):
        others = set(threading.enumerate())  # the process's own clock may be at work for another test's program
        deadline = clock.set(3600, lambda: None)
        threads = [
            thread
            for thread in threading.enumerate()
            if thread.name == "sglang_lite-deadlines" and thread not in others
        ]
        assert threads
        assert all(thread.daemon for thread in threads)
        clock.call_off(deadline)
        for thread in threads:
            thread.join(TIMEOUT)
            assert not thread.is_alive()


def test_a_nearer_deadline_overtakes_the_one_that_is_waited_for() -> None:
    clock, done = DeadlineClock(), threading.Event()
    far = clock.set(3600, lambda: None)
    clock.set(0.0, done.set)
    assert done.wait(TIMEOUT)
    clock.call_off(far)
