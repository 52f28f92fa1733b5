"""A decorated program: arguments, bindings, options, nesting."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sglang_lite.errors import ProgramError, RequestError
from sglang_lite.lang import ProgramState, RunOptions, ScriptedBackend, backend_scope, function, gen
from tests.lang.support import HandBackend


@function
def args(s: ProgramState, a: int, b: int = 2, *, c: int = 3) -> tuple[int, int, int]:
    return a, b, c


def test_arguments_go_to_the_function_by_position_and_by_name() -> None:
    backend = ScriptedBackend()
    assert args.run(1, c=5, backend=backend).ret_value == (1, 2, 5)
    assert args(1, 4, backend=backend).ret_value == (1, 4, 3)


@pytest.mark.parametrize(("given", "named"), [((), {}), ((1, 2, 3), {}), ((1,), {"d": 1}), ((1,), {"a": 1})])
def test_wrong_arguments_are_a_type_error_before_anything_starts(given: Any, named: Any) -> None:
    backend = HandBackend()
    with pytest.raises(TypeError, match=r"calling args\(a, b, c\)"):
        args.run(*given, **named, backend=backend)
    assert backend.programs == []


def test_the_first_parameter_must_be_s() -> None:
    with pytest.raises(ProgramError, match="its first parameter is 'state', expected 's'"):
        function(lambda state: None)
    with pytest.raises(ProgramError, match="'missing'"):
        function(lambda: None)


def test_bound_arguments_win_and_the_original_stays() -> None:
    bound = args.bind(b=7).bind(c=8)
    backend = ScriptedBackend()
    assert bound.run(1, c=5, backend=backend).ret_value == (1, 7, 8)
    assert args.run(1, backend=backend).ret_value == (1, 2, 3)
    assert [s.ret_value for s in bound.run_batch([(1,), {"a": 2, "b": 0}], backend=backend)] == [(1, 7, 8), (2, 7, 8)]
    with pytest.raises(RequestError, match=r"binding arguments of args: unknown \['d'\]"):
        args.bind(d=1)


def test_a_function_with_keyword_arguments_takes_any_name() -> None:
    @function
    def f(s: ProgramState, **named: Any) -> Any:
        return named

    assert f.bind(x=1).run(y=2, options=3, backend=ScriptedBackend()).ret_value == {"x": 1, "y": 2, "options": 3}
    assert f.run(options=RunOptions(), backend=ScriptedBackend()).ret_value == {}


def test_a_binding_keeps_everything_else() -> None:
    bound = function(num_api_spec_tokens=5)(lambda s, x: None).with_options(seed=3).bind(x=1)
    assert (bound.num_api_spec_tokens, bound.options) == (5, RunOptions(seed=3))


def test_options_of_the_function_and_of_the_run() -> None:
    backend = HandBackend()
    seeded = args.with_options(RunOptions(seed=1)).with_options(on_error="state")
    seeded.run(1, backend=backend)
    seeded.run(1, backend=backend, options=RunOptions(seed=2))
    seeded.run_batch([(1,)], backend=backend, options=RunOptions())
    assert [program.seed for program in backend.programs] == [1, 2, None]
    assert seeded.options == RunOptions("state", 1)


def test_a_nested_program_has_a_state_of_its_own_on_the_same_backend() -> None:
    backend = ScriptedBackend(lambda call: f"[{call.prompt}]")

    @function
    def inner(s: ProgramState, word: str) -> str:
        s += word + gen("x")
        return "returned"

    @function
    def outer(s: ProgramState) -> None:
        s += "outer "
        nested = inner("inner ")
        assert (nested.ret_value, nested.text()) == ("returned", "inner [inner ]")
        assert "x" not in s
        s += nested["x"]

    assert outer.run(backend=backend).text() == "outer [inner ]"


def test_a_nested_program_may_name_another_backend() -> None:
    @function
    def inner(s: ProgramState) -> None:
        s += gen("x")

    @function
    def outer(s: ProgramState) -> list[str]:
        other = ScriptedBackend(["other"])
        return [inner()["x"], inner(backend=other)["x"], inner()["x"]]

    with backend_scope(ScriptedBackend(["scope"])):
        assert outer.run(backend=ScriptedBackend(["1", "2"])).ret_value == ["1", "other", "2"]
        assert inner()["x"] == "scope"


def test_run_is_synchronous_inside_a_running_event_loop() -> None:
    @function
    def f(s: ProgramState) -> None:
        s += gen("x")

    async def main() -> list[str]:
        backend = ScriptedBackend()
        return [f.run(backend=backend)["x"], *(state["x"] for state in f.run_batch([(), ()], backend=backend))]

    assert asyncio.run(main()) == ["<x>"] * 3


def test_wrong_sampling_defaults_are_refused_before_anything_starts() -> None:
    backend = HandBackend()
    with pytest.raises(RequestError, match="top_p=2"):
        args.run(1, top_p=2, backend=backend)
    with pytest.raises(RequestError, match="n=0"):
        args.run_batch([(1,)], n=0, backend=backend)
    assert backend.programs == []


def test_what_a_program_is_run_with_reaches_gen_but_not_select() -> None:
    @function
    def f(s: ProgramState) -> None:
        s += gen("x") + gen("y", max_tokens=2, temperature=0) + gen("c", choices=["a", "b"])

    backend = ScriptedBackend({"c": "b", "*": "one two three"})
    state = f.run(temperature=1.5, max_new_tokens=1, stop=["!"], backend=backend)
    x, y, c = backend.calls
    assert x.params is not None
    assert y.params is not None
    assert (x.params.temperature, x.params.stop) == (1.5, ("!",))
    assert (y.params.temperature, y.params.stop) == (0, ("!",))
    assert (state["x"], state["y"], state["c"]) == ("one", "one two", "b")
    assert c.params is None
