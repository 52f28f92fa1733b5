from __future__ import annotations

from collections.abc import Sequence

import pytest

from sglang_lite.request_tree import LogprobParams
from sglang_lite.runtime.scheduler.messages import AbortReq, AddReq, Message
from sglang_lite.runtime.scheduler.sharing import StepPrefixes
from tests.support.scheduler_harness import VOCAB, Harness, config, greedy


def waits(leader: Sequence[int], keys: Sequence[int], cached: int, limit: int, seq: int, at_least: int = 8) -> bool:
    prefixes = StepPrefixes(4, at_least)
    prefixes.add_leader(leader)
    return prefixes.should_wait(keys, cached, limit, seq)


def test_a_follower_waits_for_whole_pages_it_would_share() -> None:
    assert waits([1, 2, 3], [1, 2, 9], 0, 11, 12)
    assert not waits([1, 2, 3], [9, 8, 7], 0, 11, 12)


def test_it_does_not_wait_for_what_is_cached_or_must_be_computed_anyway() -> None:
    assert not waits([1, 2, 3], [1, 2, 3], 11, 11, 12)
    assert not waits([1, 2, 3], [1, 2, 3], 0, 0, 12)


def test_it_waits_only_if_that_saves_enough() -> None:
    """Eight tokens, or half of what there is to compute."""
    assert not waits([1, 2], [1, 3, 4, 5], 0, 15, 16)
    assert waits([1, 2], [1], 0, 6, 7)
    assert waits([1, 2], [1, 3, 4, 5], 0, 15, 16, at_least=4)


def test_a_look_up_costs_the_logarithm_of_a_prompt() -> None:
    prefixes = StepPrefixes(4, 8)
    prefixes.add_leader(range(600))
    assert prefixes.should_wait([*range(500), *range(1000, 1500)], 0, 3999, 4000)
    assert prefixes.num_lookups <= 11


def test_nobody_waits_without_a_leader() -> None:
    assert not StepPrefixes(4, 8).should_wait([1, 2, 3], 0, 11, 12)


PROMPT = tuple(2 + i % 7 for i in range(33))


def followers(n: int, prompt: tuple[int, ...] = PROMPT, first: int = 0, **values: object) -> list[Message]:
    return [AddReq(f"f{i}", prompt, greedy(2), **values) for i in range(first, first + n)]  # type: ignore[arg-type]


@pytest.mark.parametrize("policy", ["fcfs", "lpm"])
@pytest.mark.parametrize("chunk", [None, 8])
@pytest.mark.parametrize("batching", ["prefill-first", "mixed", "decode-first"])
def test_equal_cold_prompts_compute_their_prefix_once(policy: str, chunk: int | None, batching: str) -> None:
    harness = Harness(config(schedule_policy=policy, chunked_prefill_size=chunk, batching=batching))
    harness.drain(*followers(6))
    harness.check_idle()
    assert harness.scheduler.statistics().computed_tokens == 33 + 5


def test_other_prompts_go_on_while_followers_wait() -> None:
    harness = Harness(config(schedule_policy="fcfs"))
    harness.step(*followers(3), AddReq("other", (9, 9, 9), greedy(2)))
    assert [rid for rid, _, _ in harness.rows()] == ["f0", "other"]
    harness.step()
    assert harness.rows() == [("f1", 32, 1), ("f2", 32, 1)]


def test_a_long_leader_is_followed_when_its_part_is_there() -> None:
    """A follower that shares only the first pages goes on as soon as those are computed."""
    harness = Harness(config(chunked_prefill_size=16, schedule_policy="fcfs"), page_size=4)
    harness.step(*followers(1), AddReq("short", (*PROMPT[:12], 9, 9, 9), greedy(2)))
    assert harness.rows() == [("f0", 0, 16)]
    harness.step()
    assert harness.rows() == [("f0", 16, 16)]
    harness.step()
    assert harness.rows() == [("f0", 32, 1), ("short", 12, 3)]


