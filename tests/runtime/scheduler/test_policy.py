from __future__ import annotations

from dataclasses import dataclass, replace
from typing import get_args

import pytest

from sglang_lite.errors import KvOutOfMemoryError, RequestError
from sglang_lite.runtime.scheduler.config import SchedulePolicy
from sglang_lite.runtime.scheduler.messages import AddReq
from sglang_lite.runtime.scheduler.policy import Moment, choose_next, order_waiting
from sglang_lite.runtime.scheduler.req import ReqState
from tests.support.scheduler_harness import Harness, config, greedy


@dataclass
class Waiter:
    name: str
    order: tuple[int, bool, int]
    matched: int = 0
    tokens_left: int = 8
    rank: int = 0
    deadline: int = 1000
    path: tuple[int, ...] = ()
    place: tuple[int, ...] = ()


WAITERS = [
    Waiter("old", (1, True, 1), 0, 8),
    Waiter("new", (2, True, 2), 30, 9),
    Waiter("going on", (2, False, 3), 9, 8),
    Waiter("hot", (3, True, 4), 40, 20),
    Waiter("equal", (3, True, 5), 40, 20),
]
POLICIES = get_args(SchedulePolicy)


def names(policy: str, clock: int = 0, waiters: list[Waiter] = WAITERS, step: int = 1, seed: int = 0) -> list[str]:
    moment = Moment(clock, step, seed)
    ordered = order_waiting(policy, waiters[::-1], moment, lambda w: w.matched, lambda w: w.path)  # type: ignore[arg-type]
    return [w.name for w in ordered]


def test_fcfs_goes_by_step_of_arrival_and_continuing_requests_go_first_within_it() -> None:
    assert names("fcfs") == ["old", "going on", "new", "hot", "equal"]


def test_lpm_goes_by_cached_prefix_ties_by_arrival_continuing_requests_first() -> None:
    assert names("lpm") == ["going on", "hot", "equal", "new", "old"]


def test_lpm_walks_the_programs_depth_first_where_prefixes_are_equal() -> None:
    """A program's branches go together, a branch's own children before the next branch; ageing still goes before all."""
    waiters = [
        Waiter("b", (1, True, 1), place=(2, 0, 1)),
        Waiter("a's second", (2, True, 2), place=(1, 0, 2)),
        Waiter("a's first", (3, True, 3), place=(1, 0, 1)),
        Waiter("below a's first", (4, True, 4), place=(1, 0, 1, 3)),
        Waiter("of no program", (5, True, 5)),
        Waiter("b, cached", (6, True, 6), matched=9, place=(2, 0, 2)),
    ]
    ordered = ["b, cached", "of no program", "a's first", "below a's first", "a's second", "b"]
    assert names("lpm", waiters=waiters) == ordered
    aged = [replace(w, deadline=5) if w.name == "b" else w for w in waiters]
    assert names("lpm", 5, aged)[0] == "b"


def test_lof_goes_by_the_longest_output_ties_by_arrival() -> None:
    assert names("lof") == ["hot", "equal", "new", "old", "going on"]


def test_random_is_another_order_in_each_step_and_the_same_in_each_run() -> None:
    orders = [names("random", step=step) for step in range(30)]
    assert orders == [names("random", step=step) for step in range(30)]
    assert {order[0] for order in orders} == {w.name for w in WAITERS}
    assert orders != [names("random", step=step, seed=1) for step in range(30)]


def test_dfs_weight_goes_down_the_heavier_branch_first_and_keeps_a_branch_together() -> None:
    """Below key 1 wait three, below 2 one; of 1's children 11 has two, 12 one; whoever ends at 1 comes after them."""
    waiters = [
        Waiter("alone", (1, True, 1), path=(2,)),
        Waiter("at the fork", (2, True, 2), path=(1,)),
        Waiter("light", (3, True, 3), path=(1, 12)),
        Waiter("heavy", (4, True, 4), path=(1, 11, 111)),
        Waiter("heavy too", (5, True, 5), path=(1, 11)),
        Waiter("cold", (0, True, 0)),
    ]
    assert names("dfs-weight", waiters=waiters) == ["heavy", "heavy too", "light", "at the fork", "alone", "cold"]


def test_dfs_weight_does_not_mix_branches_of_equal_weight() -> None:
    paths = [(1, 5), (2, 6), (1, 7), (2, 8)]
    waiters = [Waiter(f"{path[0]}", (i, True, i), path=path) for i, path in enumerate(paths)]
    assert names("dfs-weight", waiters=waiters) == ["1", "1", "2", "2"]


@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_puts_aged_requests_first_then_goes_by_rank(policy: str) -> None:
    assert names(policy, 1000) == ["old", "going on", "new", "hot", "equal"]
    ranked = [replace(w, rank=w.name != "new", deadline=5 if w.name == "equal" else 1000) for w in WAITERS]
    assert names(policy, 5, ranked)[:2] == ["equal", "new"]


def test_an_unknown_policy_is_refused_with_the_known_ones() -> None:
    with pytest.raises(RequestError, match=r"'mru'.*'lpm', 'fcfs'"):
        names("mru")


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


