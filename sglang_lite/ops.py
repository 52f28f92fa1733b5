"""What a program consists of: ops on branches, and the events that a backend reports about them; pure data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from sglang_lite.sampling_params import LogprobParams, SamplingParams

__all__ = [
    "AcceptOp",
    "AnswerOp",
    "ArgOp",
    "ChoicesMethod",
    "CountOp",
    "DecideOp",
    "EndOp",
    "Event",
    "EventSink",
    "ForkOp",
    "GenOp",
    "JoinOp",
    "MarkOp",
    "Op",
    "OpDelta",
    "OpDone",
    "OpFailed",
    "OpHeld",
    "OpScored",
    "RefOp",
    "RefuseOp",
    "RetryOp",
    "RewindOp",
    "RoleBeginOp",
    "RoleEndOp",
    "SelectOp",
    "TemplateOp",
    "TextOp",
    "TokenKind",
    "split_thinking",
]

TokenKind: TypeAlias = Literal["cached", "computed", "forced", "sampled"]
"""Where a token's KV came from: reused, computed from given text, forced by a grammar, sampled by the model."""

ChoicesMethod: TypeAlias = Literal[
    "token_length_normalized", "greedy_token_selection", "unconditional_likelihood_normalized", "client"
]
"""How `select` decides. `client`: the backend reports the scores and waits for a `DecideOp`."""


@dataclass(frozen=True, slots=True)
class Op:
    """One step of a program on one branch. `id` is unique in the program; order on a branch is order of appending."""

    id: int
    branch: int


@dataclass(frozen=True, slots=True)
class TextOp(Op):
    """Append text. `literal`: never parsed for special tokens (always so inside a role block).

    `ids`: the text is what a gen or select gave on another server, as these tokens, which are kept; `is_models`: a gen.
    """

    text: str
    literal: bool = False
    ids: tuple[int, ...] = ()
    is_models: bool = False


@dataclass(frozen=True, slots=True)
class RoleBeginOp(Op):
    """Open a turn of the chat template; its prefix becomes part of the branch.

    `fields`: what the message has beside role and content (`tool_calls`, `tool_call_id`, `name`, ...; OpenAI's form), as
    the text of a JSON object.
    """

    role: str
    fields: str | None = None


@dataclass(frozen=True, slots=True)
class RoleEndOp(Op):
    """Close the open turn; the template's suffix becomes part of the branch."""


@dataclass(frozen=True, slots=True)
class TemplateOp(Op):
    """From here on the branch's dialogue is rendered with these variables of the chat template, the earlier turns, too.

    `variables`: the text of a JSON object: `tools` (OpenAI's form), `enable_thinking`, ...; null takes one away, and those
    that are not named stay.
    """

    variables: str


@dataclass(frozen=True, slots=True)
class GenOp(Op):
    """Generate. The value is the visible text, or the list of `n` texts (the first continues the branch).

    `hold`: the result is reported as `OpHeld` and the branch waits for the program's answer: `AcceptOp`, `RetryOp` or
    `RefuseOp`. Nothing of a held text is seen by an op that refers to it before it is accepted. Needs `n` 1.
    """

    name: str | None
    params: SamplingParams
    logprob: LogprobParams | None = None
    stream: bool = False
    hold: bool = False


@dataclass(frozen=True, slots=True)
class SelectOp(Op):
    """Append the best of `choices` by `method`; the value is the chosen string."""

    name: str | None
    choices: tuple[str, ...]
    method: ChoicesMethod = "token_length_normalized"
    needs_unconditional: bool = False
    """With method `client`: report unconditional scores too."""


@dataclass(frozen=True, slots=True)
class DecideOp(Op):
    """The client's answer to the scores of a `select` with method `client`: the index of its choice."""

    select: int
    index: int


@dataclass(frozen=True, slots=True)
class AcceptOp(Op):
    """The answer to `OpHeld`: the value of `gen` stands; its `OpDone` follows."""

    gen: int


@dataclass(frozen=True, slots=True)
class RetryOp(Op):
    """The answer to `OpHeld`: take what `gen` added off its branch, append `text` (content, literal), and generate again.

    With `keep` the rejected text stays and `text` comes after it. The next result is held as well. `params` replace
    those of `gen`; None: the same, with a seed of the new attempt.
    """

    gen: int
    text: str = ""
    params: SamplingParams | None = None
    keep: bool = False


@dataclass(frozen=True, slots=True)
class RefuseOp(Op):
    """The answer to `OpHeld`: no attempt was good; `gen` fails with an `ExecutionError` of this message."""

    gen: int
    message: str


@dataclass(frozen=True, slots=True)
class MarkOp(Op):
    """A place on the branch to which a `RewindOp` goes back."""


