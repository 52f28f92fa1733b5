"""Several gens of one turn from one call: what was written ahead is taken, or asked for again, never guessed (pitfall 18)."""

from __future__ import annotations

from typing import Any

import pytest

from sglang_lite.errors import ExecutionError, RequestError, UnsupportedError
from sglang_lite.lang import ProgramState, assistant, function, gen, user
from sglang_lite.lang.backends.hosted.messages import ModelReply
from sglang_lite.lang.backends.hosted.speculation import Ahead, without_lead
from tests.lang.backends.hosted.support import TEXT, fake

PERSON = "Name: Ann\nAge: 30\nJob: baker\n"


@function(num_api_spec_tokens=64)
def person(s: ProgramState, read_early: bool = False) -> None:
    s += user("Who?")
    s += assistant(
        "Name:" + gen("name", stop="\n") + "\nAge:" + gen("age", stop="\n") + "\nJob:" + gen("job", stop="\n") + "\n"
    )


@function(num_api_spec_tokens=64)
def person_text(s: ProgramState) -> None:
    s += "Name:" + gen("name", stop="\n") + "\nAge:" + gen("age", stop="\n") + "\nJob:" + gen("job", stop="\n")


def values(state: ProgramState) -> list[str]:
    return [state["name"], state["age"], state["job"]]


def test_a_turn_of_three_gens_is_one_call() -> None:
    backend, api = fake(lambda request: PERSON)
    state = person.run(backend=backend)
    assert values(state) == [" Ann", " 30", " baker"]
    assert len(api.requests) == 1
    assert (api.requests[0].stop, api.requests[0].max_tokens, api.requests[0].continues) == ((), 128, False)
    assert [state.get_meta_info(name)["requests"] for name in ("name", "age", "job")] == [1, 0, 0]
    assert state.messages()[-1]["content"] == PERSON
    assert backend.token_usage.requests == 1


def test_a_text_of_three_gens_is_one_call() -> None:
    backend, api = fake(lambda request: PERSON.removeprefix("Name:"), TEXT)
    assert values(person_text.run(backend=backend)) == [" Ann", " 30", " baker"]
    assert len(api.requests) == 1


def test_a_text_that_goes_on_otherwise_is_asked_for_again() -> None:
    """The second gen does not get words that were written behind other ones."""
    replies = iter([" Ann\nTown: Rome\n", " 41\nJob: cook\n"])
    backend, api = fake(lambda request: next(replies), TEXT)
    assert values(person_text.run(backend=backend)) == [" Ann", " 41", " cook"]
    assert api.requests[1].prompt == "Name: Ann\nAge:"


def test_a_turn_that_does_not_fit_is_asked_for_again_and_then_an_error() -> None:
    replies = iter(["Certainly!", "Name: Ann\nTown: x\n", PERSON])
    backend, api = fake(lambda request: next(replies))
    assert values(person.run(backend=backend)) == [" Ann", " 30", " baker"]
    assert len(api.requests) == 3
    backend, api = fake(lambda request: "Name: Ann\nTown: Rome\n")
    with pytest.raises(ExecutionError, match=r"3 answers did not have the texts of the turn .*expected '\\nAge:'"):
        person.run(backend=backend)
    assert len(api.requests) == 3


def test_limits_are_counted_by_the_model_and_not_in_characters() -> None:
    """A gen's own small limit does not cut characters off what was written ahead."""

    @function(num_api_spec_tokens=64)
    def f(s: ProgramState) -> None:
        s += user("Who?") + assistant(
            "Name:" + gen("name", max_tokens=2, stop="\n") + "\nAge:" + gen("age", max_tokens=1)
        )

    backend, api = fake(lambda request: "Name: Anastasia\nAge: 30")
    state = f.run(backend=backend)
    assert (state["name"], state["age"]) == (" Anastasia", " 30")
    assert api.requests[0].max_tokens == 64


