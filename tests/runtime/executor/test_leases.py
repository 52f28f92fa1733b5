from __future__ import annotations

import itertools

import pytest

from sglang_lite.request_tree import EndOp, ForkOp, GenOp, JoinOp, SamplingParams, TextOp
from sglang_lite.runtime.executor.leases import RESTING
from sglang_lite.runtime.executor.tree_executor import TreeExecutor
from sglang_lite.runtime.scheduler.messages import EndLease, SetNextUse
from tests.runtime.executor.test_program import Bench

PARAMS = SamplingParams(max_new_tokens=4)


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_each_request_joins_its_branchs_lease_in_the_order_of_asking(bench: Bench) -> None:
    bench.append(TextOp(1, 0, "a"), ForkOp(2, 0, (1, 2)), GenOp(3, 1, None, PARAMS), GenOp(4, 2, None, PARAMS))
    requests = [bench.port.requests[f"r{i}"] for i in range(2)]
    assert [req.lease for req in requests] == ["p/1", "p/2"]
    assert requests[0].next_use < requests[1].next_use < RESTING


def test_programs_draw_from_one_row_of_tickets(bench: Bench) -> None:
    bench.executor.open("q", bench.events.append, seed=1)
    for name in ("p", "q", "p"):
        bench.executor.append(name, [TextOp(next(ids), 0, "a"), GenOp(next(ids), 0, None, PARAMS)])
        rid = f"r{len(bench.port.requests) - 1}"
        bench.port.answer(rid, "x")
    uses = [req.next_use for req in bench.port.requests.values()]
    assert uses == sorted(uses)
    assert len(set(uses)) == 3


ids = itertools.count(10)


def test_a_branch_that_waits_for_its_program_is_needed_late_the_longest_waiting_last(bench: Bench) -> None:
    bench.append(TextOp(1, 0, "a"), ForkOp(2, 0, (1, 2)), GenOp(3, 1, None, PARAMS), GenOp(4, 2, None, PARAMS))
    bench.port.answer("r0", "x")
    bench.port.answer("r1", "x")
    rests = {m.lease: m.next_use for m in bench.port.messages if isinstance(m, SetNextUse)}
    assert rests["p/1"] > rests["p/2"] > RESTING / 2
    bench.append(GenOp(5, 1, None, PARAMS))
    (again,) = [m for m in bench.port.messages if isinstance(m, SetNextUse) and m.next_use < RESTING / 2]
    assert again == SetNextUse("p/1", bench.port.requests["r2"].next_use)


def test_a_shared_prefix_is_kept_while_a_branch_of_the_fork_is_still_to_run(bench: Bench) -> None:
    """The first child has ended, and only its lease covers what the second one will want."""
    bench.append(TextOp(1, 0, "a"), ForkOp(2, 0, (1, 2)), GenOp(3, 1, None, PARAMS), EndOp(4, 1))
    bench.port.answer("r0", "x")
    assert not bench.port.messages
    bench.append(GenOp(5, 2, None, PARAMS))
    assert bench.port.messages == [EndLease("p/1")]
    bench.port.answer("r1", "x")
    bench.append(JoinOp(6, 0, (1, 2)))
    assert bench.port.messages[-1] == EndLease("p/2")


def test_a_failed_or_cancelled_branch_gives_its_lease_up(bench: Bench) -> None:
    bench.append(TextOp(1, 0, "a"), GenOp(2, 0, None, PARAMS))
    bench.executor.cancel("p", None)
    assert EndLease("p/0") in bench.port.messages


def test_the_end_of_a_program_ends_all_its_leases(bench: Bench) -> None:
    bench.append(TextOp(1, 0, "a"), GenOp(2, 0, None, PARAMS))
    bench.port.answer("r0", "x")
    executor: TreeExecutor = bench.executor
    executor.close("p")
    assert bench.port.messages[-1] == EndLease("p/0")
