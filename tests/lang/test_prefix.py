"""`cache` gives a backend what every run begins with, and nothing else."""

from __future__ import annotations

from typing import Any

from sglang_lite.lang import ProgramState, ScriptedBackend, assistant, function, gen, system, user


def cached(body: Any, **bound: Any) -> list[str]:
    backend = ScriptedBackend()
    function(body).bind(**bound).cache(backend)
    return [call.prompt for call in backend.calls]


def test_the_known_text_up_to_the_first_argument_is_cached() -> None:
    def body(s: ProgramState, question: str, shots: str) -> None:
        s += system("Be brief.")
        s += "Shots: " + shots + user(question) + assistant(gen("answer"))

    assert cached(body) == ["SYSTEM:Be brief.\nShots: "]
    assert cached(body, shots="1+1=2\n") == ["SYSTEM:Be brief.\nShots: 1+1=2\nUSER:"]


def test_it_ends_at_the_first_gen_and_the_first_question() -> None:
    def generates(s: ProgramState) -> None:
        s += "a" + gen("x") + "b"

    def asks(s: ProgramState, n: int) -> None:
        s += "a"
        if n > 1:
            s += "b"

    def begins_with_an_argument(s: ProgramState, text: str) -> None:
        s += text

    assert (cached(generates), cached(asks), cached(begins_with_an_argument)) == (["a"], ["a"], [])


def test_a_cached_program_takes_no_reply_from_a_script() -> None:
    @function
    def f(s: ProgramState) -> None:
        s += "a" + gen("x")

    backend = ScriptedBackend(["one"])
    f.cache(backend)
    assert f.run(backend=backend)["x"] == "one"