@pytest.mark.parametrize("what", ["abort", "abort in flight", "retract"])
def test_a_follower_goes_on_when_its_leader_is_gone(what: str) -> None:
    harness = Harness(config(chunked_prefill_size=8, schedule_policy="fcfs"))
    harness.step(*followers(2))
    assert [rid for rid, _, _ in harness.rows()] == ["f0"]
    if what == "abort":
        harness.step(AbortReq("f0"))
    elif what == "abort in flight":
        harness.step(in_flight=[AbortReq("f0")])
        harness.step()
    else:
        assert harness.scheduler.retract("f0")
        harness.step()
        assert harness.rows()[0][0] == "f0"
    if what != "retract":
        assert harness.rows()[0][0] == "f1"
    harness.drain()
    harness.check_idle()


def test_a_follower_goes_on_when_its_leader_is_stuck() -> None:
    """A leader that gets no page has no row in the step, so nobody waits for it; it is retracted when pages run out."""
    harness = Harness(
        config(chunked_prefill_size=4, schedule_policy="fcfs", batching="mixed"), num_pages=12, page_size=4
    )
    harness.step(AddReq("d", (9,), greedy(40)))
    harness.drain(*followers(3, PROMPT[:30]))
    harness.check_idle()


def test_a_request_that_needs_its_own_computation_does_not_wait() -> None:
    harness = Harness()
    harness.step(*followers(1), *followers(1, first=1, logprob=LogprobParams(start_len=0)))
    assert harness.rows() == [("f0", 0, 33), ("f1", 0, 33)]


def test_namespaces_do_not_share() -> None:
    harness = Harness()
    harness.step(*followers(1), *followers(1, first=1, namespace="adapter"))
    assert len(harness.rows()) == 2


def test_many_prompts_with_a_long_shared_part_compute_the_least_possible() -> None:
    """32 requests of 800 shared and 32 own tokens: 800 + 32 x 32 tokens are computed."""
    cfg = config(context_length=900, chunked_prefill_size=2048)
    harness = Harness(cfg, num_pages=400, page_size=16, num_rows=40)
    shared = tuple(2 + (i * i) % 9 for i in range(800))
    adds = [
        AddReq(f"r{i}", (*shared, *(2 + (i + 3 * j + i * j) % 9 for j in range(31)), i % VOCAB), greedy(16))
        for i in range(32)
    ]
    harness.drain(*adds)
    assert harness.scheduler.statistics().computed_tokens <= 1824


@pytest.mark.parametrize("policy", ["fcfs", "lpm"])
def test_a_queue_of_thousands_costs_a_bounded_scan(policy: str) -> None:
    """2,000 requests with one prefix: it is computed once, and no step looks at more than the window."""
    cfg = config(schedule_policy=policy, scan_window=16, max_running_requests=8, chunked_prefill_size=16)
    harness = Harness(cfg, num_pages=128, page_size=4, num_rows=8)
    probe, probes = harness.kv.probe, 0

    def counted(namespace: str, ids: Sequence[int], limit: int) -> int:
        nonlocal probes
        probes += 1
        return probe(namespace, ids, limit)

    harness.kv.probe = counted  # type: ignore[method-assign, assignment]
    adds = [AddReq(f"r{i}", (*PROMPT[:32], 2 + i % 9), greedy(1)) for i in range(2000)]
    scheduler, runner = harness.scheduler, harness.runner
    scheduler.receive(adds)
    most = ended = 0
    while scheduler.has_work:
        probes = 0
        plan = scheduler.step()
        most = max(most, probes)
        ended += sum(o.finished is not None for o in scheduler.commit(runner.run(plan)))
    assert ended == 2000
    assert most <= 2 * cfg.scan_window
    # After the first nine last tokens are in the tree, a whole prompt but its last token is cached.
    assert scheduler.statistics().computed_tokens <= 32 + 2000


@pytest.mark.parametrize("overlap", [False, True])
def test_samples_of_one_prompt_compute_it_once(overlap: bool) -> None:
    """The first sample computes 33 tokens, each of the others the one that every row must compute."""
    harness = Harness(config(disable_overlap_schedule=not overlap))
    samples = [AddReq(f"s{i}", PROMPT, greedy(5, temperature=1.0, seed=i)) for i in range(8)]
    harness.drain(*samples)
    harness.check_idle()
    assert harness.scheduler.statistics().computed_tokens == 33 + 7
    assert len({tuple(final.ids) for final in harness.finals.values()}) > 1