def test_rows_side_by_side_do_not_mix() -> None:
    def answer(request: Any) -> str:
        who = request.messages[0]["content"]
        return f"Name: {who}\nAge: {who * 2}\nJob: {who * 3}\n"

    @function(num_api_spec_tokens=64)
    def f(s: ProgramState, who: str) -> None:
        s += user(who)
        s += assistant(
            "Name:" + gen("name", stop="\n") + "\nAge:" + gen("age", stop="\n") + "\nJob:" + gen("job", stop="\n")
        )

    states: Any = f.run_batch([{"who": str(i)} for i in range(20)], backend=fake(answer)[0])
    assert [values(state) for state in states] == [[f" {i}", f" {str(i) * 2}", f" {str(i) * 3}"] for i in range(20)]


def test_a_value_may_be_read_before_the_next_turn() -> None:
    @function(num_api_spec_tokens=64)
    def f(s: ProgramState) -> str:
        s += user("Who?") + assistant("Name:" + gen("name", stop="\n") + "\nAge:" + gen("age", stop="\n") + "\n")
        name = s["name"]
        s += user(name) + assistant("Name:" + gen("name2", stop="\n") + "\nAge:" + gen("age2", stop="\n") + "\n")
        return name + s["age2"]

    backend, api = fake(lambda request: PERSON)
    assert f.run(backend=backend).ret_value == " Ann 30"
    assert len(api.requests) == 2


def test_a_read_in_the_middle_of_a_turn_is_no_guess() -> None:
    """The rest of the turn comes after the value is out: it fits what was written, or it is an error."""

    @function(num_api_spec_tokens=64)
    def f(s: ProgramState, then: str) -> str:
        s += user("Who?")
        with s.assistant():
            s += "Name:" + gen("name", stop="\n")
            assert s["name"] == " Ann"
            s += then + gen("age", stop="\n")
        return s["age"]

    backend, api = fake(lambda request: PERSON)
    assert f.run("\nAge:", backend=backend).ret_value == " 30"
    assert len(api.requests) == 1
    with pytest.raises(ExecutionError, match=r"appending '\\nTown:' in a turn that was written ahead"):
        f.run("\nTown:", backend=backend)


def test_one_backend_serves_programs_with_and_without() -> None:
    """The length to write ahead belongs to the program, not to the backend, and `bind` keeps it."""

    @function
    def plain(s: ProgramState) -> None:
        s += user("Who?") + assistant(gen("a", stop="\n"))
        inner = person.bind(read_early=False).run()
        s["inner"] = inner["job"]

    backend, api = fake(lambda request: PERSON)
    assert plain.run(backend=backend)["inner"] == " baker"
    assert sorted(request.stop for request in api.requests) == [(), ("\n",)]

    @function(num_api_spec_tokens=64)
    def outer(s: ProgramState) -> None:
        alone.run()

    @function
    def alone(s: ProgramState) -> None:
        s += user("Who?") + assistant(gen("a", stop="\n"))

    outer.run(backend=backend)
    assert api.requests[-1].stop == ("\n",)


def test_what_cannot_be_written_ahead_is_refused() -> None:
    backend, api = fake(lambda request: PERSON)
    with pytest.raises(UnsupportedError, match="num_api_spec_tokens with a stream"):
        list(person.run(backend=backend, stream=True).text_iter())
    with pytest.raises(RequestError, match="num_api_spec_tokens: got 0"):
        function(num_api_spec_tokens=0)(person.func).run(backend=backend)
    assert api.requests == []


def test_a_turn_that_the_limit_cut_is_not_taken_for_whole() -> None:
    backend, _ = fake(lambda request: ModelReply(("Name: Ann\nAge: 3",), "length"))
    with pytest.raises(ExecutionError, match=r"it wrote none of the stops .* of gen 'age'"):
        person.run(backend=backend)


def test_taking_from_what_was_written() -> None:
    ahead = Ahead("a\nb", is_whole=False)
    assert ahead.take(("\n",), is_last=False) == ("a", Ahead("\nb", False))
    assert ahead.take(("x",), is_last=True) is None
    assert Ahead("a", True).take(("x",), is_last=True) == ("a", Ahead("", True))
    assert Ahead("a", True).take(("x",), is_last=False) is None
    assert ahead.after_text("a\n") == Ahead("b", False)
    assert ahead.after_text("b") is None
    assert without_lead("  Name: x", "Name:") == " x"
    assert without_lead("Sure", "Name:") is None
