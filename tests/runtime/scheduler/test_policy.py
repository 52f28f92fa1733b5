from __future__ import annotations

from dataclasses import dataclass

import pytest

from sglang_lite.errors import RequestError
from sglang_lite.runtime.scheduler.messages import AddReq
from sglang_lite.runtime.scheduler.policy import choose_next, order_waiting
from tests.support.scheduler_harness import Harness, config, greedy


@dataclass
class Waiter:
    name: str
    order: tuple[int, bool, int]
    matched: int = 0
    deadline: int = 1000


WAITERS = [
    Waiter("old", (1, True, 1), 0),
    Waiter("new", (2, True, 2), 30),
    Waiter("going on", (2, False, 3), 9),
    Waiter("hot", (3, True, 4), 40),
    Waiter("equal", (3, True, 5), 40),
]


def names(policy: str, num_admitted: int = 0) -> list[str]:
    return [w.name for w in order_waiting(policy, WAITERS[::-1], num_admitted, lambda w: w.matched)]  # type: ignore[arg-type]


def test_fcfs_goes_by_step_of_arrival_and_continuing_requests_go_first_within_it() -> None:
    assert names("fcfs") == ["old", "going on", "new", "hot", "equal"]


def test_lpm_goes_by_cached_prefix_ties_by_arrival_continuing_requests_first() -> None:
    assert names("lpm") == ["going on", "hot", "equal", "new", "old"]


def test_lpm_puts_aged_requests_first() -> None:
    assert names("lpm", 1000) == ["old", "going on", "new", "hot", "equal"]


def test_an_unknown_policy_is_refused_with_the_known_ones() -> None:
    with pytest.raises(RequestError, match=r"'lof'.*\['fcfs', 'lpm'\]"):
        names("lof")


def test_the_order_of_choice() -> None:
    """Completed prefills join the running set first, then a new prefill goes before decode."""
    choice = choose_next("prefill-first", ["d0"], ["p1"], lambda running: ["p2"])
    assert (choice.prefill, choice.decode, choice.running) == (("p2",), (), ("d0", "p1"))
    choice = choose_next("prefill-first", ["d0"], ["p1"], lambda running: [])
    assert (choice.prefill, choice.decode, choice.running) == ((), ("d0", "p1"), ("d0", "p1"))
    choice = choose_next("prefill-first", [], [], lambda running: [])
    assert (choice.prefill, choice.decode, choice.running) == ((), (), ())


@pytest.mark.parametrize("batching", ["mixed", "decode-first"])
def test_the_other_modes_decode_beside_a_prefill(batching: str) -> None:
    choice = choose_next(batching, ["d0"], ["p1"], lambda running: ["p2"])  # type: ignore[arg-type]
    assert (choice.prefill, choice.decode, choice.running) == (("p2",), ("d0", "p1"), ("d0", "p1"))


def test_the_prefill_sees_the_updated_running_set() -> None:
    seen: list[tuple[str, ...]] = []
    choose_next("prefill-first", ["d0"], ["p1"], lambda running: seen.append(tuple(running)) or [])
    assert seen == [("d0", "p1")]


@pytest.mark.parametrize(
    ("batching", "rids"),
    [
        ("prefill-first", [["d0"], ["p1"], ["p2"], ["d0", "p1", "p2"]]),
        ("mixed", [["d0"], ["p1", "d0"], ["p2", "d0", "p1"], ["d0", "p1", "p2"]]),
        ("decode-first", [["d0"], ["p1", "d0"], ["p2", "d0", "p1"], ["d0", "p1", "p2"]]),
    ],
)
def test_the_scheduler_follows_the_order_of_choice(batching: str, rids: list[list[str]]) -> None:
    harness = Harness(config(batching=batching))
    harness.step(AddReq("d0", (2, 3), greedy()))
    harness.step(AddReq("p1", (4, 5), greedy()))
    harness.step(AddReq("p2", (6, 7), greedy()))
    harness.step()
    assert [[row.rid for row in plan.rows] for plan in harness.plans] == rids


def test_a_cold_request_is_overtaken_only_so_often() -> None:
    """With a warm one arriving in every step, a cold one runs after `ageing_slack` others."""
    slack = 5
    harness = Harness(config(max_running_requests=1, ageing_slack=slack), page_size=1)
    hot = (2, 3, 4, 5, 6, 7)
    harness.step(AddReq("warm-up", hot, greedy(1)), AddReq("behind", hot, greedy(3)))
    harness.step(AddReq("cold", (9, 9, 9), greedy(1)))
    started: list[str] = []
    for i in range(60):
        harness.step(*[AddReq(f"hot{i}.{j}", (*hot, i % 8), greedy(1)) for j in range(2)])
        started += [row.rid for row in harness.plans[-1].rows if row.prefix_len + row.extend_len <= 7]
        if "cold" in started:
            break
    assert "cold" in started
    assert started.index("cold") <= slack + 2


def test_continuing_requests_go_ahead_of_new_ones_that_came_with_them() -> None:
    for policy in ("fcfs", "lpm"):
        harness = Harness(config(max_running_requests=1, schedule_policy=policy))
        harness.step(AddReq("new", (2, 3), greedy(1)), AddReq("going on", (4, 5), greedy(1), is_continuing=True))
        assert harness.rows()[0][0] == "going on"
