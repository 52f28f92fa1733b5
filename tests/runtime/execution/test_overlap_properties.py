"""Random programs of requests give the same on a device whether steps overlap or not, and no buffer is touched too early."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings

from sglang_lite.request_tree import LogprobParams
from sglang_lite.runtime.attention.base import AttentionBackend
from sglang_lite.runtime.attention.forward_batch import ForwardBatch
from sglang_lite.runtime.attention.kv_pool import KvPool
from sglang_lite.runtime.attention.torch_ref import TorchAttention
from sglang_lite.runtime.execution.device_runner import DeviceRunner
from sglang_lite.runtime.execution.model_runner import ModelRunner
from sglang_lite.runtime.execution.threaded_runner import ThreadedRunner
from sglang_lite.runtime.memory.kv import KvManager
from sglang_lite.runtime.scheduler.config import SchedulerConfig
from sglang_lite.runtime.scheduler.loop import AsyncLoop, AsyncRunner, BackgroundRunner, NormalLoop, Runner, make_loop
from sglang_lite.runtime.scheduler.messages import AbortReq, AddReq, Message, TokenLogprob
from sglang_lite.runtime.scheduler.scheduler import Scheduler
from tests.runtime.execution.support import TINY, tiny_llama
from tests.support.exact_model import ExactModel, NoAttention, exact_pool
from tests.support.fake_grammar import guessed
from tests.support.scheduler_harness import EOS, VISIBLE, VOCAB, Final, config, greedy
from tests.support.simulated_device import SimulatedQueue

SHARED = tuple(2 + (7 * i * i + i // 3) % (VOCAB - 2) for i in range(24))

token = st.integers(0, VOCAB - 1)
params = st.builds(
    greedy,
    st.integers(1, 20),
    temperature=st.sampled_from([0.0, 0.8]),
    seed=st.integers(0, 3),
    top_k=st.sampled_from([-1, -1, 3]),
    top_p=st.sampled_from([1.0, 0.7]),
    min_p=st.sampled_from([0.0, 0.0, 0.2]),
    repetition_penalty=st.sampled_from([1.0, 1.0, 1.3]),
    frequency_penalty=st.sampled_from([0.0, 0.0, 0.5]),
    logit_bias=st.sampled_from([(), (), ((3, 1.5), (7, -2.0))]),
    ignore_eos=st.booleans(),
    min_new_tokens=st.sampled_from([0, 0, 3]),
    stop=st.sampled_from([(), (), (), ("ab",), ("bca", "é"), ("dd",)]),
    stop_token_ids=st.sampled_from([(), (), (2,), (7, 9)]),
    jump_forward=st.sampled_from(["verify", "verify", "off", "force"]),
)
logprobs = st.sampled_from([None, None, LogprobParams(None, 2, (3, 5)), LogprobParams(0, 1, ())])
places = st.lists(st.frozensets(token, min_size=1, max_size=4), min_size=1, max_size=6)
grammars = st.one_of(st.none(), st.none(), st.builds(guessed, places, st.just(EOS), st.integers(0, 63)))


@dataclass(frozen=True)
class Life:
    """Requests with the steps they come in, and the steps in which some are ended or sent back to the queue."""

    adds: tuple[tuple[int, AddReq], ...]
    aborts: tuple[tuple[int, int], ...] = ()
    retracts: tuple[tuple[int, int], ...] = ()


@st.composite
def lives(draw: st.DrawFn) -> Life:
    adds: list[tuple[int, AddReq]] = []
    for i in range(draw(st.integers(2, 6))):
        prompt = (*SHARED[: draw(st.integers(1, 20))], *draw(st.lists(token, max_size=3)))
        kind = draw(st.sampled_from(["text", "text", "text", "text", "choices"]))
        add = AddReq(f"r{i}", prompt, draw(params), logprob=draw(logprobs), grammar=draw(grammars))
        if kind == "choices":
            options = draw(st.lists(st.lists(token, min_size=1, max_size=5).map(tuple), min_size=1, max_size=3))
            add = AddReq(f"r{i}", prompt, greedy(), choices=tuple(options))
        adds.append((draw(st.integers(0, 6)), add))
    aborts = draw(st.lists(st.tuples(st.integers(1, 15), st.integers(0, 4)), max_size=2))
    retracts = draw(st.lists(st.tuples(st.integers(1, 20), st.integers(0, 5)), max_size=3))
    return Life(tuple(adds), tuple(aborts), tuple(retracts))


class Bench:
    """One engine's inside: a scheduler over a small pool and a runner of some kind."""

    def __init__(self, cfg: SchedulerConfig, runner: Runner | BackgroundRunner | AsyncRunner, num_pages: int) -> None:
        self.kv = KvManager(num_rows=16, num_pages=num_pages, page_size=4, max_len=cfg.context_length)
        self.scheduler = Scheduler(cfg, self.kv, VISIBLE)
        self.loop = make_loop(self.scheduler, runner)

    def live(self, life: Life, poison: Callable[[Sequence[int]], None] | None = None) -> dict[str, Final]:
        """All requests to their ends; those that are aborted are not looked at, for where they end is chance."""
        finals: dict[str, Final] = {}
        aborted = {f"r{i}" for _, i in life.aborts}
        last = max(step for step, _ in (*life.adds, *life.aborts, *life.retracts))
        step = 0
        while step <= last or self.scheduler.has_work:
            restarted = [_fresh(add) for at, add in life.adds if at == step]
            for rid in [f"r{i}" for at, i in life.retracts if at == step]:
                for output in () if isinstance(self.loop, NormalLoop) else self.loop.settle():
                    finals.setdefault(output.rid, Final()).take(output)
                self.scheduler.retract(rid)
            messages: Sequence[Message] = [*restarted, *(AbortReq(f"r{i}") for at, i in life.aborts if at == step)]
            for output in self.loop.step(messages):
                finals.setdefault(output.rid, Final()).take(output)
            self.scheduler.check_invariants()
            if poison is not None:
                poison(self.kv.snapshot().free)
            step += 1
            assert step < 2000, self.scheduler.statistics()
        return {rid: final for rid, final in finals.items() if rid not in aborted}


