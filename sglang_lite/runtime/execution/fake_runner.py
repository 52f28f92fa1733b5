"""FakeRunner: a model without a model. KV is a hash chain, so any wrong page, row, position or stale prefix is seen.

Every KV slot keeps its token, its position and the hash of the whole sequence up to it. A row writes its chain through
its pages after the hash it finds before its first token; then, all rows written, each row's whole prefix is read back
and checked link by link. The next token is a function of the hash of the whole sequence, so a wrong but
consistent prefix gives wrong tokens.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sglang_lite.errors import DeadEndError
from sglang_lite.request_tree import LogprobParams, SamplingParams
from sglang_lite.runtime.scheduler.messages import GrammarCursor
from sglang_lite.runtime.scheduler.plan import (
    KeptDraft,
    LogprobTarget,
    Plan,
    RowPlan,
    RowResult,
    SampleSpec,
    StepResult,
    TargetResult,
)

START = np.uint64(0x9E3779B97F4A7C15)
POISON = -7


def mix(before: np.ndarray | np.uint64, token: np.ndarray | int, position: np.ndarray | int) -> NDArray[np.uint64]:
    """The hash of a sequence from that of all but its last token (splitmix64); over arrays elementwise."""
    with np.errstate(over="ignore"):
        h = np.asarray(before, np.uint64) ^ (np.asarray(token, np.uint64) * np.uint64(0xD1342543DE82EF95))
        h = h + np.asarray(position, np.uint64) * START + np.uint64(0x632BE59BD9B4E019)
        h = (h ^ (h >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        h = (h ^ (h >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return h ^ (h >> np.uint64(31))


def chain(ids: Iterable[int], before: np.uint64 = START, position: int = 0) -> list[np.uint64]:
    """The hash after each token."""
    hashes: list[np.uint64] = []
    for offset, token in enumerate(ids):
        before = np.uint64(mix(before, token, position + offset))
        hashes.append(before)
    return hashes


class Oracle:
    """What the fake model says after a sequence of hash `h`: pure functions."""

    def __init__(self, vocab_size: int) -> None:
        self.vocab_size = vocab_size

    def logprob(self, h: np.uint64, token: int) -> float:
        """The log-probability of a token: a number between -10 and 0 with three digits."""
        return -float(int(mix(h, token, 0xA5)) % 10_000) / 1000

    def top(self, h: np.uint64, num: int) -> tuple[tuple[int, float], ...]:
        """The `num` most likely tokens, best first."""
        if not num:
            return ()
        ranked = sorted(range(self.vocab_size), key=lambda t: (-self.logprob(h, t), t))
        return tuple((t, self.logprob(h, t)) for t in ranked[:num])

    def next_token(
        self, h: np.uint64, params: SamplingParams, seed: int, position: int, grammar: GrammarCursor | None
    ) -> int | None:
        """The drawn token; greedy: of the sequence only; else of seed and position too. None: the grammar allows none."""
        drawn = int(h if params.is_greedy else mix(h, seed, position)) % self.vocab_size
        if grammar is None:
            return drawn
        mask = np.zeros((1, -(-self.vocab_size // 32)), np.int32)
        grammar.fill_bitmask(mask)
        bits = np.unpackbits(mask.view(np.uint8), bitorder="little")[: self.vocab_size]
        allowed = np.flatnonzero(bits)
        return int(allowed[drawn % len(allowed)]) if len(allowed) else None

    def row(self, h: np.uint64, spec: SampleSpec) -> RowResult:
        """A sampling row's result."""
        token = spec.given
        if token is None:
            token = self.next_token(h, spec.params, spec.seed, spec.position, spec.grammar)
        if token is None:
            return RowResult(error=DeadEndError("sampling: no token of the vocabulary is allowed"))
        if spec.logprob is None:
            return RowResult(token)
        return RowResult(token, *self.alternatives(h, token, spec.logprob))

    def alternatives(
        self, h: np.uint64, token: int, wanted: LogprobParams
    ) -> tuple[float, tuple[tuple[int, float], ...], tuple[tuple[int, float], ...]]:
        """(log-probability, top, asked) of a drawn token."""
        asked = tuple((t, self.logprob(h, t)) for t in wanted.token_ids)
        return self.logprob(h, token), self.top(h, wanted.top_num), asked

    def target(self, h: np.uint64, target: LogprobTarget) -> TargetResult:
        """The answer to a target."""
        return TargetResult(tuple(self.logprob(h, t) for t in target.token_ids), self.top(h, target.top_num))


@dataclass
class Work:
    """What the runner did, in tokens and rows."""

    steps: int = 0
    rows: int = 0
    tokens: int = 0
    copied_tokens: int = 0
    most_tokens: int = 0
    modes: list[str] = field(default_factory=list)


class Chain(NamedTuple):
    """What a row's slots hold, from its first token on: uint64 hashes and int64 tokens, [seq_len] each."""

    hashes: NDArray[np.uint64]
    tokens: NDArray[np.int64]


