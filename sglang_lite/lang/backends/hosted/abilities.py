"""What a hosted API can do, op by op: exactly, by means of its own, or not at all; asked before anything is sent."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from sglang_lite.errors import UnsupportedError
from sglang_lite.lang.backends.hosted.forms import form_of
from sglang_lite.request_tree import CountOp, GenOp, Op, SamplingParams, SelectOp, TemplateOp

How: TypeAlias = Literal["exact", "by its means", "refused"]

_DEFAULTS = SamplingParams()
_ALWAYS = frozenset({"max_new_tokens", "n", "stop", "temperature", "top_p", "seed", "json_whitespace", "json_strict", "jump_forward", "thinking"})  # fmt: skip
"""Fields that every API takes, that the language does in its place, or that only say how a runtime does its work."""
_CONSTRAINTS = ("regex", "choices", "json_schema", "ebnf", "structural_tag")
_INSTEAD = {
    "regex": "gen(json_schema=...) with a pattern, or select(choices=[...])",
    "ebnf": "gen(json_schema=...)",
    "structural_tag": "gen(json_schema=...)",
    "json_schema": "gen(stop=...) and a check of your own",
    "choices": "gen(stop=...) and a check of your own",
    "top_k": "top_p",
    "min_p": "top_p",
    "repetition_penalty": "frequency_penalty",
    "min_new_tokens": "a prompt that asks for a longer text",
    "ignore_eos": "a prompt that asks for a longer text",
    "stop_token_ids": "stop=[...]",
    "stop_regex": "stop=[...]",
    "thinking_budget": "the API's own settings, given to the backend's constructor",
}


@dataclass(frozen=True, slots=True)
class Abilities:
    """What one API with one model can do.

    `chat`, `completion`: turns; text to go on from. `params`: fields of `SamplingParams` that it takes beside those
    that all take. `constraints`: constraints that it takes as they are. `forms`: it holds an answer to a JSON Schema.
    `scores`: log-probabilities of a given text; `scores_alone`: of tokens without it. `continues`: it goes on from a turn
    that has begun. `logprobs`: of generated tokens; `prompt_logprobs`: of the prompt's, too. `prefills`: it takes a call for
    no tokens. `counts`: it counts tokens. `num_stops`: at most that many stop texts; `blank_stops`: of white
    space, too; what it does not take is cut here.
    """

    name: str
    chat: bool = True
    completion: bool = False
    params: frozenset[str] = frozenset()
    constraints: frozenset[str] = frozenset()
    forms: bool = True
    scores: bool = False
    scores_alone: bool = False
    continues: bool = False
    logprobs: bool = False
    prompt_logprobs: bool = False
    prefills: bool = False
    counts: bool = False
    max_temperature: float = 2.0
    num_stops: int = 4
    blank_stops: bool = True

    def refuse(self, what: str, instead: str) -> UnsupportedError:
        """The error of something that it cannot do."""
        return UnsupportedError(
            f"running on {self.name}: {what} is not possible there; use {instead}, or run on 'local'"
        )

    def check(self, op: Op, place: Place, num_speculated: int | None) -> None:
        """Whether `op` can be done where it stands.

        Raises:
            UnsupportedError: it cannot; the nearest alternative is named. Nothing was sent.
        """
        match op:
            case GenOp(params=params):
                if num_speculated is not None and (op.stream or params.n > 1):
                    raise self.refuse("num_api_spec_tokens with a stream or n > 1", "a run without one of them")
                self._check_place(op, place, num_speculated)
                self._check_params(params, place)
                is_beyond = op.logprob is not None and op.logprob.start_len is not None and not self.prompt_logprobs
                if is_beyond or (op.logprob is not None and not self.logprobs):
                    raise self.refuse("return_logprob of this kind", "gen without it")
            case SelectOp(method=method):
                self._check_place(op, place, None)
                is_scored = not self._is_chat(place)
                if is_scored and not self.scores:
                    raise self.refuse("select on text outside turns", "turns: s += user(...) + assistant(select(...))")
                if not is_scored and not self.forms:
                    raise self.refuse("select", "gen(stop=...) and a check of your own")
                if (
                    method == "unconditional_likelihood_normalized" or op.needs_unconditional
                ) and not self.scores_alone:
                    raise self.refuse("select by unconditional likelihood", "token_length_normalized")
                if method == "client" and not is_scored:
                    raise self.refuse("select by a method of your own", "one of the three methods")
            case TemplateOp() if not self.chat:
                raise self.refuse("tools", "a chat model")
            case CountOp() if not self.counts:
                raise self.refuse("counting tokens", "the prompt_tokens of s.get_meta_info(name)")
            case _:
                pass

    def _is_chat(self, place: Place) -> bool:
        return self.chat and (place.has_turns or not self.completion)

    def _check_place(self, op: GenOp | SelectOp, place: Place, num_speculated: int | None) -> None:
        if not self._is_chat(place):
            return
        what = f"{type(op).__name__.removesuffix('Op').lower()} {op.name!r}"
        if place.role != "assistant":
            raise self.refuse(f"{what} outside an assistant turn", "turns: s += user(...) + assistant(gen(...))")
        if place.has_outside:
            raise self.refuse(f"{what} after text outside turns", "turns for all text: s += user(...)")
        is_plain = isinstance(op, GenOp) and op.params.constraint is None
        if place.has_turn_text and not ((self.continues and is_plain) or (num_speculated is not None and is_plain)):
            raise self.refuse(
                f"{what} in a turn that has begun",
                "a turn of its own for each gen, or @function(num_api_spec_tokens=...)",
            )

    def _check_params(self, params: SamplingParams, place: Place) -> None:
        if params.temperature > self.max_temperature:
            raise self.refuse(f"temperature={params.temperature}", f"at most {self.max_temperature}")
        for name in SamplingParams.__dataclass_fields__:
            if name in _ALWAYS or getattr(params, name) == getattr(_DEFAULTS, name):
                continue
            if name in _CONSTRAINTS:
                if name == "structural_tag" and place.has_tools and self._is_chat(place):
                    continue
                if name in self.constraints or (self.forms and form_of(params) is not None):
                    continue
            elif name in self.params:
                continue
            raise self.refuse(f"{name}={getattr(params, name)!r}", _INSTEAD.get(name, "a gen without it"))

    def table(self) -> dict[str, How]:
        """Per op how it is done, for the documentation."""
        chat: How = "exact" if self.chat else "by its means"
        text: How = "exact" if self.completion else "refused"
        held: How = "by its means" if self.forms else "refused"
        select: How = "exact" if self.scores else held
        rows: dict[str, How] = {
            "turns": chat,
            "gen in a turn of its own": "exact",
            "gen in a turn that has begun": "exact" if self.continues or not self.chat else "refused",
            "gen on text outside turns": text,
            "num_api_spec_tokens": "exact",
            "n > 1, stop, temperature, top_p": "exact",
            "json_schema, type=": "exact" if "json_schema" in self.constraints else held,
            "dtype=": "exact" if "regex" in self.constraints else held,
            "select in turns": held,
            "select on text": select if self.completion else "refused",
            "regex": "exact" if "regex" in self.constraints else "refused",
            "ebnf": "exact" if "ebnf" in self.constraints else "refused",
            "frequency_penalty, presence_penalty": "exact" if "frequency_penalty" in self.params else "refused",
            "top_k": "exact" if "top_k" in self.params else "refused",
            "min_p, min_tokens, ignore_eos, stop_token_ids": "exact" if "min_p" in self.params else "refused",
            "tools": "by its means" if self.chat else "refused",
            "return_logprob": "exact" if self.logprobs else "refused",
            "fork, join, first=, vote=, copy": "exact",
            "mark, rewind, hold, ref": "exact",
            "num_tokens": "exact" if self.counts else "refused",
            "stream": "exact",
        }
        return rows


@dataclass(frozen=True, slots=True)
class Place:
    """What can be known of a branch before anything ran: what stands before its next op."""

    role: str | None = None
    has_turns: bool = False
    has_turn_text: bool = False
    has_outside: bool = False
    has_tools: bool = False

    def with_text(self) -> Place:
        """With text that is not blank."""
        return replace(self, has_outside=True) if self.role is None else replace(self, has_turn_text=True)

    def with_role(self, role: str) -> Place:
        """With a turn begun."""
        return replace(self, role=role, has_turns=True, has_turn_text=False)

    def without_role(self) -> Place:
        """With the open turn closed."""
        return replace(self, role=None, has_turn_text=False)

    def joined(self, other: Place) -> Place:
        """With what a child may have added."""
        return replace(
            self,
            has_turns=self.has_turns or other.has_turns,
            has_turn_text=self.has_turn_text or (self.role is not None and other.has_turn_text),
            has_outside=self.has_outside or other.has_outside,
        )