def _fresh(add: AddReq) -> AddReq:
    if add.grammar is None:
        return add
    return AddReq(add.rid, add.input_ids, add.sampling, logprob=add.logprob, grammar=add.grammar.restarted())  # type: ignore[attr-defined]


def check_same(got: dict[str, Final], expected: dict[str, Final]) -> None:
    assert got.keys() == expected.keys()
    for rid, final in got.items():
        other = expected[rid]
        assert (final.ids, final.text, final.kept_len) == (other.ids, other.text, other.kept_len), rid
        assert final.reason is not None
        assert other.reason is not None
        assert final.reason.kind == other.reason.kind, rid
        assert (final.reason.matched, type(final.error)) == (other.reason.matched, type(other.error)), rid
        assert final.logprobs == other.logprobs, rid
        assert final.input_logprobs == other.input_logprobs, rid
        assert final.scores == other.scores, rid


@given(
    life=lives(),
    num_pages=st.sampled_from([8, 10, 14, 60]),
    ngram=st.sampled_from([0, 4]),
    batching=st.sampled_from(["prefill-first", "mixed", "decode-first"]),
    chunk=st.sampled_from([None, 8]),
    seed=st.integers(0, 99),
    eager=st.sampled_from([0.0, 0.3, 0.7]),
    head_rows=st.sampled_from([2, 256]),
)
@settings(deadline=None, max_examples=min(settings().max_examples, 30))
def test_steps_that_overlap_on_a_device_give_what_steps_one_by_one_give(
    life: Life, num_pages: int, ngram: int, batching: str, chunk: int | None, seed: int, eager: float, head_rows: int
) -> None:
    """Small pools force retracts; free pages are poisoned in the device's order; its queue is done late, or partly early."""
    values = {"num_ngram_tokens": ngram, "batching": batching, "chunked_prefill_size": chunk, "context_length": 48}
    values["schedule_conservativeness"] = 0.05
    results: list[dict[str, Final]] = []
    for ahead in (False, True):
        queue = SimulatedQueue(seed, eager)
        pool = exact_pool(num_pages, 4)
        model = ExactModel(pool, VOCAB)
        runner = DeviceRunner(
            model, NoAttention(), pool, vocab_size=VOCAB, eos_ids={EOS}, queue=queue, head_rows=head_rows
        )
        cfg = config(disable_overlap_schedule=not ahead, launch_ahead=ahead, **values)

        def poison(free: Sequence[int], model: ExactModel = model, queue: SimulatedQueue = queue) -> None:
            pages = list(free)
            queue.submit(lambda: model.poison(pages))

        results.append(Bench(cfg, runner, num_pages).live(life, poison))
    check_same(results[1], results[0])