class FakeRunner:
    """Runs plans over a pool of canaries."""

    def __init__(self, num_pages: int, page_size: int, vocab_size: int, fail_rids: Sequence[str] = ()) -> None:
        self.page_size = page_size
        self.oracle = Oracle(vocab_size)
        self.work = Work()
        self.fail_rids = set(fail_rids)
        self._hashes = np.zeros(num_pages * page_size, np.uint64)
        self._tokens = np.full(num_pages * page_size, POISON, np.int64)
        self._positions = np.full(num_pages * page_size, POISON, np.int64)

    def poison(self, pages: Iterable[int]) -> None:
        """These pages are free: what they hold must never be read again. Call between a commit and the next step."""
        for page in pages:
            self._tokens[page * self.page_size : (page + 1) * self.page_size] = POISON

    def run(self, plan: Plan) -> StepResult:
        """Do the copies, write every row's KV, check every row's prefix, answer every row."""
        chains = self.forward(plan)
        return StepResult(
            plan.step, tuple(self.answer(row, found) for row, found in zip(plan.rows, chains, strict=True))
        )

    def forward(self, plan: Plan) -> list[Chain]:
        """Do the copies, write every row's KV, then read and check every row's; every token is known."""
        self._copy(plan)
        for row in plan.rows:
            self._write(row)
        if plan.rows:
            self.work.steps += 1
            self.work.rows += len(plan.rows)
            self.work.tokens += (tokens := sum(row.extend_len for row in plan.rows))
            self.work.most_tokens = max(self.work.most_tokens, tokens)
            self.work.modes.append(plan.mode.value)
        return [self._read(row) for row in plan.rows]

    def _copy(self, plan: Plan) -> None:
        read = []
        for copy in plan.copies:
            assert 0 < copy.num_tokens < max(self.page_size, 2), f"{copy} copies no head of a page of {self.page_size}"
            source = slice(copy.src * self.page_size, copy.src * self.page_size + copy.num_tokens)
            read.append((self._hashes[source].copy(), self._tokens[source].copy(), self._positions[source].copy()))
        for copy, (hashes, tokens, positions) in zip(plan.copies, read, strict=True):
            start = copy.dst * self.page_size
            self.poison([copy.dst])
            self._hashes[start : start + copy.num_tokens] = hashes
            self._tokens[start : start + copy.num_tokens] = tokens
            self._positions[start : start + copy.num_tokens] = positions
            self.work.copied_tokens += copy.num_tokens

    def _slots(self, row: RowPlan, start: int, stop: int) -> NDArray[np.int64]:
        positions = np.arange(start, stop)
        return row.pages[positions // self.page_size].astype(np.int64) * self.page_size + positions % self.page_size

    def _write(self, row: RowPlan) -> None:
        assert row.extend_len >= 1, f"row {row.rid!r} computes nothing"
        num_spare = len(row.pages) - -(-row.seq_len // self.page_size)
        assert num_spare == 0 or (row.num_guesses and num_spare > 0), f"row {row.rid!r} has {len(row.pages)} pages"
        assert (row.pages > 0).all(), f"row {row.rid!r} uses the sink page: {row.pages}"
        before = START
        if row.prefix_len:
            before = self._hashes[self._slots(row, row.prefix_len - 1, row.prefix_len)][0]
        slots = self._slots(row, row.prefix_len, row.seq_len)
        self._hashes[slots] = chain(row.input_ids, before, row.prefix_len)
        self._tokens[slots] = row.input_ids
        self._positions[slots] = np.arange(row.prefix_len, row.seq_len)

    def _read(self, row: RowPlan) -> Chain:
        slots = self._slots(row, 0, row.seq_len)
        hashes, tokens = self._hashes[slots], self._tokens[slots]
        assert (self._positions[slots] == np.arange(row.seq_len)).all(), f"row {row.rid!r} reads KV of other positions"
        assert (tokens >= 0).all(), f"row {row.rid!r} reads KV of a free page at {np.flatnonzero(tokens < 0)}"
        expected = mix(np.concatenate([[START], hashes[:-1]]), tokens, np.arange(row.seq_len))
        assert (hashes == expected).all(), f"row {row.rid!r}: broken chain at {np.flatnonzero(hashes != expected)}"
        assert tuple(tokens[row.prefix_len :]) == row.input_ids, f"row {row.rid!r}: another row wrote over its tokens"
        return Chain(hashes, tokens)

    def answer(self, row: RowPlan, found: Chain) -> RowResult:
        """What a row gives over what was found in its slots."""
        hashes, tokens = found
        targets = tuple(self.oracle.target(hashes[row.prefix_len + t.query], t) for t in row.targets)
        if row.rid in self.fail_rids:
            return RowResult(error=DeadEndError(f"row {row.rid!r} fails on purpose"))
        if row.sample is None:
            return RowResult(targets=targets)
        kept: list[KeptDraft] = []
        first = row.seq_len - len(row.drafts)
        for end, spec in enumerate((*row.drafts, row.sample), first):
            known = (*spec.prompt_ids, *spec.output_ids)
            assert tuple(tokens[:end]) == known, (
                f"row {row.rid!r} attends to {tuple(tokens[:end])}, its sequence is {known}"
            )
            assert spec.position == end, f"row {row.rid!r} draws token {spec.position} after {end} tokens"
            result = self.oracle.row(hashes[end - 1], spec)
            if end == row.seq_len or result.token_id is None or result.token_id != tokens[end]:
                return RowResult(
                    result.token_id, result.logprob, result.top, result.asked, targets, result.error, tuple(kept)
                )
            kept.append(KeptDraft(result.token_id, result.logprob, result.top, result.asked))
        raise AssertionError("the last token of a row always answers")
