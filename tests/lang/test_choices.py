"""Choice methods, called as SGLang calls them, and a program's own."""

from __future__ import annotations

from typing import Any

import pytest

from sglang_lite.lang import (
    ChoicesDecision,
    ChoicesSamplingMethod,
    ProgramState,
    ScriptedBackend,
    function,
    greedy_token_selection,
    select,
    token_length_normalized,
    unconditional_likelihood_normalized,
)
from sglang_lite.lang.choices import TokenLengthNormalized, decide, wire_name

CHOICES = ["organ", "organism", "antidisestablishmentarianism"]
TOKENS = [
    [[-1.0, 1, "organ"]],
    [[-1.0, 1, "organ"], [-3.0, 2, "ism"]],
    [[-4.0, 3, "ant"], [-0.1, 4, "id"], [-0.2, 5, "is"], [-0.1, 6, "establish"], [-0.3, 2, "mentarianism"]],
]
UNCONDITIONAL = [
    [[None, 1, "organ"]],
    [[None, 1, "organ"], [-9.0, 2, "ism"]],
    [[None, 3, "ant"], [-0.1, 4, "id"], [-0.2, 5, "is"], [-0.1, 6, "establish"], [-0.3, 2, "mentarianism"]],
]
MEANS = [-1.0, -2.0, -0.94]
OUTPUTS: list[Any] = [[], [], []]


def call(method: ChoicesSamplingMethod, unconditional: Any = None) -> ChoicesDecision:
    return method(
        choices=CHOICES,
        normalized_prompt_logprobs=MEANS,
        input_token_logprobs=TOKENS,
        output_token_logprobs=OUTPUTS,
        unconditional_token_logprobs=unconditional,
    )


def test_token_length_normalized_prefers_the_long_word() -> None:
    decision = call(token_length_normalized)
    assert decision.decision == "antidisestablishmentarianism"
    assert decision.meta_info == {
        "normalized_prompt_logprobs": MEANS,
        "input_token_logprobs": TOKENS,
        "output_token_logprobs": OUTPUTS,
    }


def test_greedy_token_selection_prefers_the_likeliest_way() -> None:
    """Column 1: organ, organism; column 2: organ counts on with -1.0, organism falls to -3.0."""
    decision = call(greedy_token_selection)
    assert decision.decision == "organ"
    assert decision.meta_info is not None
    assert decision.meta_info["greedy_logprob_matrix"] == [[-1.0] * 5, [-1.0, -3.0, -2.0, -2.0, -2.0], [-4.0, -0.1, -0.2, -0.1, -0.3]]  # fmt: skip


def test_unconditional_likelihood_prefers_what_the_context_makes_likely() -> None:
    """Gains: organ -1; organism (-1 + 6) / 2; the long word -4 / 5."""
    decision = call(unconditional_likelihood_normalized, UNCONDITIONAL)
    assert decision.decision == "organism"
    assert decision.meta_info is not None
    assert decision.meta_info["normalized_unconditional_prompt_logprobs"] == pytest.approx([-1.0, 2.5, -0.8])
    assert decision.meta_info["unconditional_token_logprobs"] == UNCONDITIONAL


def test_unconditional_likelihood_asks_for_its_scores() -> None:
    assert unconditional_likelihood_normalized.requires_unconditional_logprobs
    assert not token_length_normalized.requires_unconditional_logprobs
    with pytest.raises(ValueError, match="no unconditional_token_logprobs"):
        call(unconditional_likelihood_normalized)


class Longest(ChoicesSamplingMethod):
    """The choice with the most letters."""

    def __init__(self, wants_unconditional: bool = False) -> None:
        self.seen: list[dict[str, Any]] = []
        self._wants = wants_unconditional

    @property
    def requires_unconditional_logprobs(self) -> bool:
        return self._wants

    def __call__(self, **scores: Any) -> ChoicesDecision:
        self.seen.append(scores)
        return ChoicesDecision(max(scores["choices"], key=len), {"method": "longest"})


class Renamed(TokenLengthNormalized):
    """A derived class decides by itself, even if its base is one that the backend knows."""


def test_only_the_three_methods_themselves_are_known_by_name() -> None:
    known = (token_length_normalized, greedy_token_selection, unconditional_likelihood_normalized)
    assert [wire_name(method) for method in known] == [
        "token_length_normalized",
        "greedy_token_selection",
        "unconditional_likelihood_normalized",
    ]
    assert wire_name(Longest()) == wire_name(Renamed()) == "client"


@pytest.mark.parametrize("wants_unconditional", [False, True])
def test_a_programs_own_method_decides(wants_unconditional: bool) -> None:
    method = Longest(wants_unconditional)

    @function
    def f(s: ProgramState) -> None:
        s += "The word is " + select("w", ["a", "bbb", "cc"], choices_method=method) + "."

    state = f.run(backend=ScriptedBackend(["a"]))
    assert (state["w"], state.text()) == ("bbb", "The word is bbb.")
    assert state.get_meta_info("w")["method"] == "longest"
    assert state.get_meta_info("w")["prompt_tokens"] == 4
    assert method.seen[0]["choices"] == ["a", "bbb", "cc"]
    assert (method.seen[0]["unconditional_token_logprobs"] is not None) == wants_unconditional


def test_a_decision_for_none_of_the_choices_is_an_error() -> None:
    class Lost(ChoicesSamplingMethod):
        def __call__(self, **scores: Any) -> ChoicesDecision:
            return ChoicesDecision("nowhere")

    scores = {"normalized_prompt_logprobs": [0.0], "input_token_logprobs": [[]], "output_token_logprobs": [[]]}
    with pytest.raises(ValueError, match=r"Lost: it decided for 'nowhere', expected one of \['a'\]"):
        decide(Lost(), ("a",), scores)
