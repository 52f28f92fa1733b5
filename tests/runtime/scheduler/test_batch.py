from __future__ import annotations

import numpy as np

from sglang_lite.request_tree import LogprobParams
from sglang_lite.runtime.scheduler.batch import RowKind, ScheduleBatch
from sglang_lite.runtime.scheduler.intake import Intake
from sglang_lite.runtime.scheduler.messages import AddReq
from sglang_lite.runtime.scheduler.plan import FUTURE_TOKEN, ForwardMode, LogprobTarget
from sglang_lite.runtime.scheduler.req import Req
from tests.support.scheduler_harness import VISIBLE, Harness, config, greedy


def admitted(harness: Harness, rid: str, prompt: tuple[int, ...], new_len: int, **values: object) -> Req:
    req = Intake(config(), harness.kv, VISIBLE).open(AddReq(rid, prompt, greedy(), **values), (1, True, 1))  # type: ignore[arg-type]
    admission = harness.kv.admit("", req.ids, match_limit=req.match_limit, new_len=new_len)
    assert admission is not None
    req.hold, req.fill_len = admission.hold, req.seq_len
    return req


def test_row_i_of_the_plan_is_row_i_of_the_batch() -> None:
    harness = Harness(page_size=4)
    a, b = admitted(harness, "a", (2, 3, 4, 5, 6), 5), admitted(harness, "b", (7, 8), 3)
    batch = ScheduleBatch(9, 4)
    batch.add_extend(a, 4)
    assert batch.to_plan().mode is ForwardMode.EXTEND
    harness.kv.commit(b.hold, 2)  # type: ignore[arg-type]
    b.planned_len = 2
    b.append([9])
    batch.add_decode(b)
    plan = batch.to_plan()
    assert (plan.step, plan.mode) == (9, ForwardMode.MIXED)
    assert [row.req.rid for row in batch.rows] == [row.rid for row in plan.rows] == ["a", "b"]
    assert [row.kind for row in batch.rows] == [RowKind.EXTEND, RowKind.DECODE]
    assert plan.rows[0].sample is None
    assert (plan.rows[1].input_ids, plan.rows[1].prefix_len, plan.rows[1].seq_len) == ((9,), 2, 3)
    assert plan.rows[1].sample is not None
    assert plan.rows[1].sample.position == 3


def test_the_pages_of_a_row_are_its_own_copy() -> None:
    harness = Harness(page_size=4)
    req = admitted(harness, "a", (2, 3, 4, 5, 6), 8)
    batch = ScheduleBatch(1, 4)
    batch.add_extend(req, 5)
    pages = batch.rows[0].plan.pages
    assert pages.tolist() == req.hold.pages[:2].tolist()  # type: ignore[union-attr]
    assert not np.shares_memory(pages, req.hold.pages)  # type: ignore[union-attr]


def test_prompt_log_probabilities_are_asked_for_at_the_token_before() -> None:
    """Also at the last token of a middle chunk, whose next token belongs to the next chunk."""
    harness = Harness(page_size=4)
    req = admitted(harness, "a", (2, 3, 4, 5, 6), 5, logprob=LogprobParams(start_len=2, top_num=1, token_ids=(9,)))
    batch = ScheduleBatch(1, 4)
    batch.add_extend(req, 4)
    assert batch.rows[0].plan.targets == (
        LogprobTarget(1, (4, 9), 1),
        LogprobTarget(2, (5, 9), 1),
        LogprobTarget(3, (6, 9), 1),
    )
    assert batch.rows[0].num_input_logprobs == 3


def test_a_row_that_is_planned_ahead_starts_where_the_one_in_flight_ends() -> None:
    """A chunk after the chunk in flight, and a token after the one that is not known yet."""
    harness = Harness(page_size=4)
    req = admitted(harness, "a", (2, 3, 4, 5, 6), 8, logprob=LogprobParams(start_len=0))
    first, second, third = (ScheduleBatch(step, 4) for step in (1, 2, 3))
    first.add_extend(req, 4)
    second.add_extend(req, 5)
    third.add_decode(req)
    assert [target.query for target in first.rows[0].plan.targets] == [0, 1, 2, 3]
    row = second.rows[0].plan
    assert (row.prefix_len, row.input_ids, row.targets) == (4, (6,), ())
    plan = third.to_plan()
    assert (plan.rows[0].prefix_len, plan.rows[0].input_ids, plan.rows[0].is_future) == (5, (FUTURE_TOKEN,), True)
    req.append([9])
    row = third.resolve(plan).rows[0]
    assert (row.input_ids, row.is_future) == ((9,), False)
    assert row.sample is not None
    assert (row.sample.position, list(row.sample.output_ids)) == (6, [9])
    req.hold = None
    row = third.resolve(plan).rows[0]
    assert (row.input_ids, row.sample) == ((9,), None), "its request has ended: it runs and gives nothing"


def test_an_empty_plan_decodes_nothing() -> None:
    assert ScheduleBatch(1, 4).to_plan().rows == ()
