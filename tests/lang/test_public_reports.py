"""Public bug reports of other projects that concern the language, each as a test of its whole kind."""

from __future__ import annotations

import re
from typing import Any

import pytest

from sglang_lite.lang import (
    ProgramState,
    ScriptedBackend,
    ScriptedCall,
    ScriptError,
    function,
    gen,
    greedy_token_selection,
    select,
    token_length_normalized,
    unconditional_likelihood_normalized,
)


@pytest.mark.parametrize(
    "method", [token_length_normalized, greedy_token_selection, unconditional_likelihood_normalized]
)
def test_select_appends_exactly_the_choice_and_nothing_more(method: Any) -> None:
    """C01 (c)."""

    @function
    def f(s: ProgramState) -> None:
        s += "The capital of France is"
        s += gen("a", choices=[" Paris", " Antidisestablishmentarianism"], choices_method=method)

    backend = ScriptedBackend([" Paris"])
    state = f.run(backend=backend)
    assert state.text() == "The capital of France is Paris"
    assert len(state.get_meta_info("a")["normalized_prompt_logprobs"]) == 2
    assert len(backend.calls) == 1


@pytest.mark.parametrize("first", [None, "", gen("e", max_tokens=0)])
def test_a_fork_before_any_text_works(first: Any) -> None:
    """C03: nothing was added before the fork, or nothing visible."""

    @function
    def f(s: ProgramState) -> None:
        if first is not None:
            s += first
        forks = s.fork(2)
        for i, x in enumerate(forks):
            x += f"Item {i}:"
            x += gen("o", max_tokens=4)
        assert s.text() == ""
        assert [x.text() for x in forks] == ["Item 0:<Item 0:>", "Item 1:<Item 1:>"]
        forks.join()

    def reply(call: ScriptedCall) -> str:
        return f"<{call.prompt}>"

    state = f.run(backend=ScriptedBackend(reply))
    assert state["o"] == ["<Item 0:>", "<Item 1:>"]
    assert state.text() == ""


SPECIAL = ["Dr. Smith", "a+b", "C:\\dir", "(x|y)", "[1]", 'say "hi"']


@pytest.mark.parametrize("choice", SPECIAL)
def test_choices_are_texts_not_patterns(choice: str) -> None:
    """C05: the choices travel as they are; a reply that only a pattern would let through is refused."""

    @function
    def f(s: ProgramState) -> None:
        s += gen("x", choices=SPECIAL)

    assert f.run(backend=ScriptedBackend([choice]), temperature=1.5)["x"] == choice
    for near in ("Drx Smith", "x", "aab", re.escape(choice) + "."):
        with pytest.raises(ScriptError, match="none of the choices"):
            f.run(backend=ScriptedBackend([near]))


@pytest.mark.parametrize("choice", ["PER", "ORG", ""])
def test_the_empty_choice_is_a_choice(choice: str) -> None:
    """C07."""

    @function
    def f(s: ProgramState) -> None:
        s += "Word: the - label: "
        s += gen("lab", choices=["PER", "ORG", ""])
        assert "lab" in s

    state = f.run(backend=ScriptedBackend([choice]))
    assert state["lab"] == choice
    assert state.text() == "Word: the - label: " + choice


@pytest.mark.parametrize("make", [gen, select])
def test_no_choices_are_a_value_error_before_running(make: Any) -> None:
    """C07."""
    with pytest.raises(ValueError, match="expected at least one"):
        make("lab", choices=[])


@pytest.mark.parametrize("stream", [False, True])
def test_no_piece_of_a_stop_string_is_seen(stream: bool) -> None:
    """C23, C25: the text before the stop is whole, and what only looks like a stop stays."""

    @function
    def f(s: ProgramState) -> None:
        s += gen("x", stop=["beta gamma"]) + gen("y", stop="\nUser:")

    backend = ScriptedBackend({"x": "alpha beta gamma delta", "y": "What now?\nUse"})
    state = f.run(backend=backend, stream=stream)
    assert "".join(state.text_iter("x")) == state["x"] == "alpha "
    assert "".join(state.text_iter("y")) == state["y"] == "What now?\nUse"
    assert state.get_meta_info("x")["finish_reason"] == {"type": "stop", "matched": "beta gamma"}
