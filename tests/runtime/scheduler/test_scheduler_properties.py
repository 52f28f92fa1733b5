"""Random lives of the scheduler on a fake model: nothing leaks, nothing hangs, every result is the model's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import get_args

import hypothesis.strategies as st
from hypothesis import note, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from sglang_lite.errors import GrammarError
from sglang_lite.request_tree import LogprobParams
from sglang_lite.runtime.scheduler.config import SchedulePolicy
from sglang_lite.runtime.scheduler.messages import AbortReq, AddReq, EndLease, GrammarReady, SetNextUse
from tests.support.fake_grammar import FakeGrammar, guessed
from tests.support.scheduler_harness import EOS, VISIBLE, VOCAB, Harness, config, greedy

SHARED = tuple(2 + (7 * i * i + i // 3) % (VOCAB - 2) for i in range(40))
"""Most prompts begin with a part of this, so that prefixes are shared and split."""

token = st.integers(0, VOCAB - 1)
prompts = st.builds(
    lambda n, tail: (*SHARED[:n], *tail) or (2,), st.integers(0, 30), st.lists(token, max_size=6).map(tuple)
)
params = st.builds(
    greedy,
    st.one_of(st.integers(0, 12), st.none()),
    temperature=st.sampled_from([0.0, 1.0]),
    seed=st.integers(0, 3),
    ignore_eos=st.booleans(),
    min_new_tokens=st.sampled_from([0, 0, 3]),
    stop=st.lists(st.sampled_from(["a", "ab", "bca", "é", "éa", "dd"]), max_size=2).map(tuple),
    stop_token_ids=st.lists(token, max_size=1).map(tuple),
    no_stop_trim=st.booleans(),
    jump_forward=st.sampled_from(["verify", "verify", "off", "force", "force"]),
)
logprobs = st.one_of(
    st.none(),
    st.none(),
    st.builds(
        LogprobParams, st.one_of(st.none(), st.integers(0, 40)), st.integers(0, 2), st.sampled_from([(), (3, 5)])
    ),
)
choices = st.lists(st.lists(token, min_size=1, max_size=9).map(tuple), min_size=1, max_size=5).map(tuple)
places = st.lists(st.frozensets(token, min_size=1, max_size=4), min_size=1, max_size=8)
leases = st.sampled_from([None, "a", "b"])
GRAMMAR_ERROR = GrammarError("compiling the grammar of a test: it is meant to fail")


class SchedulerMachine(RuleBasedStateMachine):
    """Adds, steps, aborts, retracts, evictions, leases, flushes and late grammars, in any order."""

    @initialize(
        page_size=st.sampled_from([1, 4, 16]),
        chunk_pages=st.sampled_from([1, 2, 5, None]),
        policy=st.sampled_from(get_args(SchedulePolicy)),
        batching=st.sampled_from(["prefill-first", "mixed", "decode-first"]),
        pool_tokens=st.sampled_from([16, 32, 48, 80, 400]),
        max_running=st.sampled_from([1, 2, 4, 16]),
        spare_rows=st.sampled_from([0, 3]),
        max_prefill=st.sampled_from([8, 64]),
        window=st.sampled_from([1, 3, 128]),
        radix=st.sampled_from([True, True, True, False]),
        overlap=st.sampled_from(["off", "delay", "ahead"]),
        priorities=st.sampled_from([None, "high first", "low first"]),
        limit=st.sampled_from([None, None, 2]),
        ngram=st.sampled_from([0, 0, 5]),
        drafted=st.sampled_from([0, 0, 5]),
        share_right=st.sampled_from([0.0, 0.5, 0.9, 1.0]),
        padding=st.sampled_from([0, 0, 9]),
    )
    def start(
        self,
        page_size: int,
        chunk_pages: int | None,
        policy: str,
        batching: str,
        pool_tokens: int,
        max_running: int,
        spare_rows: int,
        max_prefill: int,
        window: int,
        radix: bool,
        overlap: str,
        ngram: int,
        drafted: int,
        share_right: float,
        padding: int,
        priorities: str | None,
        limit: int | None,
    ) -> None:
        cfg = config(
            vocab_size=VOCAB + padding,
            chunked_prefill_size=None if chunk_pages is None else chunk_pages * page_size,
            schedule_policy=policy,
            batching=batching,
            max_running_requests=max_running,
            max_prefill_tokens=max_prefill,
            scan_window=window,
            ageing_tokens=20,
            disable_overlap_schedule=overlap == "off",
            launch_ahead=overlap == "ahead",
            num_ngram_tokens=ngram,
            num_draft_tokens=0 if overlap == "ahead" else drafted,
            enable_priority_scheduling=priorities is not None,
            schedule_low_priority_values_first=priorities == "low first",
            max_queued_requests=limit,
        )
        num_pages = pool_tokens // page_size + 1
        self.harness = Harness(
            cfg,
            num_pages=num_pages,
            page_size=page_size,
            num_rows=max_running + spare_rows,
            enable_radix=radix,
            visible=[*VISIBLE, *[b""] * padding],
            share_right=share_right,
        )
        self.grammars: dict[str, FakeGrammar] = {}
        self.failed_grammars: set[str] = set()

    def add(self, prompt: tuple[int, ...], **values: object) -> AddReq:
        rid = f"r{len(self.harness.adds)}"
        return AddReq(rid, prompt, **values)  # type: ignore[arg-type]

    @rule(
        prompt=prompts,
        sampling=params,
        logprob=logprobs,
        lease=leases,
        again=st.booleans(),
        n=st.integers(1, 3),
        priority=st.sampled_from([None, -1, 3]),
    )
    def generate(self, prompt, sampling, logprob, lease, again, n, priority) -> None:
        values = {"lease": lease, "is_continuing": again, "next_use": n}
        if self.harness.config.uses_priority:
            values["priority"] = priority
        for _ in range(n):
            self.harness.step(self.add(prompt, sampling=sampling, logprob=logprob, **values))

    @rule(prompt=prompts, sampling=params, n=st.integers(2, 5))
    def generate_many_at_once(self, prompt, sampling, n) -> None:
        adds = [AddReq(f"r{len(self.harness.adds) + i}", prompt, sampling) for i in range(n)]
        self.harness.step(*adds)

    @rule(prompt=prompts, options=choices, logprob=logprobs)
    def score(self, prompt, options, logprob) -> None:
        self.harness.step(self.add(prompt, sampling=greedy(), choices=options, logprob=logprob))

    @rule(
        prompt=prompts,
        sampling=params,
        allowed=places,
        late=st.booleans(),
        forced=st.integers(0, 255),
        logprob=logprobs,
    )
    def generate_by_grammar(self, prompt, sampling, allowed, late, forced, logprob) -> None:
        grammar = guessed(allowed, EOS, forced)
        values = {"sampling": sampling, "logprob": logprob}
        add = self.add(prompt, grammar=None if late else grammar, waits_for_grammar=late, **values)
        self.harness.step(add)
        self.harness.adds[add.rid] = AddReq(add.rid, prompt, grammar=grammar, **values)
        if late and add.rid not in self.harness.finals:
            self.grammars[add.rid] = grammar

    @precondition(lambda self: self.grammars)
    @rule(data=st.data(), fails=st.sampled_from([False, False, True]))
    def grammar_ready(self, data, fails) -> None:
        rid = data.draw(st.sampled_from(sorted(self.grammars)))
        grammar = self.grammars.pop(rid)
        self.harness.step(GrammarReady(rid, error=GRAMMAR_ERROR) if fails else GrammarReady(rid, grammar))

    @rule(n=st.integers(1, 12))
    def run(self, n) -> None:
        for _ in range(n):
            self.harness.step()

    @rule(data=st.data(), in_flight=st.booleans())
    def abort(self, data, in_flight) -> None:
        rid = data.draw(st.sampled_from(["unknown", *self.harness.adds]))
        if in_flight:
            self.harness.step(in_flight=[AbortReq(rid), AbortReq(rid)])
        else:
            self.harness.step(AbortReq(rid))
        if self.harness.in_flight is not None:
            self.harness.step()  # whoever came while two plans were in flight ends with the second
        assert not self.harness.scheduler.is_known(rid)

    @rule()
    def settle(self) -> None:
        """The loop may stop to look, with nothing in flight."""
        self.harness.settle()

    @rule(data=st.data())
    def retract(self, data) -> None:
        rid = data.draw(st.sampled_from(["unknown", *self.harness.adds]))
        self.harness.settle()
        done = self.harness.scheduler.retract(rid)
        note(f"retract {rid}: {done}")
        self.harness.scheduler.check_invariants()
        self.harness.poison_free()

    @rule(share=st.floats(0.1, 1.0))
    def evict(self, share) -> None:
        """Somebody else needs a part of what is available for a moment."""
        kv = self.harness.kv
        want = min(int(kv.available_tokens * share), kv.max_len)
        if want and kv.free_rows and (admission := kv.admit("other", [0] * want, match_limit=0, new_len=want)):
            kv.release(admission.hold, None)
        self.harness.scheduler.check_invariants()
        self.harness.poison_free()

    @rule(lease=st.sampled_from(["a", "b"]), next_use=st.one_of(st.none(), st.integers(0, 9)))
    def lease(self, lease, next_use) -> None:
        self.harness.step(EndLease(lease) if next_use is None else SetNextUse(lease, next_use))

    @rule()
    def flush(self) -> None:
        idle = not any(True for _ in self.harness.scheduler._live)
        assert self.harness.scheduler.flush_cache() == idle
        self.harness.scheduler.check_invariants()
        self.harness.poison_free()

    def teardown(self) -> None:
        if not hasattr(self, "harness") or not self.harness.is_whole:
            return
        self.harness.settle()
        ready = [GrammarReady(rid, grammar) for rid, grammar in sorted(self.grammars.items())]
        self.harness.drain(*ready)
        self.harness.check_idle()
        assert self.harness.scheduler.flush_cache()
        assert self.harness.kv.available_tokens == self.harness.kv.total_tokens


TestSchedulerMachine: Callable[[], None] = SchedulerMachine.TestCase
TestSchedulerMachine.settings = settings(max_examples=settings().max_examples, stateful_step_count=20)  # type: ignore[attr-defined]
