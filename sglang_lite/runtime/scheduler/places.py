"""The check that requests are where their state and cursors say; for tests, it changes nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sglang_lite.runtime.scheduler.batch import ScheduleBatch
from sglang_lite.runtime.scheduler.live import LiveReqs
from sglang_lite.runtime.scheduler.queue import WaitingQueue
from sglang_lite.runtime.scheduler.req import Req, ReqState


def check_places(
    reqs: Mapping[str, Req], queue: WaitingQueue, live: LiveReqs, in_flight: Sequence[ScheduleBatch]
) -> None:
    """Assert that every unfinished request is in exactly one place and that its state and cursors fit there."""
    places = [*live, *queue, *queue.waiting_for_grammar]
    unfinished = {rid for rid, req in reqs.items() if req.finished_reason is None}
    assert len(places) == len({id(req) for req in places}), "a request is in two places"
    assert {req.rid for req in places} == unfinished, "requests in places are not the unfinished ones"
    assert len(queue) == len(list(queue)), f"the queue counts {len(queue)} requests, it has {len(list(queue))}"
    for req in (*queue, *queue.waiting_for_grammar):
        assert req.hold is None, f"request {req.rid!r} waits and holds memory"
        assert not req.planned_len and not req.num_pending, f"request {req.rid!r} waits with a row in flight"
        assert req.score is None or not req.score.holds, f"request {req.rid!r} waits and holds edges"
    for req in (*live.running, *live.completed):
        assert req.state is ReqState.RUNNING or any(batch.has(req) for batch in in_flight), (
            f"request {req.rid!r} is among the running ones, its state is {req.state}"
        )
    for req in live.scoring:
        assert req.state is ReqState.SCORING, f"request {req.rid!r} is among the scoring ones, its state is {req.state}"
    assert in_flight or not live.fresh, "a prefill is fresh outside a step"
    for req in places:
        _check_cursors(req, sum(batch.has(req) for batch in in_flight))
        drafted = sum(
            len(row.plan.drafts) for batch in in_flight for row in batch.rows if row.req is req and row.is_live
        )
        assert req.num_drafted == drafted, (
            f"request {req.rid!r} has {req.num_drafted} guesses in flight, rows {drafted}"
        )


def _check_cursors(req: Req, num_in_flight: int) -> None:
    hold = req.hold
    assert req.sent_tokens == len(req.output_ids) == req.seq_len - req.prompt_len == req.text.num_tokens
    assert 0 <= req.num_pending - req.num_drafted <= num_in_flight, (
        f"request {req.rid!r} has {req.num_pending} tokens pending"
    )
    if hold is None:
        return
    assert hold.committed_len <= min(hold.allocated_len, req.seq_len)
    assert hold.committed_len <= req.planned_len <= min(hold.allocated_len, req.known_len)
    if not num_in_flight:
        assert req.planned_len == hold.committed_len, f"request {req.rid!r} plans on rows that are not in flight"
        assert req.score is None or not req.score.in_flight, f"request {req.rid!r} waits for edges not in flight"
