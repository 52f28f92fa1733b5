from __future__ import annotations

from collections.abc import Callable

import pytest

from sglang_lite.runtime.execution.native_threads import ThreadChoice

pytestmark = pytest.mark.native


def drive(choice: ThreadChoice, steps: int, seconds: Callable[[int], float], tokens: int = 1) -> list[int]:
    """Run steps that take `seconds(threads)`; which numbers of threads they ran on."""
    used: list[int] = []
    for _ in range(steps):
        used.append(choice.choose(tokens))
        choice.report(tokens, used[-1], seconds(used[-1]))
    return used


def test_where_threads_help_nearly_all_steps_have_them() -> None:
    used = drive(ThreadChoice(2), 1000, lambda threads: 1 / threads)
    assert used[0] == 2
    assert used.count(1) < 25


def test_a_busy_machine_is_noticed_and_so_is_its_end() -> None:
    choice = ThreadChoice(2)
    drive(choice, 100, lambda threads: 1 / threads)
    busy = drive(choice, 400, lambda threads: 1.0 if threads == 1 else 3.0)
    assert choice.best == 1
    assert busy.count(1) > 300
    drive(choice, 400, lambda threads: 1 / threads)
    assert choice.best == 2


@pytest.mark.parametrize("fastest", [1, 4, 8])
def test_the_fastest_of_few_many_and_all_is_found(fastest: int) -> None:
    choice = ThreadChoice(8)
    drive(choice, 400, lambda threads: 1.0 if threads == fastest else 1.5)
    assert choice.best == fastest


def test_steps_of_another_size_do_not_mislead() -> None:
    choice = ThreadChoice(2)
    drive(choice, 100, lambda threads: 1 / threads)
    drive(choice, 100, lambda threads: 16 / threads, tokens=16)
    assert choice.best == 2


def test_large_steps_always_have_all_threads_and_one_thread_is_always_one() -> None:
    assert set(drive(ThreadChoice(2), 100, lambda threads: float(threads), tokens=512)) == {2}
    assert set(drive(ThreadChoice(1), 100, lambda threads: 1.0)) == {1}
