"""What goes into the scheduler and what comes out of it: plain messages; they know no queue and no memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias, runtime_checkable

from sglang_lite.errors import SglangLiteError
from sglang_lite.request_tree import LogprobParams, SamplingParams


class GrammarCursor(Protocol):
    """One request's place in its grammar (`sglang_lite.grammar.GrammarMatcher` fits)."""

    def accept_token(self, token_id: int) -> bool:
        """Advance by one token; False (and no change) where the grammar does not allow it."""
        ...

    def fill_bitmask(self, bitmask: Any, index: int = 0) -> None:
        """Write the allowed tokens as bits into row `index` of an int32 `[B, ceil(V/32)]` array."""
        ...

    def fork(self) -> GrammarCursor:
        """An independent cursor at the same place."""
        ...

    def jump_forward(self, before: Sequence[int] = ()) -> list[int]:
        """The tokens that must come next, in the tokenizer's own spelling; none is accepted. `before`: the prompt's last ids."""
        ...

    @property
    def is_terminated(self) -> bool:
        """An end token was accepted."""
        ...

    @property
    def has_only_end(self) -> bool:
        """Nothing but the end can follow."""
        ...


@runtime_checkable
class LenientCursor(Protocol):
    """A cursor of a constraint that the masks enforce in part only."""

    def notes_on(self, text: bytes) -> tuple[str, ...]:
        """What was not enforced, and whether the finished `text` holds it all the same."""
        ...


@dataclass(frozen=True, slots=True)
class AddReq:
    """One request: a generation, or with `choices` a scoring of continuations (then nothing is sampled).

    `input_ids`: at least one token. `sampling.seed` is set. `choices`: non-empty id sequences, scored right after
    `input_ids`. `namespace` keeps prefixes apart (adapter, salt). `waits_for_grammar`: not schedulable until a
    `GrammarReady` comes. `is_continuing`: goes on a branch that ran before; queued ahead of new branches of its age.
    `lease`: name of the program lease whose prefixes this request's KV joins; `next_use`: when the program will need
    them next (smaller is sooner). `priority`: only where priorities are on; None comes after every other. `place`: the
    program's number and the branch's path in it: sorted, a walk of the programs' trees depth first; (): of no program.
    """

    rid: str
    input_ids: tuple[int, ...]
    sampling: SamplingParams
    namespace: str = ""
    logprob: LogprobParams | None = None
    choices: tuple[tuple[int, ...], ...] | None = None
    grammar: GrammarCursor | None = None
    waits_for_grammar: bool = False
    is_continuing: bool = False
    lease: str | None = None
    next_use: int = 0
    priority: int | None = None
    place: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class GrammarReady:
    """The grammar of a waiting request is compiled, or failed (`error`): then only that request ends."""

    rid: str
    grammar: GrammarCursor | None = None
    error: SglangLiteError | None = None


@dataclass(frozen=True, slots=True)
class AbortReq:
    """End the request `rid` (exact match) wherever it is; unknown or finished: nothing happens."""

    rid: str
    error: SglangLiteError | None = None


@dataclass(frozen=True, slots=True)
class EndLease:
    """A program no longer needs the prefixes under this lease."""

    lease: str


@dataclass(frozen=True, slots=True)
class SetNextUse:
    """A program now expects to need the prefixes under this lease at `next_use` (smaller is sooner)."""

    lease: str
    next_use: int


Message: TypeAlias = AddReq | GrammarReady | AbortReq | EndLease | SetNextUse


@dataclass(frozen=True, slots=True)
class FinishReason:
    """Why a request ended. `stop`: `matched` is the token id, stop string or stop pattern.

    `stop` without `matched`: the grammar ended, or all choices are scored.

    `abort`: `error` says why. JSON form as SGLang's: `{"type": ..., "matched": ...}`, or `message` and `err_type`.
    """

    kind: Literal["stop", "length", "abort"]
    matched: int | str | None = None
    error: SglangLiteError | None = None

    def to_json(self) -> dict[str, Any]:
        """SGLang's `finish_reason` object."""
        if self.kind == "abort":
            kind = {} if self.error is None else {"err_type": type(self.error).__name__}
            return {"type": "abort", "message": str(self.error or "aborted")} | kind
        return {"type": self.kind} | ({"matched": self.matched} if self.kind == "stop" else {})


NO_TOKEN = -1
"""Stands for the token that was not drawn, see `TokenLogprob`."""


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """The log-probability of one token at its position, with the most likely and the asked-for alternatives.

    Where nothing is generated, the one output entry has `token_id` `NO_TOKEN`: the distribution after the prompt.
    """

    token_id: int
    logprob: float | None
    """None for the first token of a prompt, and with `NO_TOKEN`."""
    top: tuple[tuple[int, float], ...] = ()
    asked: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts of one request; `computed_tokens`: prompt tokens whose KV was computed, recomputation included.

    `evicted_pages`: pages of the cache that were given up for it. `known_len`: how many leading tokens of prompt and output
    had their KV at its end: without the last token, and without those that a constraint forced up to the end.
    """

    prompt_tokens: int
    cached_tokens: int
    computed_tokens: int
    completion_tokens: int
    forced_tokens: int = 0
    retractions: int = 0
    evicted_pages: int = 0
    known_len: int = 0


class ReqOutput(NamedTuple):
    """What one commit changed for one request. Exactly one output of a request has `finished` set, its last.

    `new_ids`, `new_bytes`: tokens committed since the last output and their visible bytes. `text_end`: how many bytes
    of the output text so far may be shown (stop strings held back or cut off); never falls. At the end, `kept_len` is
    the number of output tokens that lie wholly inside the text (a matched end or stop token is not among them, a
    token cut by a stop string neither).
    """

    rid: str
    new_ids: tuple[int, ...] = ()
    new_bytes: bytes = b""
    text_end: int = 0
    logprobs: tuple[TokenLogprob, ...] = ()
    input_logprobs: tuple[TokenLogprob, ...] | None = None
    """The prompt's, from `start_len` on; with the first output of a request that asked for them."""
    scores: tuple[tuple[float, ...], ...] | None = None
    """Per choice, the log-probabilities of its tokens; with the end of a scoring request."""
    finished: FinishReason | None = None
    kept_len: int = 0
    usage: Usage | None = None
    """With `finished`."""
    queue_s: float | None = None
    """With `finished`: seconds until its first row was planned, filled in by whoever has a clock; None: it had none."""
    num_forced: int = 0
    """How many of `new_ids`, the first ones, a constraint forced."""
    notes: tuple[str, ...] = ()
    """With `finished`: what of the constraint was not enforced, see `LenientCursor.notes_on`."""


class VisibleBytes(Protocol):
    """The bytes each token id adds to the visible text (special tokens: none)."""

    def __getitem__(self, token_id: int, /) -> bytes: ...
    def __len__(self) -> int: ...


Outputs: TypeAlias = Sequence[ReqOutput]
