"""Typed values in whole programs: on canned replies, on a backend driven by hand, and on the real model."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest

import sglang_lite as sgl
from sglang_lite.errors import CancelledError, RequestError, TruncatedError, ValidationError
from sglang_lite.request_tree import AcceptOp, OpHeld, RefuseOp, RetryOp
from tests.lang.support import Background, HandBackend
from tests.lang.typed.types_used import Colour, Model, Pet, Positive
from tests.support.live_server import live_server
from tests.support.talking_engine import talking_engine

BAD, GOOD = '{"number":-1}', '{"number":1}'


@sgl.function
def one(s: Any, kind: Any, **arguments: Any) -> Any:
    s += "Q: " + sgl.gen("x", type=kind, **arguments)
    s += " and " + sgl.gen("y")
    return s["x"]


def run_one(replies: list[Any], kind: Any = Positive, options: sgl.RunOptions | None = None, **arguments: Any) -> Any:
    backend = sgl.ScriptedBackend([*replies, "Y"])
    state = one.run(kind, backend=backend, options=options or sgl.RunOptions(), **arguments)
    return state, [call.prompt for call in backend.calls], [call.params for call in backend.calls]


def test_a_value_is_typed_and_its_text_is_there() -> None:
    state, prompts, _ = run_one(['{"name": "Rex", "age": 3}'], Pet)
    assert state["x"] == state.ret_value == Pet("Rex", 3)
    assert state.get_text("x") == '{"name": "Rex", "age": 3}'
    assert (state["y"], state.get_text("y")) == ("Y", "Y")
    assert prompts[1] == 'Q: {"name": "Rex", "age": 3} and '


def test_a_gen_that_ends_by_its_form_takes_no_limit_from_the_run() -> None:
    for kind, reply, limit in [(Pet, '{"name":"R"}', None), (int, "1", None), (Colour, "red", None), (str, "a", 128)]:
        assert [params.max_new_tokens for params in run_one([reply], kind)[2]] == [limit, 128]
    assert run_one(["1"], int, max_tokens=7)[2][0].max_new_tokens == 7


def test_a_schema_gen_takes_no_limit_either_and_says_when_the_context_cut_it() -> None:
    @sgl.function
    def schema(s: Any, **arguments: Any) -> None:
        s += sgl.gen("x", json_schema={"type": "array"}, **arguments)

    backend = sgl.ScriptedBackend(["[1]"])
    assert schema.run(backend=backend)["x"] == "[1]"
    assert backend.calls[0].params is not None
    assert backend.calls[0].params.max_new_tokens is None
    hand = HandBackend()
    running = Background(lambda: schema.run(backend=hand))
    program = hand.wait_program()
    program.done(program.wait_gen(), "[1, ", finish_reason={"type": "length", "length": 9})
    with pytest.raises(TruncatedError):
        running.result()


def test_with_a_limit_of_its_own_a_schema_gen_is_cut_as_a_gen_without_a_type() -> None:
    """As in SGLang: whoever sets a limit gets the text."""

    @sgl.function
    def schema(s: Any) -> None:
        s += sgl.gen("x", json_schema={"type": "array"}, max_tokens=2)

    assert schema.run(backend=sgl.ScriptedBackend(["[1, 2, 3]"]))["x"] == "[1, 2,"


def test_a_rejected_try_leaves_nothing_and_another_one_follows() -> None:
    state, prompts, _ = run_one([BAD, GOOD], retries=1)
    assert state["x"] == Positive(1)
    assert prompts == ["Q: ", "Q: ", f"Q: {GOOD} and "]
    meta = state.get_meta_info("x")
    assert meta["attempts"] == 2
    assert [(entry["text"], entry["error"]) for entry in meta["tries"]] == [
        (BAD, "reading a Positive: $: number must be above 0"),
        (GOOD, None),
    ]


def test_the_error_is_told_in_the_prompt_of_the_next_try_where_that_is_asked() -> None:
    state, prompts, _ = run_one([BAD, GOOD], retries=1, retry_text=True, temperature=0)
    told = f"Q: {BAD}\nThis is not valid: number must be above 0\nOnce more: "
    assert prompts == ["Q: ", told, f"{told}{GOOD} and "]
    assert (state["x"], state.get_text("x")) == (Positive(1), GOOD)
    assert run_one([BAD, GOOD], retries=1, retry_text="(no: {error}) ")[1][1] == "Q: (no: number must be above 0) "


def test_the_cost_of_all_tries_is_counted() -> None:
    state, _, _ = run_one([BAD, GOOD], retries=1)
    assert state.usage().requests == 3


def test_without_a_good_try_the_program_fails_with_what_is_wrong() -> None:
    with pytest.raises(ValidationError, match="number must be above 0") as caught:
        run_one([BAD, BAD], retries=1)
    assert caught.value.text == BAD
    assert caught.value.failures == (("$", "number must be above 0"),)


def test_an_op_that_comes_after_a_refused_value_fails_with_the_same_error() -> None:
    @sgl.function
    def follows(s: Any) -> None:
        s += sgl.gen("x", type=Positive) + sgl.gen("y")

    state = follows.run(backend=sgl.ScriptedBackend([BAD, "Y"]), options=sgl.RunOptions(on_error="state"))
    errors: list[BaseException] = []
    for name in ("x", "y"):
        with pytest.raises(ValidationError) as caught:
            state[name]
        errors.append(caught.value)
    assert errors[0] is errors[1] is state.error()


def test_one_that_was_cut_is_tried_again_with_more() -> None:
    text = '{"name": "Rex", "age": 3}'
    state, _, params = run_one([text, text], Pet, retries=1, max_tokens=3)
    assert state["x"] == Pet("Rex", 3)
    assert [p.max_new_tokens for p in params] == [3, 6, 128]


def test_one_that_stays_cut_tells_what_is_complete() -> None:
    with pytest.raises(TruncatedError, match="max_tokens=3") as caught:
        run_one(['{"name": "Rex", "age": 3}'], Pet, max_tokens=3)
    assert caught.value.text == '{"name": "Rex", "age":'
    assert caught.value.parts == [("name", "Rex")]


def test_tries_that_would_all_be_the_same_are_refused_at_the_call() -> None:
    with pytest.raises(RequestError, match="temperature 0"):
        sgl.gen("x", type=Pet, retries=1, temperature=0)
    backend = sgl.ScriptedBackend()
    with pytest.raises(RequestError, match="temperature 0"):
        one.bind(kind=Pet, retries=1).run(temperature=0, backend=backend)
    assert backend.calls == []


def test_a_text_without_a_type_is_tried_again_where_a_check_refuses_it() -> None:
    def is_polite(text: str) -> None:
        if "please" not in text:
            raise ValueError("say please")

    @sgl.function
    def ask(s: Any) -> None:
        s += sgl.gen("x", check=is_polite, retries=1)

    assert ask.run(backend=sgl.ScriptedBackend(["give", "please give"]))["x"] == "please give"


def test_a_stream_shows_a_value_only_once_it_is_accepted() -> None:
    state = one.run(Positive, retries=1, backend=sgl.ScriptedBackend([BAD, GOOD, "Y"]), stream=True)
    assert list(state.text_iter("x")) == [GOOD]
    assert list(state.value_iter("x")) == [("number", 1)]
    assert "".join(state.text_iter()) == f"Q: {GOOD} and Y"


def test_values_go_through_forks_references_and_reasoning() -> None:
    @sgl.function
    def forked(s: Any) -> None:
        forks = s.fork(2)
        for fork in forks:
            fork += sgl.gen("x", type=int)
        forks.join()
        s += "first " + s.ref("x", 0) + " " + sgl.separate_reasoning(sgl.gen("z", type=Positive), "qwen3")

    state = forked.run(backend=sgl.ScriptedBackend({"x": ["1", "2"], "z": GOOD}))
    assert (state["x"], state.get_text("x")) == ([1, 2], ["1", "2"])
    assert (state["z"], state.get_text("z")) == (Positive(1), GOOD)
    assert state.text() == f"first 1 {GOOD}"


def test_an_async_body_awaits_typed_values() -> None:
    @sgl.function
    async def body(s: Any) -> Any:
        gen = sgl.gen("x", type=Positive, retries=1)
        s += gen
        return await s.get(gen), s["x"], s.get_text("x"), [part async for part in s.value_async_iter("x")]

    state = asyncio.run(body.run_async(backend=sgl.ScriptedBackend([BAD, GOOD])))
    assert state.ret_value == (Positive(1), Positive(1), GOOD, [("number", 1)])


def test_a_gen_without_a_name_has_no_value_to_read() -> None:
    @sgl.function
    def body(s: Any) -> None:
        gen = sgl.gen(type=int)
        s += gen
        s[gen]

    with pytest.raises(RequestError, match="no name"):
        body.run(backend=sgl.ScriptedBackend(["1"]))


def test_rows_of_a_batch_are_written_with_their_members(tmp_path: Path) -> None:
    @sgl.function
    def row(s: Any, number: int) -> None:
        s += sgl.gen("x", type=Pet)

    out = tmp_path / "out.jsonl"
    row.run_batch([{"number": 1}], backend=sgl.ScriptedBackend(['{"name":"Rex"}']), out=out)
    entry = json.loads(out.read_text(encoding="utf-8"))
    assert entry["variables"]["x"] == {"name": "Rex", "age": 0, "toys": [], "weight": None}


def test_a_trace_shows_the_program_without_a_value() -> None:
    traced = one.trace(kind=Pet)
    assert traced.is_closed
    assert "x" in str(traced)


# --- a backend that is driven by hand ---


def hold(program: Any, op: Any, text: str, **meta: Any) -> None:
    program.sink(OpHeld(op.id, text, meta=meta))


def wait_answer(program: Any, number: int = 0) -> Any:
    def answers() -> list[Any]:
        return [op for op in program.ops if isinstance(op, AcceptOp | RetryOp | RefuseOp)]

    program.wait(lambda: len(answers()) > number)
    return answers()[number]


def test_a_held_result_is_answered_and_the_program_closes_after_the_last_answer() -> None:
    backend = HandBackend()

    @sgl.function
    def body(s: Any) -> None:
        s += sgl.gen("x", type=Positive, retries=1)

    running = Background(lambda: body.run(backend=backend))
    program = backend.wait_program()
    op = program.wait_gen()
    hold(program, op, BAD)
    first = wait_answer(program)
    assert isinstance(first, RetryOp)
    assert first.gen == op.id
    program.done(first)
    assert program.num_closes == 0
    hold(program, op, GOOD)
    second = wait_answer(program, 1)
    assert isinstance(second, AcceptOp)
    program.done(second)
    program.done(op, GOOD, GOOD)
    assert running.result()["x"] == Positive(1)
    assert program.num_closes == 1


def test_code_of_a_type_runs_on_no_thread_of_the_backend() -> None:
    threads: list[str] = []

    def note(value: object) -> None:
        threads.append(threading.current_thread().name)

    backend = HandBackend()

    @sgl.function
    def body(s: Any) -> None:
        s += sgl.gen("x", type=int, check=note)

    running = Background(lambda: body.run(backend=backend))
    program = backend.wait_program()
    op = program.wait_gen()
    hold(program, op, "1")
    answer = wait_answer(program)
    program.done(answer)
    program.done(op, "1")
    assert running.result()["x"] == 1
    assert threads == ["sglang_lite-body"]


def test_a_program_that_is_cancelled_while_a_value_is_judged_ends() -> None:
    judging, may_go_on = threading.Event(), threading.Event()

    def slow(value: object) -> None:
        judging.set()
        assert may_go_on.wait(20)

    backend = HandBackend()

    @sgl.function
    def body(s: Any) -> None:
        s += sgl.gen("x", type=int, check=slow)

    state = body.run(backend=backend, stream=True)
    program = backend.wait_program()
    hold(program, program.wait_gen(), "1")
    assert judging.wait(20)
    state.cancel()
    may_go_on.set()
    with pytest.raises(CancelledError):
        state["x"]
    program.wait(lambda: program.num_closes == 1)
    assert not [op for op in program.ops if isinstance(op, AcceptOp)]


def test_an_error_of_a_validator_that_is_a_bug_is_the_gens_error() -> None:
    def fails(value: object) -> None:
        raise KeyError("a bug")

    with pytest.raises(KeyError, match="a bug"):
        run_one(["1"], int, check=fails, retries=3)


def test_a_model_of_pydantic_is_validated_by_itself() -> None:
    state, _, _ = run_one(['{"number":13}', '{"number":14}'], Model, retries=1)
    assert state["x"] == Model(number=14)
    with pytest.raises(ValidationError, match="unlucky"):
        run_one(['{"number":13}'], Model)


def test_a_type_checker_knows_the_types() -> None:
    """Every `assert_type` holds, and exactly the lines marked as wrong are."""
    path = Path(__file__).with_name("static_types.py")
    command = [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, "--outputjson", str(path)]
    found = json.loads(subprocess.run(command, capture_output=True, text=True, cwd=path.parents[3]).stdout)
    wrong = {entry["range"]["start"]["line"] for entry in found["generalDiagnostics"]}
    lines = path.read_text(encoding="utf-8").splitlines()
    assert wrong == {number for number, line in enumerate(lines) if "# ERROR" in line}


def test_a_server_tries_again_as_an_engine_in_process_does() -> None:
    with talking_engine() as (engine, _), live_server(engine) as server:
        remote = sgl.RuntimeEndpoint(server.url)
        results: list[Any] = []
        for backend in (engine, remote):
            seen: list[str] = []

            def is_third(text: str, seen: list[str] = seen) -> None:
                seen.append(text)
                if len(seen) < 3:
                    raise ValueError("not yet")

            @sgl.function
            def body(s: Any, check: Any) -> None:
                s += "Q: " + sgl.gen("x", 6, check=check, retries=3, retry_text="({error}) ") + "."

            state = body.run(is_third, backend=backend, options=sgl.RunOptions(seed=5))
            results.append((state.text(), state["x"], seen, state.get_meta_info("x")["attempts"]))
        remote.shutdown()
    assert results[0] == results[1]
    text, value, seen, attempts = results[0]
    assert text == f"Q: (not yet) (not yet) {value}."
    assert (value, attempts) == (seen[2], 3)


# --- the real model ---


@dataclass
class Animal:
    """An animal."""

    name: Annotated[str, sgl.Limits(max_length=12)]
    legs: Annotated[int, sgl.Limits(ge=0, le=100)]
    size: Literal["small", "large"]


@pytest.mark.model
def test_the_model_fills_in_a_dataclass(engine: Any) -> None:
    @sgl.function
    def ask(s: Any) -> None:
        s += "A horse is a large animal with 4 legs.\n" + sgl.gen("animal", type=Animal, describe=True, temperature=0)
        s += "\nIts legs: " + sgl.gen("legs", type=int, temperature=0)

    state = ask.run(backend=engine)
    animal = state["animal"]
    assert isinstance(animal, Animal)
    assert animal.size in ("small", "large")
    assert 0 <= animal.legs <= 100
    assert len(animal.name) <= 12
    assert json.loads(state.get_text("animal"))["legs"] == animal.legs
    assert isinstance(state["legs"], int)


@pytest.mark.model
def test_the_model_tries_again_with_another_seed_until_a_value_is_good(engine: Any) -> None:
    """Each try draws two digits; a check refuses the first ones, so that later seeds are used, and nothing of them stays."""
    seen: list[str] = []

    def is_new(value: str) -> None:
        seen.append(value)
        if len(seen) < 3:
            raise ValueError("not yet")

    @sgl.function
    def draw(s: Any) -> None:
        s += "A number: " + sgl.gen("x", 12, regex="[0-9]{6}", check=is_new, retries=4)
        s += "."

    state = draw.run(backend=engine, options=sgl.RunOptions(seed=3))
    assert len(seen) == 3 == state.get_meta_info("x")["attempts"]
    assert len(set(seen)) > 1, "another seed gives another text"
    assert state.text() == f"A number: {seen[-1]}."
    assert re.fullmatch("[0-9]{6}", state["x"])
