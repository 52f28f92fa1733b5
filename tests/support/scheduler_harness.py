"""Drives a Scheduler with the FakeRunner, checks it after every step, and knows what every request should give."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from sglang_lite.errors import KvOutOfMemoryError, SglangLiteError
from sglang_lite.request_tree import SamplingParams
from sglang_lite.runtime.memory.kv import KvManager
from sglang_lite.runtime.scheduler.config import SchedulerConfig
from sglang_lite.runtime.scheduler.messages import (
    NO_TOKEN,
    AddReq,
    FinishReason,
    Message,
    ReqOutput,
    TokenLogprob,
    Usage,
)
from sglang_lite.runtime.scheduler.plan import Plan, StepResult
from sglang_lite.runtime.scheduler.scheduler import Scheduler
from tests.support.fake_device import FakeDevice
from tests.support.fake_drafter import FakeDrafter
from tests.support.fake_runner import FakeRunner, Oracle, chain

EOS = 1
# Token 0 and the end are special, 2 is two letters, 3 and 4 are the halves of one character, 5 is a whole one.
VISIBLE = [b"", b"", b"ab", b"\xc3", b"\xa9", "é".encode(), *(bytes([97 + i]) for i in range(6))]
VOCAB = len(VISIBLE)


def config(**changes: object) -> SchedulerConfig:
    """A small configuration: vocabulary, end and context of the fake model."""
    values: dict[str, object] = {"context_length": 64, "vocab_size": VOCAB, "eos_ids": frozenset({EOS})}
    return SchedulerConfig(**(values | changes))  # type: ignore[arg-type]


def greedy(max_new_tokens: int | None = 6, **changes: object) -> SamplingParams:
    """Greedy sampling, end tokens ignored unless said."""
    values: dict[str, object] = {"temperature": 0.0, "seed": 0, "ignore_eos": True, "max_new_tokens": max_new_tokens}
    return SamplingParams(**(values | changes))  # type: ignore[arg-type]


@dataclass
class Final:
    """All that one request gave, put together from its outputs."""

    ids: list[int] = field(default_factory=list)
    data: bytes = b""
    text_ends: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprob] = field(default_factory=list)
    input_logprobs: tuple[TokenLogprob, ...] | None = None
    scores: tuple[tuple[float, ...], ...] | None = None
    reason: FinishReason | None = None
    kept_len: int = 0
    usage: Usage | None = None

    @property
    def text(self) -> bytes:
        """The text that may be shown."""
        return self.data[: self.text_ends[-1]] if self.text_ends else b""

    @property
    def error(self) -> SglangLiteError | None:
        """Why it failed."""
        return self.reason.error if self.reason else None

    def take(self, output: ReqOutput) -> None:
        """Add one output; asserts that the stream only grows and ends once."""
        assert self.reason is None, f"{output.rid!r} has an output after its last: {output}"
        assert output.text_end >= (self.text_ends[-1] if self.text_ends else 0), f"{output.rid!r}: its text shrinks"
        self.ids += output.new_ids
        self.data += output.new_bytes
        assert output.text_end <= len(self.data)
        self.text_ends.append(output.text_end)
        self.logprobs += output.logprobs
        if output.input_logprobs is not None:
            assert self.input_logprobs is None, f"{output.rid!r} gives the prompt's log-probabilities twice"
            self.input_logprobs = output.input_logprobs
        if output.finished is not None:
            assert output.usage is not None
            self.scores, self.reason, self.kept_len, self.usage = (
                output.scores,
                output.finished,
                output.kept_len,
                output.usage,
            )


class Harness:
    """A scheduler, its memory and a fake runner; every step is checked.

    With overlap it does what `OverlapLoop` does, with a check after each part: a step plans, commits what is in flight,
    and launches; with `launch_ahead` what `AsyncLoop` does: it launches before it commits.
    """

    def __init__(
        self,
        cfg: SchedulerConfig | None = None,
        *,
        num_pages: int = 64,
        page_size: int = 4,
        num_rows: int = 16,
        enable_radix: bool = True,
        fail_rids: Sequence[str] = (),
        check_every: int = 1,
        visible: Sequence[bytes] = VISIBLE,
        share_right: float = 0.5,
    ) -> None:
        self.visible = visible
        self.check_every = check_every
        """The ledger is checked, and free pages are poisoned, in every so many steps."""
        self.num_steps = 0
        self.config = cfg or config()
        self.kv = KvManager(
            num_rows=num_rows,
            num_pages=num_pages,
            page_size=page_size,
            max_len=self.config.context_length,
            enable_radix=enable_radix,
        )
        self.scheduler = Scheduler(self.config, self.kv, visible)
        self.device = FakeDevice(num_pages, page_size, self.config.vocab_size, fail_rids)
        self.runner: FakeRunner = self.device
        self.drafter = FakeDrafter(self.device, num_pages, self.config.vocab_size, share_right)
        """Guesses, where the configuration has a draft model; `share_right` of its guesses are right."""
        self.adds: dict[str, AddReq] = {}
        self.finals: dict[str, Final] = {}
        self.plans: list[Plan] = []
        self.in_flight: Callable[[], StepResult] | None = None
        """With overlap: the result that the scheduler has not seen yet."""
        self.is_whole = True
        """False after a step that failed midway: nothing more can be learned from it."""

    def step(self, *messages: Message, in_flight: Sequence[Message] = ()) -> list[ReqOutput]:
        """One step with all its checks; `in_flight`: messages that come while it runs."""
        self._note(messages)
        self.is_whole = False
        self.num_steps += 1
        plan = self.scheduler.step(messages)
        self._check()
        self._check_plan(plan)
        self._check_progress(plan)
        if self.check_every == 1:
            self.plans.append(plan)
        self._note(in_flight)
        if in_flight:
            self.scheduler.receive(in_flight)
            self._check()
        outputs = self._commit(plan)
        self._check()
        self.poison_free()
        self._take(outputs)
        self.is_whole = True
        return outputs

    def settle(self) -> list[ReqOutput]:
        """Commit what is in flight without planning anything; then nothing is."""
        if self.in_flight is None:
            return []
        result, self.in_flight = self.in_flight, None
        outputs = self.scheduler.commit(result())
        self._check()
        self.poison_free()
        self._take(outputs)
        return outputs

    def poison_free(self) -> None:
        """What free pages hold must never be read again. Only where every plan made so far has run."""
        if self._is_due():
            free = self.kv.snapshot().free
            self.runner.poison(free)
            if self.config.num_draft_tokens:
                self.drafter.poison(free)

    def _check(self) -> None:
        if self._is_due():
            self.scheduler.check_invariants()

    def _is_due(self) -> bool:
        return self.num_steps % self.check_every == 0

    def _commit(self, plan: Plan) -> list[ReqOutput]:
        if self.config.disable_overlap_schedule:
            return self.scheduler.commit(self._run(plan))
        outputs: list[ReqOutput] = []
        flight = self.device.launch(plan) if self.config.launch_ahead and plan.rows else None
        if self.in_flight is not None:
            outputs = self.scheduler.commit(self.in_flight())
            self.in_flight = None
            self._check()
        if flight is not None:
            flight.sample(self.scheduler.resolve(plan))
            self.in_flight = flight.result
        elif plan.rows:
            result = self._run(self.scheduler.resolve(plan))
            self.in_flight = lambda: result
        else:
            outputs += self.scheduler.commit(StepResult(plan.step, ()))
        return outputs

    def _run(self, plan: Plan) -> StepResult:
        return self.drafter.run(plan) if self.config.num_draft_tokens else self.runner.run(plan)

    def _take(self, outputs: Sequence[ReqOutput]) -> None:
        for output in outputs:
            self.finals.setdefault(output.rid, Final()).take(output)

    def drain(self, *messages: Message, most_steps: int = 5000) -> dict[str, Final]:
        """Step until there is nothing to do."""
        self.step(*messages)
        for _ in range(most_steps):
            if not self.scheduler.has_work:
                return self.finals
            self.step()
        raise AssertionError(f"still at work after {most_steps} steps: {self.scheduler.statistics()}")

    def rows(self) -> list[tuple[str, int, int]]:
        """(rid, prefix_len, extend_len) of the last plan's rows."""
        return [(row.rid, row.prefix_len, row.extend_len) for row in self.plans[-1].rows]

    def check_idle(self) -> None:
        """Every request ended once, nothing is held, every result is what the model alone would give."""
        assert not self.scheduler.has_work
        assert set(self.finals) == set(self.adds)
        kv = self.kv.statistics()
        assert kv.private_pages == kv.protected_pages == 0, f"pages are held while nothing runs: {kv}"
        assert kv.free_rows == kv.total_rows
        for rid, add in self.adds.items():
            self.check_final(rid, add)

    def check_final(self, rid: str, add: AddReq) -> None:
        """A request's result is the model's own; where it was ended early, the beginning of it."""
        final = self.finals[rid]
        assert final.reason is not None, f"{rid!r} has no end"
        assert final.usage is not None
        expected = reference(add, self.config, self.visible)
        if final.reason.kind == "abort":
            assert final.ids == expected.ids[: len(final.ids)], rid
            assert final.scores is None
            if isinstance(final.error, KvOutOfMemoryError):
                page = self.kv.page_size
                needed = -(-(len(add.input_ids) + len(final.ids)) // page) * page
                assert needed > self.kv.total_tokens, f"{rid!r} ran out of memory with room left"
            return
        assert final.ids == expected.ids, rid
        assert final.text == expected.text, rid
        assert final.reason == expected.reason, rid
        assert final.kept_len == expected.kept_len, rid
        assert final.logprobs == expected.logprobs, rid
        assert final.input_logprobs == expected.input_logprobs, rid
        assert final.scores == expected.scores, rid
        usage = final.usage
        assert usage.completion_tokens == len(final.ids)
        assert usage.prompt_tokens == len(add.input_ids)
        assert usage.known_len <= usage.prompt_tokens + len(final.ids), f"{rid!r} has KV of tokens that it has not"
        is_forced = not usage.known_len and usage.forced_tokens == len(final.ids) > 0
        if is_forced:
            assert not usage.computed_tokens
        elif not usage.retractions and not add.choices:
            assert usage.computed_tokens + usage.cached_tokens == usage.prompt_tokens

    def _note(self, messages: Sequence[Message]) -> None:
        self.adds |= {message.rid: message for message in messages if isinstance(message, AddReq)}

    def _check_progress(self, plan: Plan) -> None:
        now = self.scheduler.statistics()
        idle = now.waiting + now.prefilling + now.running + now.scoring == 0
        assert idle or plan.rows or self.in_flight is not None, f"nothing runs while somebody could: {now}"

    def _check_plan(self, plan: Plan) -> None:
        prefill = [
            row
            for row in plan.rows
            if not row.is_future
            and not row.drafts
            and (row.extend_len > 1 or row.sample is None or not row.sample.output_ids)
        ]
        num_tokens = sum(row.extend_len for row in prefill)
        chunk = self.config.chunked_prefill_size
        if chunk is not None:
            assert num_tokens <= max(chunk, self.kv.page_size) or len(prefill) == 1, f"{num_tokens} prefill tokens"
        elif len({row.rid for row in prefill}) > 1:
            largest = max(row.extend_len for row in prefill)
            assert num_tokens <= self.config.max_prefill_tokens + largest
        assert len({row.rid for row in plan.rows}) <= self.config.max_running_requests
        assert len({copy.dst for copy in plan.copies}) == len(plan.copies), "two copies write one page"


def reference(add: AddReq, cfg: SchedulerConfig, visible: Sequence[bytes] = VISIBLE) -> Final:
    """What the fake model gives for a request alone, with no cache, no batch and no chunks; written the plain way."""
    oracle, prompt, params = Oracle(cfg.vocab_size), add.input_ids, add.sampling
    final, hashes = Final(), chain(prompt)
    if add.logprob is not None and add.logprob.start_len is not None:
        final.input_logprobs = tuple(
            TokenLogprob(prompt[i], *oracle.alternatives(hashes[i - 1], prompt[i], add.logprob))
            if i
            else TokenLogprob(prompt[0], None)
            for i in range(add.logprob.start_len, len(prompt))
        )
    if add.choices is not None:
        final.scores = tuple(
            tuple(
                oracle.logprob(h, t) for h, t in zip([hashes[-1], *chain(c, hashes[-1], len(prompt))], c, strict=False)
            )
            for c in add.choices
        )
        final.reason = FinishReason("stop")
        return final
    grammar = add.grammar.restarted() if add.grammar is not None else None  # type: ignore[attr-defined]
    most = cfg.context_length - len(prompt)
    most = most if params.max_new_tokens is None else min(most, params.max_new_tokens)
    ids, h, ends = final.ids, hashes[-1], [0]
    if not most:
        final.reason = FinishReason("length")
        if add.logprob is not None and (add.logprob.top_num or add.logprob.token_ids):
            final.logprobs = [TokenLogprob(NO_TOKEN, None, *oracle.alternatives(h, 0, add.logprob)[1:])]
    while final.reason is None:
        token = oracle.next_token(h, params, params.seed or 0, len(prompt) + len(ids), grammar)
        if (params.jump_forward or cfg.jump_forward) == "force" and grammar is not None:
            token = next(iter(grammar.jump_forward()), token)
        assert token is not None
        if add.logprob is not None:
            final.logprobs.append(TokenLogprob(token, *oracle.alternatives(h, token, add.logprob)))
        ids.append(token)
        final.data += visible[token]
        ends.append(len(final.data))
        h = chain([token], h, len(prompt) + len(ids) - 1)[0]
        _end_if_due(final, params, cfg, ends, most, grammar)
    final.kept_len = final.kept_len or next((i for i, e in enumerate(ends[1:]) if e > final.text_ends[-1]), len(ids))
    if final.reason.kind == "stop" and not isinstance(final.reason.matched, str) and not params.no_stop_trim:
        by_token = final.reason.matched is not None or (grammar is not None and grammar.is_terminated)
        final.kept_len = len(ids) - by_token
    return final


def _end_if_due(
    final: Final, params: SamplingParams, cfg: SchedulerConfig, ends: list[int], most: int, grammar: object
) -> None:
    ids, floor = final.ids, ends[min(params.min_new_tokens, len(final.ids))]
    found = []
    for stop in params.stop:
        at = final.data.find(stop.encode(), floor)
        if at >= 0:
            found.append((at + len(stop.encode()), at, stop))
    whole = len(final.data)
    if found:
        end, start, stop = min(found)
        final.reason = FinishReason("stop", stop)
        final.text_ends = [end if params.no_stop_trim else start]
        return
    shown = final.data[floor:].decode("utf-8", "surrogateescape")
    matches = [(m.start(), m.end(), pattern) for pattern in params.stop_regex if (m := re.search(pattern, shown))]
    if matches and len(ids) > params.min_new_tokens:
        start, end, pattern = min(matches)
        at = end if params.no_stop_trim else start
        final.reason = FinishReason("stop", pattern)
        final.text_ends = [floor + len(shown[:at].encode("utf-8", "surrogateescape"))]
        return
    is_end = ids[-1] in params.stop_token_ids or (ids[-1] in cfg.eos_ids and not params.ignore_eos)
    final.text_ends = [whole]
    if is_end and len(ids) > params.min_new_tokens:
        final.reason = FinishReason("stop", ids[-1])
        final.text_ends = [whole if params.no_stop_trim else ends[-2]]
    elif len(ids) >= most:
        final.reason = FinishReason("length")
    elif grammar is not None:
        assert grammar.accept_token(ids[-1])  # type: ignore[attr-defined]
        if grammar.is_terminated or grammar.has_only_end:  # type: ignore[attr-defined]
            final.reason = FinishReason("stop")
            trims = grammar.is_terminated and not params.no_stop_trim  # type: ignore[attr-defined]
            final.text_ends = [ends[-2] if trims else whole]
