"""The draft model beside a runner: what it computes, what it guesses, and that requests give the same with it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from sglang_lite.runtime.attention.kv_pool import KvPool
from sglang_lite.runtime.attention.torch_ref import TorchAttention
from sglang_lite.runtime.execution.device_runner import DeviceRunner
from sglang_lite.runtime.execution.draft_runner import DraftRunner
from sglang_lite.runtime.execution.model_runner import ModelRunner
from sglang_lite.runtime.execution.threaded_runner import ThreadedRunner
from sglang_lite.runtime.scheduler.messages import AddReq
from sglang_lite.runtime.scheduler.plan import ForwardMode, PageCopy, Plan
from tests.runtime.execution.support import TINY, plain_logits, plan_of, row, spec, tiny_llama
from tests.runtime.execution.test_overlap_properties import Bench, Life, check_same, lives
from tests.support.exact_model import ExactModel, NoAttention, exact_pool
from tests.support.scheduler_harness import EOS, VOCAB, config, greedy

PAGE = 4


def tiny_pool() -> KvPool:
    return KvPool(TINY.num_layers, 16, TINY.num_kv_heads, TINY.head_dim, PAGE)


def tiny_draft(seed: int) -> DraftRunner:
    """A target of seed 0 with a draft model of another seed, or the same."""
    pools = [tiny_pool(), tiny_pool()]
    target = ModelRunner(tiny_llama(0), TorchAttention(pools[0]), pools[0], vocab_size=TINY.vocab_size)
    size, attention = TINY.vocab_size, TorchAttention(pools[1])
    return DraftRunner(target, tiny_llama(seed), attention, pools[1], draft_vocab_size=size, vocab_size=size)


def greedy_text(seed: int, ids: list[int], count: int) -> list[int]:
    """What the tiny model says by itself."""
    model, known = tiny_llama(seed), list(ids)
    for _ in range(count):
        known.append(int(plain_logits(model, known)[-1].argmax()))
    return known[len(ids) :]


@pytest.mark.parametrize("seed", [0, 1])
def test_guesses_are_what_the_draft_model_says_after_the_drawn_token(seed: int) -> None:
    prompt = [5, 9, 33, 2, 71]
    runner = tiny_draft(seed)
    wanted = row("a", prompt, [3, 7, 1], sample=spec(position=5, prompt_ids=prompt))._replace(num_guesses=4)
    silent = row("b", prompt, [4, 5], sample=spec(position=5, prompt_ids=prompt))
    got, other = runner.run(plan_of(wanted, silent)).rows
    (drawn,) = greedy_text(0, prompt, 1)
    assert got.token_id == other.token_id == drawn
    assert list(got.guesses) == greedy_text(seed, [*prompt, drawn], 4)
    assert other.guesses == ()
    assert (runner.draft_counters.forwards, runner.draft_counters.guesses) == (4, 4)


def test_guesses_that_fell_are_written_over_and_those_that_stood_are_there() -> None:
    """The second row carries one right guess and two wrong ones; behind it the draft says what it says of the true text."""
    prompt = [5, 9, 33, 2, 71]
    runner = tiny_draft(1)
    first = row("a", prompt, [3, 7, 1, 2], sample=spec(position=5, prompt_ids=prompt))._replace(num_guesses=3)
    runner.run(plan_of(first))
    said = greedy_text(0, prompt, 4)
    tried = [said[0], said[1], (said[2] + 1) % 97, 7]
    specs = [spec(position=6 + i, prompt_ids=prompt, output_ids=tried[: 1 + i]) for i in range(4)]
    second = row("a", tried, [3, 7, 1, 2], prefix_len=5, sample=specs[3])._replace(
        drafts=tuple(specs[:3]), num_guesses=3
    )
    (got,) = runner.run(plan_of(second)).rows
    assert [kept.token_id for kept in got.kept] == [said[1]]
    assert got.token_id == said[2]
    assert list(got.guesses) == greedy_text(1, [*prompt, *said[:3]], 3)


def test_copies_are_done_in_the_draft_models_pool_too() -> None:
    prompt = [5, 9, 33, 2, 71, 8]
    runner = tiny_draft(1)
    runner.run(plan_of(row("a", prompt, [3, 7])))
    forked = row("b", [4], [3, 9], prefix_len=6, sample=spec(position=7, prompt_ids=[*prompt, 4]))._replace(
        num_guesses=1
    )
    plan = Plan(2, ForwardMode.EXTEND, (forked,), (PageCopy(7, 9, 2),))
    (got,) = runner.run(plan).rows
    assert list(got.guesses) == greedy_text(1, [*prompt, 4, got.token_id or 0], 1)


def test_tokens_that_only_the_target_has_are_no_guess_and_no_fault() -> None:
    """The draft's head is wider than the vocabulary, and a prompt holds an id that its embedding lacks."""
    pool = tiny_pool()
    target = ModelRunner(tiny_llama(0), TorchAttention(pool), pool, vocab_size=TINY.vocab_size)
    own = tiny_pool()
    runner = DraftRunner(target, tiny_llama(0), TorchAttention(own), own, draft_vocab_size=50, vocab_size=20)
    (got,) = runner.run(plan_of(row("a", [96, 3], [3, 4, 5], sample=spec())._replace(num_guesses=5))).rows
    assert len(got.guesses) == 5
    assert max(got.guesses) < 20