HOT = (2, 3, 4, 5, 6, 7)


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("policy", POLICIES)
def test_whom_a_policy_likes_least_waits_no_longer_than_the_token_clock_says(policy: str, overlap: bool) -> None:
    """In every step two arrive that any policy would take first, room is for one: the cold one still runs in time."""
    slack = 40
    cfg = config(
        max_running_requests=1,
        ageing_tokens=slack,
        schedule_policy=policy,
        enable_priority_scheduling=True,
        disable_overlap_schedule=not overlap,
    )
    harness = Harness(cfg, page_size=1)
    harness.step(AddReq("warm-up", HOT, greedy(1), priority=1), AddReq("behind", HOT, greedy(3), priority=1))
    harness.step(AddReq("cold", (9, 9, 9), greedy(1)))
    deadline = next(req.deadline for req in harness.scheduler._queue if req.rid == "cold")
    assert deadline <= 20 + 2 * (len(HOT) + 3) + slack
    for i in range(200):
        harness.step(*[AddReq(f"hot{i}.{j}", (*HOT, i % 8), greedy(2), priority=1) for j in range(2)])
        if any(row.rid == "cold" for row in harness.plans[-1].rows):
            break
    started = harness.scheduler._queue.clock
    assert any(row.rid == "cold" for row in harness.plans[-1].rows)
    longest = len(HOT) + 1 + 2
    assert started <= deadline + longest, "it runs as soon as the one that had the room has ended"
    if policy != "fcfs":
        assert started > slack, "before it was due, others were preferred"


def test_without_ageing_the_same_request_would_wait_for_ever() -> None:
    harness = Harness(config(max_running_requests=1, ageing_tokens=10**9), page_size=1)
    harness.step(AddReq("warm-up", HOT, greedy(1)), AddReq("behind", HOT, greedy(3)))
    harness.step(AddReq("cold", (9, 9, 9), greedy(1)))
    for i in range(100):
        harness.step(*[AddReq(f"hot{i}.{j}", (*HOT, i % 8), greedy(1)) for j in range(2)])
    assert harness.scheduler.state_of("cold") is ReqState.WAITING


@pytest.mark.parametrize(
    ("changes", "first"),
    [
        ({"enable_priority_scheduling": True}, ["nine", "five", "minus", "none"]),
        ({"schedule_policy": "priority"}, ["nine", "five", "minus", "none"]),
        (
            {"enable_priority_scheduling": True, "schedule_low_priority_values_first": True},
            ["minus", "five", "nine", "none"],
        ),
    ],
)
def test_priorities_order_the_queue_and_requests_without_one_come_last(
    changes: dict[str, object], first: list[str]
) -> None:
    harness = Harness(config(max_running_requests=1, **changes), page_size=1)
    values = {"none": None, "five": 5, "minus": -1, "nine": 9}
    harness.step(AddReq("busy", (9, 9), greedy(3), priority=0))
    harness.drain(*[AddReq(rid, (2 + i, 3), greedy(1), priority=p) for i, (rid, p) in enumerate(values.items())])
    ran = [row.rid for plan in harness.plans for row in plan.rows if row.rid != "busy"]
    assert ran == first
    harness.check_idle()


@pytest.mark.parametrize(
    ("on", "priority", "words"),
    [
        (False, 3, "priorities are off; set enable_priority_scheduling=True"),
        (True, "high", "expected a whole number or None"),
        (True, True, "expected a whole number or None"),
        (True, 1 << 62, "between -2"),
    ],
)
def test_a_wrong_priority_is_refused(on: bool, priority: object, words: str) -> None:
    harness = Harness(config(enable_priority_scheduling=on))
    harness.drain(AddReq("r", (2, 3), greedy(), priority=priority))  # type: ignore[arg-type]
    error = harness.finals["r"].error
    assert isinstance(error, RequestError)
    assert words in str(error)


@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_gives_every_request_its_own_result(policy: str) -> None:
    cfg = config(schedule_policy=policy, max_running_requests=3, scan_window=4, chunked_prefill_size=8)
    harness = Harness(cfg, num_pages=20)
    prompts = [((2, 3, 4, 5, 6, 7, 8)[: 2 + i % 6] * 2, 1 + i % 5) for i in range(20)]
    for start in (0, 10):
        adds = [AddReq(f"r{start + i}", ids, greedy(n)) for i, (ids, n) in enumerate(prompts[start : start + 10])]
        harness.step(*adds)
    harness.drain()
    harness.check_idle()


def test_continuing_requests_go_ahead_of_new_ones_that_came_with_them() -> None:
    for policy in ("fcfs", "lpm", "priority"):
        harness = Harness(config(max_running_requests=1, schedule_policy=policy))
        harness.step(AddReq("new", (2, 3), greedy(1)), AddReq("going on", (4, 5), greedy(1), is_continuing=True))
        assert harness.rows()[0][0] == "going on"


def test_who_cannot_be_admitted_alone_ends_and_not_who_leads_the_queue() -> None:
    """An aged request that has outgrown the pool goes before a better rank; it ends, and the other one is served."""
    cfg = config(enable_priority_scheduling=True, ageing_tokens=0, schedule_conservativeness=0.01)
    harness = Harness(cfg, num_pages=5, page_size=4)
    harness.step(AddReq("full", tuple(2 + i % 9 for i in range(16)), greedy(5)))
    assert harness.scheduler.retract("full")
    harness.scheduler._queue.clock += 100
    harness.drain(AddReq("better", (9, 8, 7), greedy(2), priority=5))
    assert isinstance(harness.finals["full"].error, KvOutOfMemoryError)
    assert harness.finals["better"].error is None
    harness.check_idle()