@dataclass(frozen=True, slots=True)
class RewindOp(Op):
    """Once the ops before it are done, make the branch what it was at `mark` (text, ids, open role).

    Results stay readable. Live fork children made after the mark are cancelled; joined ones are not touched.
    """

    mark: int


@dataclass(frozen=True, slots=True)
class CountOp(Op):
    """How many tokens the branch has here: `OpDone.meta` has `num_tokens` and `context_len` (None: not known)."""


@dataclass(frozen=True, slots=True)
class ForkOp(Op):
    """Create child branches that start as copies of this one at this point; `children` are new branch ids."""

    children: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class JoinOp(Op):
    """End `children`. Mode `concat` appends, in order, the text each child added since its fork; `gather` adds nothing.

    `first`: the join is done when that many children have done all their ops without an error; `vote`: when no other
    value of the gens or selects of that name can overtake the leading one. The others are cancelled. Both need mode
    `gather`, and every op of the children sent before. `OpDone.meta["winners"]`: indices into `children`, by finishing
    order, then index; with `vote` those whose value won, and the value is `OpDone.value`. Too few can win: it fails.
    """

    children: tuple[int, ...]
    mode: Literal["gather", "concat"] = "gather"
    first: int | None = None
    vote: str | None = None


@dataclass(frozen=True, slots=True)
class RefOp(Op):
    """Append the text of `target`, a gen or select added before on any branch, once that is done.

    It is text like any other: tokenised anew, never parsed for special tokens. With `marks` only the answer is taken:
    what `split_thinking` leaves of the text. Fails with the target's error.
    """

    target: int
    marks: tuple[str, str] | None = None
    starts_inside: bool = False

    def text_of(self, text: str) -> str:
        """What the op appends when its target's text is `text`."""
        return text if self.marks is None else split_thinking(text, self.marks, starts_inside=self.starts_inside)[1]


@dataclass(frozen=True, slots=True)
class ArgOp(Op):
    """Append a value that is not in this tree: an argument of a traced program. Trees with one are not executed."""

    name: str


@dataclass(frozen=True, slots=True)
class EndOp(Op):
    """The branch will get no further ops; what it held may be released."""


AnswerOp: TypeAlias = DecideOp | AcceptOp | RetryOp | RefuseOp
"""What a program answers to `OpScored` and `OpHeld`; may come after the branch's end."""


def split_thinking(text: str, marks: tuple[str, str], *, starts_inside: bool = False) -> tuple[str, str]:
    """The thinking and the answer in a model's text, without white space around either.

    Thinking stands at the beginning, between the two marks; the end of the text ends it, too. `starts_inside`: the
    prompt has opened it, so that the first mark may be absent. A text without thinking is the answer as it stands.
    """
    begin, end = marks
    stripped = text.lstrip()
    if stripped.startswith(begin):
        stripped = stripped[len(begin) :]
    elif not starts_inside:
        return "", text
    thinking, _, answer = stripped.partition(end)
    return thinking.strip(), answer.strip()


@dataclass(frozen=True, slots=True)
class OpDelta:
    """A streamed piece of an op's text; pieces join to the text of its `OpDone`. Sent for `GenOp(stream=True)`."""

    op: int
    text: str


@dataclass(frozen=True, slots=True)
class OpDone:
    """An op is done.

    `text`: what the op added to its branch's text. `value`: what `s[name]` is (gen, select). `ids`, `kinds`: tokens the
    op added (gen, select). `meta`: SGLang's `meta_info` (`id`, `prompt_tokens`, `completion_tokens`, `cached_tokens`,
    `forced_tokens`, `finish_reason`, logprob lists, timings).
    """

    op: int
    text: str = ""
    value: str | list[str] | None = None
    ids: tuple[int, ...] = ()
    kinds: tuple[TokenKind, ...] = ()
    meta: dict[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class OpScored:
    """The scores of a `client` select; it waits for a `DecideOp`, which may come after the branch's end.

    `meta`, one row a choice: `normalized_prompt_logprobs` (means), `input_token_logprobs` and `output_token_logprobs`
    (rows of `(logprob, token id, text)`), and with `needs_unconditional` `unconditional_token_logprobs` (the same rows
    without context; the first logprob may be None).
    """

    op: int
    meta: dict[str, Any]


@dataclass(frozen=True, slots=True)
class OpHeld:
    """The result of an attempt of a gen with `hold`; fields as of its `OpDone`. It waits for the program's answer."""

    op: int
    text: str
    ids: tuple[int, ...] = ()
    kinds: tuple[TokenKind, ...] = ()
    meta: dict[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class OpFailed:
    """An op ended without a result; every op that needs it fails with the same error."""

    op: int
    error: Exception


Event: TypeAlias = OpDelta | OpDone | OpScored | OpHeld | OpFailed
EventSink: TypeAlias = Callable[[Event], None]
"""Receives events in order, on a thread of the backend; must return quickly and must not raise."""