def exact_runner(
    kind: Callable[..., ModelRunner | DeviceRunner], num_pages: int, share: float
) -> tuple[DraftRunner, list[ExactModel]]:
    """The exact model, and itself as a draft; of the draft's scores a share is noise."""
    pools = [exact_pool(num_pages, PAGE) for _ in range(2)]
    models = [ExactModel(pool, VOCAB) for pool in pools]
    models[1]._scores[: int(share * len(models[1]._scores))] *= -1
    target = kind(models[0], NoAttention(), pools[0], vocab_size=VOCAB, eos_ids={EOS})
    return DraftRunner(target, models[1], NoAttention(), pools[1], draft_vocab_size=VOCAB, vocab_size=VOCAB), models


@given(
    life=lives(),
    num_pages=st.sampled_from([8, 14, 60]),
    kind=st.sampled_from([ModelRunner, DeviceRunner]),
    overlap=st.sampled_from(["off", "delay", "thread"]),
    share=st.sampled_from([0.0, 0.2, 1.0]),
    batching=st.sampled_from(["prefill-first", "mixed", "decode-first"]),
    chunk=st.sampled_from([None, 8]),
)
@settings(deadline=None, max_examples=min(settings().max_examples, 40))
def test_requests_give_the_same_with_a_draft_model(
    life: Life,
    num_pages: int,
    kind: Callable[..., ModelRunner | DeviceRunner],
    overlap: str,
    share: float,
    batching: str,
    chunk: int | None,
) -> None:
    """Aborts, retracts, constraints, stops, log-probabilities; free pages are poisoned in both pools."""
    values = {"batching": batching, "chunked_prefill_size": chunk, "context_length": 48}
    values |= {"schedule_conservativeness": 0.05, "disable_overlap_schedule": overlap == "off"}
    pool = exact_pool(num_pages, PAGE)
    plain = kind(ExactModel(pool, VOCAB), NoAttention(), pool, vocab_size=VOCAB, eos_ids={EOS})
    expected = Bench(config(**values), plain, num_pages).live(life)
    drafting, models = exact_runner(kind, num_pages, share)
    runner = ThreadedRunner(drafting) if overlap == "thread" else drafting

    def poison(free: Sequence[int]) -> None:
        for model in models:
            model.poison(list(free))

    bench = Bench(config(num_draft_tokens=4, **values), runner, num_pages)
    got = bench.live(life, None if overlap == "thread" else poison)
    if isinstance(runner, ThreadedRunner):
        runner.close()
    check_same(got, expected)


@pytest.mark.parametrize("overlap", [False, True])
def test_the_target_itself_as_draft_is_right_wherever_the_choice_is_greedy(overlap: bool) -> None:
    adds = tuple((i, AddReq(f"r{i}", (2 + i, 3, 4), greedy(40))) for i in range(3))
    runner, _ = exact_runner(ModelRunner, 60, 0.0)
    bench = Bench(config(num_draft_tokens=8, disable_overlap_schedule=not overlap), runner, 60)
    bench.live(Life(adds))
    numbers = bench.scheduler.statistics()
    assert numbers.missed_tokens == 0
    assert numbers.spec_accept_length > 5
