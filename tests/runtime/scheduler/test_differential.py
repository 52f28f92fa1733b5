"""One set of requests, run in many ways: what they give is equal to the bit."""

from __future__ import annotations

import pytest

from sglang_lite.request_tree import LogprobParams
from sglang_lite.runtime.scheduler.messages import AddReq, Message
from tests.support.fake_grammar import FakeGrammar
from tests.support.scheduler_harness import EOS, Final, Harness, config, greedy

BASE = tuple(2 + (i * i + i // 3) % 10 for i in range(40))


def requests() -> list[AddReq]:
    grammar = [frozenset({6, 7, 8}), frozenset({2, 9}), frozenset(range(6, 12))]
    return [
        AddReq("plain", BASE[:20], greedy(12)),
        AddReq("equal", BASE[:20], greedy(12)),
        AddReq("sampled", BASE[:13], greedy(10, temperature=1.0, seed=5)),
        AddReq("stops", BASE[:25], greedy(20, stop=("ab", "f"), ignore_eos=False)),
        AddReq("logprobs", BASE[:22], greedy(4), logprob=LogprobParams(0, 2, (3,))),
        AddReq("some logprobs", BASE[:30], greedy(4), logprob=LogprobParams(17, 1)),
        AddReq("scored", BASE[:18], greedy(), choices=((2, 3, 4, 5, 6, 7), (2, 3, 9), (4,), BASE[18:30])),
        AddReq("scored with logprobs", BASE[:9], greedy(), choices=((2, 3),), logprob=LogprobParams(3)),
        AddReq("grammar", BASE[:7], greedy(), grammar=FakeGrammar(grammar, EOS)),
        AddReq("apart", BASE[:20], greedy(12), namespace="adapter"),
        AddReq("prefill", BASE[:33], greedy(0)),
        AddReq("prefill with logprobs", BASE[:27], greedy(0), logprob=LogprobParams(3, 2, (4, 5))),
        AddReq("one token", BASE[:15], greedy(1)),
        AddReq("ends early", BASE[:11], greedy(20, stop_token_ids=tuple(range(6, 12)))),
        AddReq("pattern", BASE[:16], greedy(20, stop_regex=("[d-f]b?",))),
    ]


def run(harness: Harness, *, one_by_one: bool = False, retract_every: int = 0) -> dict[str, Final]:
    if one_by_one:
        for add in requests():
            harness.drain(add)
    waiting: tuple[Message, ...] = () if one_by_one else tuple(requests())
    harness.step(*waiting)
    count = 0
    while harness.scheduler.has_work:
        harness.step()
        count += 1
        if retract_every and count % retract_every == 0 and count < 200:
            harness.settle()
            live = sorted(harness.adds, key=lambda rid: (count * 7 + len(rid)) % 11)
            next((rid for rid in live if harness.scheduler.retract(rid)), None)
    harness.check_idle()
    return harness.finals


overlapping = pytest.mark.parametrize("overlap", [False, True])


@overlapping
@pytest.mark.parametrize("page_size", [1, 4, 16])
@pytest.mark.parametrize("chunk", [2, None])
@pytest.mark.parametrize(
    ("policy", "batching"),
    [("lpm", "prefill-first"), ("fcfs", "mixed"), ("lpm", "decode-first"), ("fcfs", "prefill-first")],
)
def test_results_do_not_depend_on_page_chunk_policy_and_batching(
    page_size: int, chunk: int | None, policy: str, batching: str, overlap: bool
) -> None:
    size = None if chunk is None else chunk * page_size
    cfg = config(
        chunked_prefill_size=size, schedule_policy=policy, batching=batching, disable_overlap_schedule=not overlap
    )
    run(Harness(cfg, num_pages=1 + 480 // page_size, page_size=page_size))


@overlapping
@pytest.mark.parametrize("page_size", [1, 4, 16])
def test_results_do_not_depend_on_the_cache_or_on_who_runs_beside(page_size: int, overlap: bool) -> None:
    cfg = config(disable_overlap_schedule=not overlap)
    for radix in (True, False):
        for one_by_one in (True, False):
            num_pages = 1 + 480 // page_size
            run(Harness(cfg, num_pages=num_pages, page_size=page_size, enable_radix=radix), one_by_one=one_by_one)


@overlapping
@pytest.mark.parametrize("every", [1, 2, 5])
@pytest.mark.parametrize("batching", ["prefill-first", "mixed", "decode-first"])
def test_results_do_not_depend_on_retracts(every: int, batching: str, overlap: bool) -> None:
    harness = Harness(config(batching=batching, chunked_prefill_size=8, disable_overlap_schedule=not overlap))
    run(harness, retract_every=every)
    assert harness.scheduler.statistics().retractions > 3


@overlapping
@pytest.mark.parametrize(("pool", "page_size"), [(48, 1), (56, 4), (80, 4), (96, 16)])
def test_results_do_not_depend_on_the_size_of_the_pool(pool: int, page_size: int, overlap: bool) -> None:
    cfg = config(schedule_conservativeness=0.1, disable_overlap_schedule=not overlap)
    harness = Harness(cfg, num_pages=1 + pool // page_size, page_size=page_size)
    run(harness)
    assert all(final.error is None for final in harness.finals.values())
