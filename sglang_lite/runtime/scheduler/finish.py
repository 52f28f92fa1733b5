"""When and where a request ends, token by token; it knows no queue and no memory.

Order of the checks for each accepted token (SGLang's): token id within the vocabulary, stop strings, stop patterns,
end and stop tokens, length, grammar. Tokens are taken one at a time, so n tokens accepted at once end exactly where
they would end one by one; what follows the end is not taken.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sglang_lite.errors import ExecutionError
from sglang_lite.request_tree import SamplingParams
from sglang_lite.runtime.scheduler.messages import FinishReason, GrammarCursor, VisibleBytes


@dataclass(frozen=True, slots=True)
class StopMatch:
    """A stop string or pattern in the text, as byte offsets."""

    start: int
    end: int
    matched: str


class StopMatcher:
    """Finds stop strings in a growing byte text and says how much of it can be shown.

    The match that is complete first wins, of several that end together the longest: so the result depends on the bytes
    only, not on how they are cut into tokens. A pattern's match may start anywhere, so with patterns nothing
    is shown before the end.
    """

    def __init__(self, stops: Sequence[str] = (), patterns: Sequence[str] = ()) -> None:
        self.text = bytearray()
        self._stops = [(stop, stop.encode()) for stop in stops]
        self._patterns = [(pattern, re.compile(pattern)) for pattern in patterns]
        self._floor = 0

    def skip(self, data: bytes) -> None:
        """Add text in which no stop is looked for, and none may begin."""
        self.text += data
        self._floor = len(self.text)

    def push(self, data: bytes) -> StopMatch | None:
        """Add text and return the match that it completes, if any."""
        before = len(self.text)
        self.text += data
        if not data:
            return None
        if self._stops and (match := self._find_string(before)):
            return match
        return self._find_pattern() if self._patterns else None

    @property
    def shown_end(self) -> int:
        """Bytes that no stop can take back any more."""
        if self._patterns:
            return self._floor
        held = max((self._held(stop) for _, stop in self._stops), default=0)
        return len(self.text) - held

    def _find_string(self, before: int) -> StopMatch | None:
        found: list[tuple[int, int, str]] = []
        for name, stop in self._stops:
            start = self.text.find(stop, max(self._floor, before - len(stop) + 1))
            if start >= 0:
                found.append((start + len(stop), start, name))
        if not found:
            return None
        end, start, name = min(found)
        return StopMatch(start, end, name)

    def _find_pattern(self) -> StopMatch | None:
        # surrogateescape keeps one character a bad byte, so that character offsets map back to byte offsets.
        decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
        text = decoder.decode(bytes(self.text[self._floor :]))
        best: StopMatch | None = None
        for name, pattern in self._patterns:
            match = pattern.search(text)
            if match is None:
                continue
            start, end = (
                self._floor + len(text[:at].encode("utf-8", "surrogateescape")) for at in (match.start(), match.end())
            )
            if best is None or start < best.start:
                best = StopMatch(start, end, name)
        return best

    def _held(self, stop: bytes) -> int:
        longest = min(len(stop) - 1, len(self.text) - self._floor)
        return next((n for n in range(longest, 0, -1) if self.text.endswith(stop[:n])), 0)


@dataclass(frozen=True, slots=True)
class FinishRules:
    """What ends one request, the limits of model and context worked in. `max_new_tokens` is at least 0."""

    max_new_tokens: int
    min_new_tokens: int
    end_ids: frozenset[int]
    vocab_size: int
    no_stop_trim: bool

    @classmethod
    def of(
        cls, params: SamplingParams, *, prompt_len: int, context_length: int, eos_ids: frozenset[int], vocab_size: int
    ) -> FinishRules:
        """The rules of a request: an explicit stop token counts even with `ignore_eos`; the context caps the length."""
        room = max(context_length - prompt_len, 0)
        wanted = room if params.max_new_tokens is None else min(params.max_new_tokens, room)
        ends = frozenset(params.stop_token_ids)
        if not params.ignore_eos:
            ends |= eos_ids
        return cls(wanted, params.min_new_tokens, ends, vocab_size, params.no_stop_trim)


class Accepted(NamedTuple):
    """How many of the offered tokens were taken, their visible bytes, and the end if it was reached."""

    num_tokens: int
    new_bytes: bytes
    reason: FinishReason | None


class OutputText:
    """The visible text of one request's output and its end; owns the matcher and the tokens' byte ends."""

    def __init__(self, params: SamplingParams, rules: FinishRules, visible: VisibleBytes) -> None:
        self.rules = rules
        self.text_end = 0
        self._visible = visible
        self._matcher = StopMatcher(params.stop, params.stop_regex)
        self._has_stops = bool(params.stop or params.stop_regex)
        self._token_ends: list[int] = []
        self._num_kept: int | None = None

    @property
    def num_tokens(self) -> int:
        """Tokens taken so far."""
        return len(self._token_ends)

    @property
    def shown(self) -> bytes:
        """The text that may be shown."""
        return bytes(self._matcher.text[: self.text_end])

    @property
    def kept_len(self) -> int:
        """Output tokens that lie wholly inside the text that may be shown; the matched end token is not among them."""
        if self._num_kept is not None:
            return self._num_kept
        return next((i for i, end in enumerate(self._token_ends) if end > self.text_end), len(self._token_ends))

    def accept(self, token_ids: Sequence[int], grammar: GrammarCursor | None = None) -> Accepted:
        """Take tokens up to the first end; advances `grammar` over those that did not end the request otherwise."""
        before = len(self._matcher.text)
        reason: FinishReason | None = None
        taken = 0
        for token_id in token_ids:
            if not 0 <= token_id < self.rules.vocab_size:
                reason = _out_of_vocabulary(token_id, self.rules.vocab_size)
                self.flush()
                break
            taken += 1
            reason = self._take(token_id, grammar)
            if reason is not None:
                break
        if reason is None:
            self.text_end = self._matcher.shown_end if self._has_stops else len(self._matcher.text)
        return Accepted(taken, bytes(self._matcher.text[before:]), reason)

    def flush(self) -> None:
        """The request ends here without a stop: what was held back is shown."""
        self.text_end = len(self._matcher.text)

    def _take(self, token_id: int, grammar: GrammarCursor | None) -> FinishReason | None:
        index, start = len(self._token_ends), len(self._matcher.text)
        may_stop = index >= self.rules.min_new_tokens
        data = self._visible[token_id]
        match = None
        if not self._has_stops:
            self._matcher.text += data
        elif may_stop:
            match = self._matcher.push(data)
        else:
            self._matcher.skip(data)
        self._token_ends.append(len(self._matcher.text))
        if match is not None:
            self.text_end = match.end if self.rules.no_stop_trim else match.start
            return FinishReason("stop", match.matched)
        if may_stop and token_id in self.rules.end_ids:
            self._end_at_token(start, index)
            return FinishReason("stop", token_id)
        if index + 1 >= self.rules.max_new_tokens:
            self.flush()
            return FinishReason("length")
        if grammar is not None:
            return self._advance(grammar, token_id, start, index)
        return None

    def _advance(self, grammar: GrammarCursor, token_id: int, start: int, index: int) -> FinishReason | None:
        try:
            if not grammar.accept_token(token_id):
                return self._broken(token_id, index, "it is not allowed there, expected a token of the grammar's mask")
            if grammar.is_terminated:
                self._end_at_token(start, index)
                return FinishReason("stop")
            is_whole = grammar.has_only_end
        except ValueError as error:  # tables that fill as they are needed may pass their limit
            return self._broken(token_id, index, str(error))
        if is_whole:
            self.flush()
            return FinishReason("stop")
        return None

    def _broken(self, token_id: int, index: int, why: str) -> FinishReason:
        self.flush()
        error = ExecutionError(f"advancing a grammar by token {token_id}, output token {index}: {why}")
        return FinishReason("abort", error=error)

    def _end_at_token(self, start: int, index: int) -> None:
        if self.rules.no_stop_trim:
            self.flush()
        else:
            self.text_end = start
            self._num_kept = index


def _out_of_vocabulary(token_id: int, vocab_size: int) -> FinishReason:
    error = ExecutionError(
        f"taking a sampled token: got id {token_id}, expected one from 0 to {vocab_size - 1}; the logits may not be finite"
    )
    return FinishReason("abort", error=error)
