"""The contract between the language and the runtime: ops, trees, events, sampling parameters, backends.

Pure data on the standard library. The language appends ops to branches and never blocks doing so; a backend
executes them and reports events. Neither side knows the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

from sglang_lite.errors import ProgramError, RequestError

__all__ = [
    "ArgOp",
    "Backend",
    "ChoicesMethod",
    "DecideOp",
    "EndOp",
    "Event",
    "EventSink",
    "ForkOp",
    "GenOp",
    "JoinOp",
    "LogprobParams",
    "Op",
    "OpDelta",
    "OpDone",
    "OpFailed",
    "OpScored",
    "Program",
    "RefOp",
    "RequestTree",
    "RoleBeginOp",
    "RoleEndOp",
    "SamplingParams",
    "SelectOp",
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
class SamplingParams:
    """How one generation runs. Names and defaults are SGLang's; a wrong value raises `RequestError`.

    `max_new_tokens` None means: up to the context. `top_k` -1 means all. `seed` None means: drawn by the backend.
    At most one of `regex`, `choices`, `json_schema`, `ebnf` may be set.
    """

    max_new_tokens: int | None = 128
    min_new_tokens: int = 0
    n: int = 1
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    stop_regex: tuple[str, ...] = ()
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = -1
    min_p: float = 0.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    ignore_eos: bool = False
    no_stop_trim: bool = False
    skip_special_tokens: bool = True
    seed: int | None = None
    regex: str | None = None
    choices: tuple[str, ...] | None = None
    json_schema: str | None = None
    ebnf: str | None = None

    def __post_init__(self) -> None:
        """Check every field; the message names the field, the value and what is allowed."""
        for name, ok, allowed in self._rules():
            if not ok:
                raise RequestError(f"checking sampling parameters: {name}={getattr(self, name)!r}, expected {allowed}")
        constraints = [n for n in ("regex", "choices", "json_schema", "ebnf") if getattr(self, n) is not None]
        if len(constraints) > 1:
            raise RequestError(
                f"checking sampling parameters: {' and '.join(constraints)} are both set, expected at most one constraint"
            )

    def _rules(self) -> Iterator[tuple[str, bool, str]]:
        def whole(value: object, low: int) -> bool:
            return isinstance(value, int) and not isinstance(value, bool) and value >= low

        def number(value: object, low: float, high: float) -> bool:
            return isinstance(value, int | float) and not isinstance(value, bool) and low <= value <= high

        def ids(value: Sequence[object]) -> bool:
            return all(whole(v, 0) for v in value)

        def texts(value: Sequence[object]) -> bool:
            return all(isinstance(v, str) and v for v in value)

        infinity = float("inf")
        yield (
            "max_new_tokens",
            self.max_new_tokens is None or whole(self.max_new_tokens, 0),
            "a whole number >= 0 or None",
        )
        yield "min_new_tokens", whole(self.min_new_tokens, 0), "a whole number >= 0"
        yield "n", whole(self.n, 1), "a whole number >= 1"
        yield "stop", texts(self.stop), "non-empty strings"
        yield "stop_regex", texts(self.stop_regex), "non-empty patterns"
        yield "stop_token_ids", ids(self.stop_token_ids), "token ids >= 0"
        yield "temperature", number(self.temperature, 0, infinity), "a number >= 0"
        yield "top_p", number(self.top_p, 0, 1) and self.top_p > 0, "a number in (0, 1]"
        yield "top_k", whole(self.top_k, -1) and self.top_k != 0, "-1 (all) or a whole number >= 1"
        yield "min_p", number(self.min_p, 0, 1), "a number in [0, 1]"
        yield "frequency_penalty", number(self.frequency_penalty, -2, 2), "a number in [-2, 2]"
        yield "presence_penalty", number(self.presence_penalty, -2, 2), "a number in [-2, 2]"
        yield (
            "repetition_penalty",
            number(self.repetition_penalty, 0, 2) and self.repetition_penalty > 0,
            "a number in (0, 2]",
        )
        yield (
            "logit_bias",
            all(whole(t, 0) and number(b, -100, 100) for t, b in self.logit_bias),
            "(token id, bias in [-100, 100]) pairs",
        )
        yield "seed", self.seed is None or whole(self.seed, 0), "a whole number >= 0 or None"

    @staticmethod
    def from_mapping(values: Mapping[str, Any] | None) -> SamplingParams:
        """Build from a dict with SGLang's keys (`stop` may be one string; `sampling_seed` is `seed`).

        Raises:
            RequestError: an unknown key (named, with the known ones) or a wrong value.
        """
        values = dict(values or {})
        if "sampling_seed" in values:
            values["seed"] = values.pop("sampling_seed")
        values.pop("spaces_between_special_tokens", None)  # detokenizing is byte-exact: no such spaces exist here
        known = {f.name for f in fields(SamplingParams)}
        if unknown := sorted(set(values) - known):
            raise RequestError(f"reading sampling parameters: unknown {unknown}, known are {sorted(known)}")
        for name in ("stop", "stop_token_ids", "stop_regex", "choices"):
            value = values.get(name)
            if value is None:
                if name != "choices":
                    values.pop(name, None)
            elif isinstance(value, str | int):
                values[name] = (value,)
            else:
                values[name] = tuple(value)
        bias: Any = values.pop("logit_bias", None)
        if bias is not None:
            pairs: list[tuple[Any, Any]] = list(bias.items()) if isinstance(bias, Mapping) else list(bias)  # pyright: ignore[reportUnknownArgumentType, reportUnknownMemberType]
            values["logit_bias"] = tuple(sorted((_token_id(key), value) for key, value in pairs))
        return SamplingParams(**values)

    def with_(self, **changes: Any) -> SamplingParams:
        """A copy with some fields changed, checked again."""
        return replace(self, **changes)

    @property
    def is_greedy(self) -> bool:
        """True when the most likely token is always taken."""
        return self.temperature == 0 or self.top_k == 1


def _token_id(key: object) -> int:
    if isinstance(key, int) and not isinstance(key, bool):
        return key
    if isinstance(key, str) and key.isdecimal():
        return int(key)
    raise RequestError(f"reading logit_bias: key {key!r}, expected a token id >= 0")


@dataclass(frozen=True, slots=True)
class LogprobParams:
    """Which log-probabilities a generation returns.

    `start_len`: first prompt position whose log-probability is wanted; None: none of the prompt's. `top_num`: how many
    of the most likely tokens beside each. `token_ids`: further tokens to report at each position. `with_text`: entries
    carry the token's text.
    """

    start_len: int | None = None
    top_num: int = 0
    token_ids: tuple[int, ...] = ()
    with_text: bool = False


@dataclass(frozen=True, slots=True)
class Op:
    """One step of a program on one branch. `id` is unique in the program; order on a branch is order of appending."""

    id: int
    branch: int


@dataclass(frozen=True, slots=True)
class TextOp(Op):
    """Append text. `literal`: never parsed for special tokens (always so inside a role block)."""

    text: str
    literal: bool = False


@dataclass(frozen=True, slots=True)
class RoleBeginOp(Op):
    """Open a turn of the chat template; its prefix becomes part of the branch."""

    role: str


@dataclass(frozen=True, slots=True)
class RoleEndOp(Op):
    """Close the open turn; the template's suffix becomes part of the branch."""


