"""Many random scheduler steps on the fake model, the ledger held: `python -m tests.random_steps --steps 1000000 --seed 1`.

A run is a row of lives. Each has a random configuration (page, chunk, pool, policy, batching, overlap, priorities, limits)
and random requests, aborts, retracts, evictions, leases, flushes and late grammars; it ends idle, and every result
is compared with what the fake model gives alone. Equal arguments make equal runs.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from random import Random
from typing import Any, get_args

from sglang_lite.request_tree import LogprobParams
from sglang_lite.runtime.scheduler.config import SchedulePolicy
from sglang_lite.runtime.scheduler.messages import AbortReq, AddReq, EndLease, GrammarReady, Message, SetNextUse
from tests.support.fake_grammar import FakeGrammar, guessed
from tests.support.scheduler_harness import EOS, VOCAB, Harness, config, greedy

SHARED = tuple(2 + (7 * i * i + i // 3) % (VOCAB - 2) for i in range(40))
STOPS = ("a", "ab", "bca", "é", "éa", "dd")
LIFE_STEPS = 120
"""Steps of a life before it is left to end."""


class Life:
    """One scheduler from its start to its idle end."""

    def __init__(self, random: Random, check_every: int) -> None:
        self.random = random
        page = random.choice((1, 4, 16))
        chunk = random.choice((1, 2, 5, None))
        max_running = random.choice((1, 2, 4, 16))
        cfg = config(
            chunked_prefill_size=None if chunk is None else chunk * page,
            schedule_policy=random.choice(get_args(SchedulePolicy)),
            batching=random.choice(("prefill-first", "mixed", "decode-first")),
            max_running_requests=max_running,
            max_prefill_tokens=random.choice((8, 64)),
            scan_window=random.choice((1, 3, 128)),
            schedule_conservativeness=random.choice((0.05, 1.0)),
            ageing_tokens=random.choice((0, 20, 1000)),
            enable_priority_scheduling=random.random() < 0.4,
            max_queued_requests=random.choice((None, None, None, 3)),
            random_seed=random.randrange(100),
            disable_overlap_schedule=random.random() < 0.5,
            num_draft_tokens=random.choice((0, 0, 4)),
        )
        self.harness = Harness(
            cfg,
            num_pages=random.choice((16, 32, 48, 80, 400)) // page + 1,
            page_size=page,
            num_rows=max_running + random.choice((0, 3)),
            enable_radix=random.random() < 0.8,
            check_every=check_every,
        )
        self.grammars: dict[str, FakeGrammar] = {}
        self.num_requests = 0

    def live(self, num_steps: int) -> int:
        """Go so many steps, then to the end; returns the steps it took."""
        actions = (self.add, self.add, self.add, self.run, self.run, self.abort, self.disturb, self.ready)
        while self.harness.num_steps < num_steps:
            self.random.choice(actions)()
        self.harness.settle()
        self.harness.drain(*[GrammarReady(rid, grammar) for rid, grammar in self.grammars.items()])
        self.harness.scheduler.check_invariants()
        self.harness.check_idle()
        assert self.harness.scheduler.flush_cache()
        assert self.harness.kv.available_tokens == self.harness.kv.total_tokens
        return self.harness.num_steps

    def add(self) -> None:
        adds = [self.request() for _ in range(self.random.choice((1, 1, 2, 4)))]
        self.harness.step(*adds)
        for add in adds:
            if (grammar := self.grammars.get(add.rid)) is None:
                continue
            # What the request should give is known with its grammar, which comes later.
            self.harness.adds[add.rid] = AddReq(add.rid, add.input_ids, add.sampling, grammar=grammar)
            if add.rid in self.harness.finals:
                del self.grammars[add.rid]

    def request(self) -> AddReq:
        random = self.random
        rid, self.num_requests = f"r{self.num_requests}", self.num_requests + 1
        tail = tuple(random.randrange(VOCAB) for _ in range(random.randrange(5)))
        prompt = (*SHARED[: random.randrange(31)], *tail) or (2,)
        values: dict[str, Any] = {"lease": random.choice((None, "a", "b")), "next_use": random.randrange(9)}
        if self.harness.config.uses_priority:
            values["priority"] = random.choice((None, -1, 0, 5))
        kind = random.random()
        if kind < 0.15:
            choices = tuple(
                tuple(random.randrange(VOCAB) for _ in range(random.randrange(1, 9)))
                for _ in range(random.randrange(1, 5))
            )
            return AddReq(rid, prompt, greedy(), choices=choices, **values)
        if kind < 0.3:
            places = [
                frozenset(random.sample(range(2, VOCAB), random.randrange(1, 4))) for _ in range(random.randrange(1, 9))
            ]
            grammar = guessed(places, EOS, random.randrange(256))
            if random.random() < 0.5:
                return AddReq(rid, prompt, self.params(), grammar=grammar, is_continuing=True)
            self.grammars[rid] = grammar
            return AddReq(rid, prompt, self.params(), waits_for_grammar=True)
        if random.random() < 0.3:
            start = random.choice((None, random.randrange(40)))
            values["logprob"] = LogprobParams(start, random.randrange(3), random.choice(((), (3, 5))))
        return AddReq(rid, prompt, self.params(), **values)

    def params(self) -> Any:
        random = self.random
        return greedy(
            random.choice((0, 1, 3, 6, 12, None)),
            temperature=random.choice((0.0, 1.0)),
            seed=random.randrange(4),
            ignore_eos=random.random() < 0.5,
            jump_forward=random.choice((None, "verify", "off", "force", "force")),
            min_new_tokens=random.choice((0, 0, 3)),
            stop=tuple(random.sample(STOPS, random.choice((0, 0, 1, 2)))),
            stop_token_ids=tuple(random.sample(range(VOCAB), random.choice((0, 0, 1)))),
            no_stop_trim=random.random() < 0.3,
        )

    def run(self) -> None:
        for _ in range(self.random.randrange(1, 9)):
            self.harness.step()

    def abort(self) -> None:
        rid = self.random.choice(["unknown", *list(self.harness.adds)[-12:]])
        if self.random.random() < 0.5:
            self.harness.step(in_flight=[AbortReq(rid), AbortReq(rid)])
        else:
            self.harness.step(AbortReq(rid))

    def ready(self) -> None:
        messages: list[Message] = []
        if self.grammars:
            rid = self.random.choice(sorted(self.grammars))
            messages.append(GrammarReady(rid, self.grammars.pop(rid)))
        self.harness.step(*messages)

    def disturb(self) -> None:
        """Something from outside: a retract, a need for pages, a lease, a flush."""
        random, harness, kv = self.random, self.harness, self.harness.kv
        match random.randrange(4):
            case 0:
                harness.settle()
                for rid in list(harness.adds)[-4:]:
                    harness.scheduler.retract(rid)
            case 1:
                harness.settle()
                want = min(int(kv.available_tokens * random.random()), kv.max_len)
                if want and kv.free_rows and (admission := kv.admit("other", [0] * want, match_limit=0, new_len=want)):
                    kv.release(admission.hold, None)
            case 2:
                lease = random.choice("ab")
                harness.step(EndLease(lease) if random.random() < 0.3 else SetNextUse(lease, random.randrange(9)))
            case _:
                harness.scheduler.flush_cache()


def run(num_steps: int, seed: int, check_every: int) -> tuple[int, int, dict[str, int]]:
    """(steps, lives, totals of what happened) of one run."""
    random = Random(seed)
    steps = lives = 0
    counted = (
        "requests",
        "retractions",
        "dropped_rows",
        "refused",
        "evicted_pages",
        "overlap lives",
        "forced",
        "rejected",
    )
    totals = dict.fromkeys(counted, 0)
    while steps < num_steps:
        life_seed = random.getrandbits(64)
        life = Life(Random(life_seed), check_every)
        try:
            steps += life.live(LIFE_STEPS)
        except BaseException:
            print(f"seed {seed}, life {lives}, life seed {life_seed}: {life.harness.config}", file=sys.stderr)
            raise
        lives += 1
        now = life.harness.scheduler.statistics()
        totals["requests"] += life.num_requests
        totals["retractions"] += now.retractions
        totals["dropped_rows"] += now.dropped_rows
        totals["refused"] += now.refused
        totals["forced"] += now.forced_tokens
        totals["rejected"] += now.rejected_tokens
        totals["evicted_pages"] += now.kv.evicted_pages
        totals["overlap lives"] += not life.harness.config.disable_overlap_schedule
    return steps, lives, totals


def main(argv: Sequence[str] | None = None) -> int:
    """Run and report."""
    parser = argparse.ArgumentParser(description="Random scheduler steps on the fake model, the ledger held.")
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--check-every", type=int, default=1, help="check the whole ledger in every so many steps")
    options = parser.parse_args(argv)
    started = time.perf_counter()
    steps, lives, totals = run(options.steps, options.seed, options.check_every)
    took = time.perf_counter() - started
    print(
        f"{steps} steps in {lives} lives, seed {options.seed}, ledger every {options.check_every}: {took:.1f} s; {totals}"
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
