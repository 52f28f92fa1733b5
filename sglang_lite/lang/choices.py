"""The choice methods of `select` as objects to pass and to call; the formulas live in `choice_scoring`.

Any object with the call signature of `ChoicesSamplingMethod` can be passed to `select`; the backend then reports the
scores and the object decides.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from sglang_lite import choice_scoring
from sglang_lite.request_tree import ChoicesMethod

TokenRows: TypeAlias = Sequence[Sequence[Sequence[Any]]]
"""One row a choice, one `(log-probability, token id, text)` a token; the log-probability of a first token may be None."""


@dataclass(frozen=True, slots=True)
class ChoicesDecision:
    """What a choice method decided: the chosen string, and what `s.get_meta_info(name)` shall report."""

    decision: str
    meta_info: dict[str, Any] | None = field(default=None)


class ChoicesSamplingMethod(ABC):
    """Decides between choices by the log-probabilities of their tokens. Derive from it to bring your own."""

    @property
    def requires_unconditional_logprobs(self) -> bool:
        """True when the method needs the choices scored without any context, too."""
        return False

    @abstractmethod
    def __call__(
        self,
        *,
        choices: list[str],
        normalized_prompt_logprobs: list[float],
        input_token_logprobs: TokenRows,
        output_token_logprobs: TokenRows,
        unconditional_token_logprobs: TokenRows | None = None,
    ) -> ChoicesDecision:
        """Decide.

        Args:
            normalized_prompt_logprobs: the mean token log-probability of each choice.
            input_token_logprobs: the tokens of each choice in the context.
            output_token_logprobs: what would follow each choice; may be empty.
            unconditional_token_logprobs: the same tokens without context, where they were asked for.
        """


def _logprobs(rows: TokenRows) -> list[list[float]]:
    return [[0.0 if token[0] is None else token[0] for token in row] for row in rows]


def _meta(normalized: list[float], rows: TokenRows, outputs: TokenRows) -> dict[str, Any]:
    return {
        "normalized_prompt_logprobs": normalized,
        "input_token_logprobs": rows,
        "output_token_logprobs": outputs,
    }


class TokenLengthNormalized(ChoicesSamplingMethod):
    """The choice with the highest mean token log-probability; the first one on ties."""

    def __call__(
        self,
        *,
        choices: list[str],
        normalized_prompt_logprobs: list[float],
        input_token_logprobs: TokenRows,
        output_token_logprobs: TokenRows,
        unconditional_token_logprobs: TokenRows | None = None,
    ) -> ChoicesDecision:
        """Decide by the given means."""
        index = choice_scoring.first_argmax(normalized_prompt_logprobs)
        return ChoicesDecision(
            choices[index], _meta(normalized_prompt_logprobs, input_token_logprobs, output_token_logprobs)
        )


class GreedyTokenSelection(ChoicesSamplingMethod):
    """The choice that is left when the tokens are compared place by place.

    Shorter choices count on with their own mean. Reports `greedy_logprob_matrix`.
    """

    def __call__(
        self,
        *,
        choices: list[str],
        normalized_prompt_logprobs: list[float],
        input_token_logprobs: TokenRows,
        output_token_logprobs: TokenRows,
        unconditional_token_logprobs: TokenRows | None = None,
    ) -> ChoicesDecision:
        """Decide by `input_token_logprobs`."""
        decision = choice_scoring.greedy_token_selection(_logprobs(input_token_logprobs))
        meta = _meta(normalized_prompt_logprobs, input_token_logprobs, output_token_logprobs)
        return ChoicesDecision(choices[decision.index], meta | decision.meta)


class UnconditionalLikelihoodNormalized(ChoicesSamplingMethod):
    """The choice whose tokens gain most from the context.

    Reports `unconditional_token_logprobs` and `normalized_unconditional_prompt_logprobs`.
    """

    @property
    def requires_unconditional_logprobs(self) -> bool:
        """True: the gain is measured against the choice without context."""
        return True

    def __call__(
        self,
        *,
        choices: list[str],
        normalized_prompt_logprobs: list[float],
        input_token_logprobs: TokenRows,
        output_token_logprobs: TokenRows,
        unconditional_token_logprobs: TokenRows | None = None,
    ) -> ChoicesDecision:
        """Decide by conditional minus unconditional log-probabilities.

        Raises:
            ValueError: there are no unconditional ones.
        """
        if unconditional_token_logprobs is None:
            raise ValueError(
                "choosing by unconditional likelihood: got no unconditional_token_logprobs, expected one row a choice"
            )
        decision = choice_scoring.unconditional_likelihood_normalized(
            _logprobs(input_token_logprobs), _logprobs(unconditional_token_logprobs)
        )
        meta = _meta(normalized_prompt_logprobs, input_token_logprobs, output_token_logprobs) | decision.meta
        meta["unconditional_token_logprobs"] = unconditional_token_logprobs
        return ChoicesDecision(choices[decision.index], meta)


token_length_normalized = TokenLengthNormalized()
greedy_token_selection = GreedyTokenSelection()
unconditional_likelihood_normalized = UnconditionalLikelihoodNormalized()

_KNOWN: dict[type[ChoicesSamplingMethod], ChoicesMethod] = {
    TokenLengthNormalized: "token_length_normalized",
    GreedyTokenSelection: "greedy_token_selection",
    UnconditionalLikelihoodNormalized: "unconditional_likelihood_normalized",
}


def wire_name(method: ChoicesSamplingMethod) -> ChoicesMethod:
    """How a backend knows the method; `client` for every class that it does not know, derived ones included."""
    return _KNOWN.get(type(method), "client")


def decide(
    method: ChoicesSamplingMethod, choices: tuple[str, ...], scores: Mapping[str, Any]
) -> tuple[int, dict[str, Any]]:
    """Ask a program's own method for its decision.

    Args:
        scores: the `meta` of an `OpScored` event.

    Returns:
        The index of the choice and what the method wants reported.

    Raises:
        ValueError: the decision is none of the choices.
    """
    decided = method(
        choices=list(choices),
        normalized_prompt_logprobs=scores["normalized_prompt_logprobs"],
        input_token_logprobs=scores["input_token_logprobs"],
        output_token_logprobs=scores["output_token_logprobs"],
        unconditional_token_logprobs=scores.get("unconditional_token_logprobs"),
    )
    if decided.decision not in choices:
        raise ValueError(
            f"choosing by {type(method).__name__}: it decided for {decided.decision!r}, expected one of {list(choices)}"
        )
    return choices.index(decided.decision), dict(decided.meta_info or {})