@dataclass(frozen=True, slots=True)
class GenOp(Op):
    """Generate. The value is the visible text, or the list of `n` texts (the first continues the branch)."""

    name: str | None
    params: SamplingParams
    logprob: LogprobParams | None = None
    stream: bool = False


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
class ForkOp(Op):
    """Create child branches that start as copies of this one at this point; `children` are new branch ids."""

    children: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class JoinOp(Op):
    """End `children`. Mode `concat` appends, in order, the text each child added since its fork; `gather` adds nothing."""

    children: tuple[int, ...]
    mode: Literal["gather", "concat"] = "gather"


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


class RequestTree:
    """All ops of one program, checked as they are added; owns order, branches and their parents, not their execution."""

    def __init__(self) -> None:
        self.ops: dict[int, Op] = {}
        self.parents: dict[int, int | None] = {0: None}
        self._ended: set[int] = set()
        self._joined: set[int] = set()
        self._open_role: dict[int, str | None] = {0: None}

    def add(self, op: Op) -> None:
        """Check `op` against what was added before and keep it.

        Raises:
            ProgramError: names the op and the rule that it breaks (unknown or ended branch, id used twice, nested
                role, role end without begin, a fork child that exists, a join of a branch that is not a child).
        """
        what = f"adding {type(op).__name__} {op.id} to branch {op.branch}"
        if op.id in self.ops:
            raise ProgramError(f"{what}: the id is taken by a {type(self.ops[op.id]).__name__}, expected a new id")
        if op.branch not in self.parents:
            raise ProgramError(f"{what}: no such branch, known are {sorted(self.parents)}")
        if op.branch in self._ended and not isinstance(op, DecideOp):  # a decision answers an op from before the end
            raise ProgramError(f"{what}: the branch has ended (joined, or its fork was left); append to a live branch")
        self._check_kind(op, what)
        self.ops[op.id] = op

    def _check_kind(self, op: Op, what: str) -> None:
        match op:
            case RoleBeginOp() | RoleEndOp():
                self._check_role(op, what)
            case ForkOp() | JoinOp():
                self._check_children(op, what)
            case SelectOp(choices=choices):
                if not choices:
                    raise ProgramError(f"{what}: no choices, expected at least one")
            case DecideOp(select=select, index=index):
                asked = self.ops.get(select)
                if not isinstance(asked, SelectOp) or asked.method != "client" or not 0 <= index < len(asked.choices):
                    raise ProgramError(f"{what}: no client select {select} with a choice {index}")
            case RefOp(target=target):
                if not isinstance(self.ops.get(target), GenOp | SelectOp):
                    raise ProgramError(f"{what}: there is no gen or select {target} to refer to")
            case EndOp():
                self._ended.add(op.branch)
            case _:
                pass

    def _check_role(self, op: RoleBeginOp | RoleEndOp, what: str) -> None:
        now = self._open_role[op.branch]
        if isinstance(op, RoleBeginOp):
            if now is not None:
                raise ProgramError(
                    f"{what}: Nested roles are not allowed: {op.role!r} inside {now!r}; end the first one"
                )
            self._open_role[op.branch] = op.role
        else:
            if now is None:
                raise ProgramError(f"{what}: no role is open; begin one first")
            self._open_role[op.branch] = None

    def _check_children(self, op: ForkOp | JoinOp, what: str) -> None:
        if isinstance(op, JoinOp):
            for child in op.children:
                if self.parents.get(child) != op.branch:
                    raise ProgramError(f"{what}: branch {child} is not a fork child of branch {op.branch}")
                if child in self._joined:
                    raise ProgramError(f"{what}: branch {child} was joined before, expected one join for a fork")
            self._joined.update(op.children)
            self._ended.update(op.children)
            return
        for child in op.children:
            if child in self.parents:
                raise ProgramError(f"{what}: branch {child} exists already, expected a new branch id")
            self.parents[child] = op.branch
            self._open_role[child] = self._open_role[op.branch]


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
class OpFailed:
    """An op ended without a result; every op that needs it fails with the same error."""

    op: int
    error: Exception


