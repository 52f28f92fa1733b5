"""One request's results as they come in: ids, text, log-probabilities; knows no queue and no program."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sglang_lite.request_tree import LogprobParams, TokenKind
from sglang_lite.runtime.scheduler.messages import NO_TOKEN, FinishReason, ReqOutput, TokenLogprob, Usage
from sglang_lite.runtime.text.detokenizer import TextStream


@dataclass(frozen=True, slots=True)
class Finished:
    """The end of a request: why, how many output tokens stay, and the counts."""

    reason: FinishReason
    kept_len: int
    usage: Usage
    queue_s: float | None = None


class Generation:
    """Collects the outputs of one request. `output_ids` has every committed token until the end trims it."""

    def __init__(self, rid: str, prompt_tokens: int, visible_bytes: Sequence[bytes]) -> None:
        self.rid = rid
        self.prompt_tokens = prompt_tokens
        self.output_ids: list[int] = []
        self.text = ""
        self.logprobs: list[TokenLogprob] = []
        self.input_logprobs: tuple[TokenLogprob, ...] = ()
        self.scores: tuple[tuple[float, ...], ...] = ()
        self.finished: Finished | None = None
        self.tail = b""
        """Visible bytes of a token that a stop string cut: they belong to the text, their token does not."""
        self._held: list[ReqOutput] = []
        """Outputs that nobody has looked at yet."""
        self._forced: set[int] = set()
        """Places of forced tokens."""
        self._grammar_notes: tuple[str, ...] = ()
        self._visible_bytes = visible_bytes
        self._stream = TextStream(visible_bytes)
        self._bytes = b""
        self._created_s = time.perf_counter()
        self._first_token_s: float | None = None
        self._ended_s = 0.0

    def hold(self, out: ReqOutput) -> None:
        """Add one output that is not the last, for whoever looks at the results only when the request has ended."""
        if out.new_ids and self._first_token_s is None:
            self._first_token_s = time.perf_counter()
        self._held.append(out)

    def take(self, out: ReqOutput) -> str:
        """Add one output of the scheduler; returns the text that became visible."""
        self.hold(out)
        held, self._held = self._held, []
        for one in held:
            if one.num_forced:
                self._forced.update(range(len(self.output_ids), len(self.output_ids) + one.num_forced))
            self.output_ids += one.new_ids
            self.logprobs += one.logprobs
            if one.input_logprobs is not None:
                self.input_logprobs = one.input_logprobs
        if out.scores is not None:
            self.scores = out.scores
        new_bytes = out.new_bytes if len(held) == 1 else b"".join([one.new_bytes for one in held])
        self._bytes += new_bytes
        self._stream.push(new_bytes)
        if out.finished is None:
            delta = self._stream.text_upto(out.text_end)
        else:
            delta = self._stream.finish(out.text_end)
            self._end(out)
        self.text += delta
        return delta

    def _end(self, out: ReqOutput) -> None:
        assert out.finished is not None, f"{self.rid}: the last output has a reason"
        assert out.usage is not None, f"{self.rid}: the last output has its usage"
        self._ended_s = time.perf_counter()
        self._grammar_notes = out.notes
        self.finished = Finished(out.finished, out.kept_len, out.usage, out.queue_s)
        kept_bytes = len(self._bytes)
        if out.kept_len < len(self.output_ids):
            del self.output_ids[out.kept_len :]
            kept_bytes = sum(map(len, map(self._visible_bytes.__getitem__, self.output_ids)))
        self.tail = self._bytes[kept_bytes : out.text_end]

    @property
    def kinds(self) -> tuple[TokenKind, ...]:
        """How each of `output_ids` came about."""
        if not self._forced:
            return ("sampled",) * len(self.output_ids)
        return tuple("forced" if at in self._forced else "sampled" for at in range(len(self.output_ids)))

    def meta(self, logprob: LogprobParams | None, token_text: Callable[[int], str]) -> dict[str, Any]:
        """SGLang's `meta_info` of this request so far.

        Args:
            logprob: what was asked for; None leaves the log-probability lists out.
            token_text: token id -> its text, used where `with_text` was asked.
        """
        meta: dict[str, Any] = {"id": self.rid, "prompt_tokens": self.prompt_tokens}
        if self.finished is None:
            meta |= {"completion_tokens": len(self.output_ids), "finish_reason": None}
        else:
            usage = self.finished.usage
            meta |= {
                "completion_tokens": usage.completion_tokens,
                "cached_tokens": usage.cached_tokens,
                "computed_tokens": usage.computed_tokens,
                "forced_tokens": usage.forced_tokens,
                "retractions": usage.retractions,
                "evicted_pages": usage.evicted_pages,
                "finish_reason": self.finished.reason.to_json(),
                "e2e_latency": self._ended_s - self._created_s,
            }
            if self._grammar_notes:
                meta["grammar_notes"] = list(self._grammar_notes)
            if self.finished.queue_s is not None:
                meta["queue_time"] = self.finished.queue_s
            if self._first_token_s is not None:
                meta["time_to_first_token"] = self._first_token_s - self._created_s
        if logprob is not None:
            meta |= self._logprob_lists(logprob, token_text)
        return meta

    def _logprob_lists(self, logprob: LogprobParams, token_text: Callable[[int], str]) -> dict[str, Any]:
        def entry(token_id: int, value: float | None) -> tuple[float | None, int, str | None]:
            return value, token_id, token_text(token_id) if logprob.with_text else None

        drawn = [t for t in self.logprobs if t.token_id != NO_TOKEN]
        lists: dict[str, Any] = {"output_token_logprobs": [entry(t.token_id, t.logprob) for t in drawn]}
        if logprob.with_text:
            lists["output_token_kinds"] = list(self.kinds)
        if logprob.start_len is not None:
            lists["input_token_logprobs"] = [entry(t.token_id, t.logprob) for t in self.input_logprobs]
        if logprob.top_num:
            lists["output_top_logprobs"] = [[entry(*pair) for pair in t.top] for t in self.logprobs]
            if logprob.start_len is not None:
                lists["input_top_logprobs"] = [[entry(*pair) for pair in t.top] or None for t in self.input_logprobs]
        if logprob.token_ids:
            lists["output_token_ids_logprobs"] = [[entry(*pair) for pair in t.asked] for t in self.logprobs]
            if logprob.start_len is not None:
                asked = [[entry(*pair) for pair in t.asked] or None for t in self.input_logprobs]
                lists["input_token_ids_logprobs"] = asked
        return lists