@given(life=lives(), num_pages=st.sampled_from([14, 60]), ngram=st.sampled_from([0, 4]))
@settings(deadline=None, max_examples=min(settings().max_examples, 15))
def test_a_runner_on_a_thread_of_its_own_gives_what_one_without_gives(life: Life, num_pages: int, ngram: int) -> None:
    results: list[dict[str, Final]] = []
    for threaded in (False, True):
        pool = exact_pool(num_pages, 4)
        plain = ModelRunner(ExactModel(pool, VOCAB), NoAttention(), pool, vocab_size=VOCAB, eos_ids={EOS})
        runner = ThreadedRunner(plain) if threaded else plain
        cfg = config(disable_overlap_schedule=not threaded, num_ngram_tokens=ngram, context_length=48)
        results.append(Bench(cfg, runner, num_pages).live(life))
        if isinstance(runner, ThreadedRunner):
            runner.close()
    check_same(results[1], results[0])


@given(life=lives(), ngram=st.sampled_from([0, 4]))
@settings(deadline=None, max_examples=min(settings().max_examples, 15))
def test_the_device_draws_what_the_host_draws(life: Life, ngram: int) -> None:
    """Two ways to the same tokens: the host's sampler row by row, and the device's over all rows at once."""
    results: list[dict[str, Final]] = []
    for make in (ModelRunner, DeviceRunner):
        pool = exact_pool(60, 4)
        runner = make(ExactModel(pool, VOCAB), NoAttention(), pool, vocab_size=VOCAB, eos_ids={EOS})
        results.append(Bench(config(num_ngram_tokens=ngram, context_length=48), runner, 60).live(life))
    for final in (final for finals in results for final in finals.values()):
        _round(final)
    check_same(results[1], results[0])


def _round(final: Final) -> None:
    final.logprobs = [_rounded(entry) for entry in final.logprobs]
    if final.input_logprobs is not None:
        final.input_logprobs = tuple(_rounded(entry) for entry in final.input_logprobs)
    if final.scores is not None:
        final.scores = tuple(tuple(round(value, 4) for value in line) for line in final.scores)


def _rounded(entry: TokenLogprob) -> TokenLogprob:
    def near(pairs: tuple[tuple[int, float], ...]) -> tuple[tuple[int, float], ...]:
        return tuple((t, round(value, 4)) for t, value in pairs)

    return TokenLogprob(
        entry.token_id,
        None if entry.logprob is None else round(entry.logprob, 4),
        near(entry.top),
        near(entry.asked),
    )


@pytest.mark.parametrize("ngram", [0, 4])
def test_a_real_model_on_a_device_says_the_same_with_and_without_overlap(ngram: int) -> None:
    adds = [
        (
            i,
            AddReq(
                f"r{i}",
                SHARED[: 5 + 3 * i],
                greedy(12, temperature=0.7 * (i % 2), seed=i),
                logprob=LogprobParams(None, 1),
            ),
        )
        for i in range(5)
    ]
    results: list[dict[str, Final]] = []
    for ahead in (False, True):
        pool = KvPool(TINY.num_layers, 24, TINY.num_kv_heads, TINY.head_dim, 4)
        queue = SimulatedQueue(3, 0.4)
        runner = DeviceRunner(_Narrow(VOCAB), TorchAttention(pool), pool, vocab_size=VOCAB, queue=queue)
        cfg = config(disable_overlap_schedule=not ahead, launch_ahead=ahead, num_ngram_tokens=ngram)
        bench = Bench(cfg, runner, 24)
        assert isinstance(bench.loop, AsyncLoop) == ahead
        results.append(bench.live(Life(tuple(adds))))
    for final in (final for finals in results for final in finals.values()):
        _round(final)
    check_same(results[1], results[0])


class _Narrow:
    """A tiny Llama whose head has only its first tokens."""

    def __init__(self, vocab_size: int) -> None:
        self._model = tiny_llama()
        self._vocab_size = vocab_size

    def forward(self, fb: ForwardBatch, attention: AttentionBackend) -> torch.Tensor:
        return self._model.forward(fb, attention)

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        return self._model.logits(hidden)[:, : self._vocab_size]