Event: TypeAlias = OpDelta | OpDone | OpScored | OpFailed
EventSink: TypeAlias = Callable[[Event], None]
"""Receives events in order, on a thread of the backend; must return quickly and must not raise."""


class Program(Protocol):
    """One running program inside a backend. Branch 0 exists from the start."""

    def append(self, ops: Sequence[Op]) -> None:
        """Take ops, in order; never waits for their results. Every op gets exactly one `OpDone` or `OpFailed`."""
        ...

    def cancel(self, branches: Sequence[int] | None = None) -> None:
        """Stop what runs on these branches and their descendants (None: all); their open ops fail as cancelled."""
        ...

    def close(self) -> None:
        """The program will append nothing more; open ops still finish. Idempotent. Sent after all `DecideOp`s."""
        ...


@runtime_checkable
class Backend(Protocol):
    """What executes programs: an in-process engine, a server, a hosted API, a script."""

    def open_program(self, sink: EventSink, *, seed: int | None = None) -> Program:
        """Start a program whose events go to `sink`. `seed`: from which every op without its own seed derives one."""
        ...

    def flush_cache(self) -> bool:
        """Forget all reusable prefixes; False where there are none to forget or requests are running."""
        ...

    def get_server_info(self) -> dict[str, Any]:
        """The effective configuration and counters."""
        ...

    def shutdown(self) -> None:
        """End the backend; open ops fail with `EngineStoppedError`. Idempotent."""
        ...
