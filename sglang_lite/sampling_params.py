"""How one generation runs, and which log-probabilities it returns: the parameters that language and runtime share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, TypeAlias, get_args

from sglang_lite.errors import RequestError

__all__ = ["CONSTRAINTS", "JsonWhitespace", "JumpForward", "LogprobParams", "SamplingParams"]

JumpForward: TypeAlias = Literal["off", "verify", "force"]
"""What is done with tokens that a constraint forces: nothing; keep those that the row would choose itself; keep all."""

JsonWhitespace: TypeAlias = Literal["compact", "spaced", "any"]
"""White space of constrained JSON: none; one space after `,` and `:`; any, in bounds."""

CONSTRAINTS = ("regex", "choices", "json_schema", "ebnf", "structural_tag")
"""Fields of `SamplingParams` that constrain the text; at most one is set."""


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How one generation runs. Names and defaults are SGLang's; a wrong value raises `RequestError`.

    `max_new_tokens` None means: up to the context. `top_k` -1 means all. `seed` None means: drawn by the backend.
    At most one of `regex`, `choices`, `json_schema`, `ebnf`, `structural_tag` (the constraints) may be set.

    `json_whitespace`, `json_strict`: how a `json_schema` is enforced; None means `compact`; not strict: a keyword that
    cannot be enforced is checked on the finished text and named in the reply. `jump_forward` None means: as the
    backend is set. `thinking`: the marks around the model's thinking; a constraint begins after the second one, or
    at once where neither the prompt nor the text opens the thinking. An empty first mark: the text begins within it.
    `thinking_budget`: at most that many tokens of thinking, then the second mark is forced; 0: none at all.
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
    structural_tag: str | None = None
    json_whitespace: JsonWhitespace | None = None
    json_strict: bool = True
    jump_forward: JumpForward | None = None
    thinking: tuple[str, str] | None = None
    thinking_budget: int | None = None

    def __post_init__(self) -> None:
        """Check every field; the message names the field, the value and what is allowed."""
        for name, ok, allowed in self._rules():
            if not ok:
                raise RequestError(f"checking sampling parameters: {name}={getattr(self, name)!r}, expected {allowed}")
        constraints = [name for name in CONSTRAINTS if getattr(self, name) is not None]
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
        yield from self._constraint_rules()

    def _constraint_rules(self) -> Iterator[tuple[str, bool, str]]:
        def text(value: object) -> bool:
            return isinstance(value, str)

        for name in ("regex", "json_schema", "ebnf", "structural_tag"):
            yield name, getattr(self, name) is None or text(getattr(self, name)), "a string or None"
        yield (
            "choices",
            self.choices is None or (bool(self.choices) and all(map(text, self.choices))),
            "strings, at least one, or None",
        )
        allowed = (None, *get_args(JsonWhitespace))
        yield "json_whitespace", self.json_whitespace in allowed, f"one of {allowed}"
        yield "json_strict", self.json_strict in (True, False), "True or False"
        allowed = (None, *get_args(JumpForward))
        yield "jump_forward", self.jump_forward in allowed, f"one of {allowed}"
        for name in ("ignore_eos", "no_stop_trim", "skip_special_tokens"):
            yield name, type(getattr(self, name)) is bool, "True or False"
        marks = self.thinking
        yield (
            "thinking",
            marks is None or (len(marks) == 2 and all(map(text, marks)) and marks[1] != ""),
            "two strings, the second not empty, or None",
        )
        budget = self.thinking_budget
        yield (
            "thinking_budget",
            budget is None or (type(budget) is int and budget >= 0 and marks is not None),
            "a whole number >= 0 or None, beside `thinking`",
        )

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
        for name in ("stop", "stop_token_ids", "stop_regex", "choices", "thinking"):
            value = values.get(name)
            if value is None:
                if name not in ("choices", "thinking"):
                    values.pop(name, None)
            else:
                values[name] = tuple(value) if isinstance(value, list | tuple | set | frozenset) else (value,)  # pyright: ignore[reportUnknownArgumentType]
        bias: Any = values.pop("logit_bias", None)
        if bias is not None:
            values["logit_bias"] = tuple(sorted((_token_id(key), value) for key, value in _pairs(bias)))
        return SamplingParams(**values)

    def with_(self, **changes: Any) -> SamplingParams:
        """A copy with some fields changed, checked again."""
        return replace(self, **changes)

    def of_sample(self, seed: int) -> SamplingParams:
        """A copy for one sample with a seed, not checked again: all else was when this was made."""
        assert seed >= 0, f"seed {seed} of a sample"
        sample, put = object.__new__(SamplingParams), object.__setattr__
        for name in _FIELDS:
            put(sample, name, getattr(self, name))
        put(sample, "seed", seed)
        put(sample, "n", 1)
        return sample

    @property
    def constraint(self) -> str | None:
        """The name of the constraint that is set; None: the text is free."""
        for name in CONSTRAINTS:
            if getattr(self, name) is not None:
                return name
        return None

    @property
    def is_greedy(self) -> bool:
        """True when the most likely token is always taken."""
        return self.temperature == 0 or self.top_k == 1


_FIELDS = tuple(field.name for field in fields(SamplingParams))


def _pairs(bias: Any) -> list[tuple[Any, Any]]:
    """Token ids and what is added to their logits, from a mapping or from pairs."""
    pairs: Any = dict[Any, Any](bias).items() if isinstance(bias, Mapping) else bias  # pyright: ignore[reportUnknownArgumentType]
    try:
        return [(key, value) for key, value in pairs]
    except (TypeError, ValueError):
        raise RequestError(
            f"reading sampling parameters: logit_bias={bias!r:.80}, expected an object from token ids to numbers"
        ) from None


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
