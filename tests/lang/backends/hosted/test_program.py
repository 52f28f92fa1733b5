"""Programs on a hosted API: branches of turns and text, joins, races, marks, held gens, cancelling."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from sglang_lite.errors import CancelledError, EngineStoppedError, ExecutionError, UnsupportedError
from sglang_lite.lang import (
    ProgramState,
    RunOptions,
    assistant,
    function,
    gen,
    greedy_token_selection,
    select,
    system,
    user,
)
from sglang_lite.lang.backends.hosted.messages import ModelReply, ModelRequest
from sglang_lite.lang.choices import ChoicesDecision, TokenLengthNormalized
from sglang_lite.request_tree import (
    AcceptOp,
    CountOp,
    Event,
    ForkOp,
    GenOp,
    JoinOp,
    MarkOp,
    OpDone,
    OpFailed,
    OpHeld,
    RefuseOp,
    RetryOp,
    RewindOp,
    RoleBeginOp,
    RoleEndOp,
    SamplingParams,
    TextOp,
)
from tests.lang.backends.hosted.support import TEXT, ApiError, fake
from tests.lang.support import TIMEOUT

GEN = SamplingParams()


def contents(request: ModelRequest) -> list[tuple[str, str]]:
    return [(message["role"], message["content"]) for message in request.messages]


class Ran:
    """Events of a program that ops are appended to by hand."""

    def __init__(self, backend: Any, seed: int | None = None) -> None:
        self.events: list[Event] = []
        self._changed = threading.Condition()
        self.program = backend.open_program(self._sink, seed=seed)

    def _sink(self, event: Event) -> None:
        with self._changed:
            self.events.append(event)
            self._changed.notify_all()

    def wait(self, op: int, *kinds: type) -> Any:
        def found() -> Event | None:
            return next((e for e in self.events if e.op == op and isinstance(e, kinds or (OpDone, OpFailed))), None)

        with self._changed:
            assert self._changed.wait_for(lambda: found() is not None, TIMEOUT), self.events
            return found()


def test_turns_go_to_the_api_as_messages() -> None:
    @function
    def f(s: ProgramState) -> None:
        s += system("S") + user("Q1") + assistant(gen("a"))
        s += user("Q2") + assistant(gen("b"))

    backend, api = fake(lambda request: f"A{len(request.messages)}")
    state = f.run(backend=backend)
    assert contents(api.requests[1]) == [("system", "S"), ("user", "Q1"), ("assistant", "A2"), ("user", "Q2")]
    assert (state["a"], state["b"]) == ("A2", "A4")
    assert state.text() == "SYSTEM:S\nUSER:Q1\nASSISTANT:A2\nUSER:Q2\nASSISTANT:A4\n"
    assert state.get_meta_info("b")["completion_tokens"] == 1
    assert state.usage().prompt_tokens == backend.token_usage.prompt_tokens == 20
    backend.token_usage.reset()
    assert backend.get_server_info()["requests"] == 0


def test_text_goes_to_a_text_model_and_scores_decide_a_select() -> None:
    @function
    def f(s: ProgramState) -> None:
        s += "One" + gen("a") + " then " + select("b", ["long one", "x"])
        s += select("c", ["long one", "x"], choices_method=greedy_token_selection)

    backend, api = fake(lambda request: " two", TEXT)
    state = f.run(backend=backend)
    assert api.requests[0].prompt == "One"
    assert state.text() == "One two then xx"
    assert state.get_meta_info("b")["normalized_prompt_logprobs"] == [-8.0, -1.0]
    assert "greedy_logprob_matrix" in state.get_meta_info("c")


def test_a_method_of_the_programs_own_decides_by_the_scores() -> None:
    class Worst(TokenLengthNormalized):
        def __call__(
            self, *, choices: list[str], normalized_prompt_logprobs: list[float], **rest: Any
        ) -> ChoicesDecision:
            return ChoicesDecision(
                choices[normalized_prompt_logprobs.index(min(normalized_prompt_logprobs))], {"by": "worst"}
            )

    @function
    def f(s: ProgramState) -> None:
        s += "t" + select("b", ["x", "long one"], choices_method=Worst())

    state = f.run(backend=fake(lambda request: "", TEXT)[0])
    assert state["b"] == "long one"
    assert state.get_meta_info("b")["by"] == "worst"


def test_children_run_side_by_side_and_join() -> None:
    """Each call waits for the others: one after another they would never end."""
    together = asyncio.Event()
    waiting = 0

    async def meet(request: ModelRequest) -> str:
        nonlocal waiting
        waiting += 1
        if waiting == 3:
            together.set()
        await asyncio.wait_for(together.wait(), TIMEOUT)
        return "to " + request.messages[-1]["content"]

    @function
    def f(s: ProgramState) -> None:
        s += user("Hi") + assistant("Hello")
        forks = s.fork(3)
        forks += lambda i: user(f"q{i}")
        forks += assistant(gen("x"))
        forks.join()
        assert s["x"] == ["to q0", "to q1", "to q2"]

    f.run(backend=fake(meet)[0])


def test_joined_turns_and_text_are_appended() -> None:
    @function
    def f(s: ProgramState) -> None:
        forks = s.fork(2)
        forks += lambda i: user(f"q{i}")
        forks += assistant(gen("x"))
        forks.join("concate_and_append")
        s += user("all?") + assistant(gen("y"))

    backend, api = fake(lambda request: "a")
    state = f.run(backend=backend)
    assert [role for role, _ in contents(api.requests[-1])] == ["user", "assistant", "user", "assistant", "user"]
    assert state.text().count("USER:") == 3
    text_backend, text_api = fake(lambda request: "v", TEXT)

    @function
    def g(s: ProgramState) -> None:
        s += "p"
        forks = s.fork(2)
        forks += lambda i: f"[{i}"
        forks += gen("x") + "]"
        forks.join("concate_and_append")
        s += gen("y")

    assert g.run(backend=text_backend).text() == "p[0v][1v]v"
    assert text_api.requests[-1].prompt == "p[0v][1v]"


def test_a_failed_child_fails_the_join_of_its_text_and_nothing_else() -> None:
    def answer(request: ModelRequest) -> Any:
        return ApiError(400, "bad sk-topsecret") if "q1" in request.messages[-1]["content"] else "ok"

    @function
    def f(s: ProgramState) -> list[str]:
        forks = s.fork(2)
        forks += lambda i: user(f"q{i}")
        forks += assistant(gen("x"))
        forks.join()
        return [forks[0]["x"]]

    state = f.run(backend=fake(answer)[0], options=RunOptions(on_error="state"))
    assert state.ret_value == ["ok"]
    assert "HTTP 400: bad ***" in str(state.error())


def test_the_first_children_win_and_the_others_are_called_off() -> None:
    ended: list[str] = []

    async def answer(request: ModelRequest) -> str:
        name = str(request.messages[-1]["content"])
        if name == "slow":
            try:
                await asyncio.Event().wait()
            finally:
                ended.append(name)
        return name

    backend, _ = fake(answer)
    run = Ran(backend)
    ops: list[Any] = [ForkOp(0, 0, (1, 2, 3))]
    for child, name in ((1, "slow"), (2, "quick"), (3, "quick")):
        base = child * 10
        ops += [RoleBeginOp(base, child, "user"), TextOp(base + 1, child, name), RoleEndOp(base + 2, child)]
        ops += [RoleBeginOp(base + 3, child, "assistant"), GenOp(base + 4, child, "x", GEN), RoleEndOp(base + 5, child)]
    run.program.append([*ops, JoinOp(50, 0, (1, 2, 3), first=2)])
    assert run.wait(50).meta["winners"] == [1, 2]
    assert isinstance(run.wait(14).error, CancelledError)
    assert ended == ["slow"]


def test_a_vote_is_over_once_it_cannot_be_overtaken() -> None:
    async def answer(request: ModelRequest) -> str:
        name = str(request.messages[-1]["content"])
        if name == "never":
            await asyncio.Event().wait()
        return name

    run = Ran(fake(answer)[0])
    ops: list[Any] = [ForkOp(0, 0, (1, 2, 3))]
    for child, name in ((1, "7"), (2, "7"), (3, "never")):
        base = child * 10
        ops += [RoleBeginOp(base, child, "user"), TextOp(base + 1, child, name), RoleEndOp(base + 2, child)]
        ops += [RoleBeginOp(base + 3, child, "assistant"), GenOp(base + 4, child, "x", GEN), RoleEndOp(base + 5, child)]
    run.program.append([*ops, JoinOp(50, 0, (1, 2, 3), vote="x")])
    done = run.wait(50)
    assert (done.value, done.meta["winners"]) == ("7", [0, 1])


def test_too_few_winners_fail_the_join() -> None:
    run = Ran(fake(lambda request: ApiError(400))[0])
    ops: list[Any] = [ForkOp(0, 0, (1, 2))]
    for child in (1, 2):
        ops += [RoleBeginOp(child * 10, child, "assistant"), GenOp(child * 10 + 1, child, "x", GEN)]
    run.program.append([*ops, JoinOp(50, 0, (1, 2), first=1)])
    assert isinstance(run.wait(50).error, ExecutionError)


def test_a_branch_is_rewound_to_its_mark() -> None:
    backend, api = fake(lambda request: "bad")
    run = Ran(backend)
    run.program.append(
        [
            RoleBeginOp(0, 0, "user"),
            TextOp(1, 0, "Q"),
            RoleEndOp(2, 0),
            MarkOp(3, 0),
            RoleBeginOp(4, 0, "assistant"),
            GenOp(5, 0, "x", GEN),
            RoleEndOp(6, 0),
            RewindOp(7, 0, 3),
            RoleBeginOp(8, 0, "assistant"),
            GenOp(9, 0, "y", GEN),
        ]
    )
    assert run.wait(9).value == "bad"
    assert contents(api.requests[0]) == contents(api.requests[1]) == [("user", "Q")]


def test_a_held_gen_waits_for_its_answer() -> None:
    texts = iter(["one", "two", "three"])
    backend, api = fake(lambda request: next(texts))
    run = Ran(backend)
    run.program.append(
        [
            RoleBeginOp(0, 0, "user"),
            TextOp(1, 0, "Q"),
            RoleEndOp(2, 0),
            RoleBeginOp(3, 0, "assistant"),
            GenOp(4, 0, "x", GEN, hold=True),
            RoleEndOp(5, 0),
            RoleBeginOp(6, 0, "user"),
            RoleEndOp(7, 0),
        ]
    )
    assert run.wait(4, OpHeld).text == "one"
    run.program.append([RetryOp(8, 0, 4, "Shorter.", keep=True)])
    run.wait(8)
    assert held_text(run, 2) == "two"
    run.program.append([AcceptOp(9, 0, 4)])
    assert run.wait(4).value == "two"
    assert contents(api.requests[1]) == [("user", "Q"), ("assistant", "one"), ("user", "Shorter.")]
    refused = Ran(backend)
    refused.program.append([RoleBeginOp(0, 0, "assistant"), GenOp(1, 0, "x", GEN, hold=True)])
    refused.wait(1, OpHeld)
    refused.program.append([RefuseOp(2, 0, 1, "not good")])
    assert str(refused.wait(1).error) == "not good"


def held_text(run: Ran, count: int) -> str:
    """The text of the `count`-th held result."""
    with run._changed:
        assert run._changed.wait_for(lambda: sum(isinstance(e, OpHeld) for e in run.events) >= count, TIMEOUT)
        return [e.text for e in run.events if isinstance(e, OpHeld)][count - 1]


def test_tokens_are_counted_where_the_api_can() -> None:
    run = Ran(fake(lambda request: "")[0])
    run.program.append([RoleBeginOp(0, 0, "user"), TextOp(1, 0, "one two"), CountOp(2, 0)])
    assert run.wait(2).meta == {"num_tokens": 2, "context_len": None}
    with pytest.raises(UnsupportedError, match="counting tokens is not possible there; use the prompt_tokens"):
        Ran(fake(lambda request: "", TEXT)[0]).program.append([CountOp(0, 0)])


def test_a_cancelled_program_ends_its_calls() -> None:
    begun, ended = threading.Event(), threading.Event()

    async def answer(request: ModelRequest) -> str:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return ""

    @function
    def f(s: ProgramState) -> None:
        s += user("q") + assistant(gen("x"))

    backend, _ = fake(answer)
    state = f.run(backend=backend, stream=True)
    assert begun.wait(TIMEOUT)
    state.cancel()
    assert isinstance(state.error(), CancelledError)
    assert ended.wait(TIMEOUT)
    begun.clear()
    state = f.run(backend=backend, stream=True)
    assert begun.wait(TIMEOUT)
    backend.shutdown()
    backend.shutdown()
    assert isinstance(state.error(), EngineStoppedError)
    with pytest.raises(EngineStoppedError, match="it was shut down"):
        f.run(backend=backend)


def test_streams_join_to_the_text() -> None:
    @function
    def f(s: ProgramState) -> None:
        s += user("q") + assistant(gen("x"))

    state = f.run(backend=fake(lambda request: "a b")[0], stream=True)
    assert "".join(state.text_iter("x")) == state["x"] == "a b"


def test_what_is_not_possible_is_refused_before_anything_is_paid() -> None:
    """The second turn cannot run: the first one is not asked for either."""

    @function
    def f(s: ProgramState) -> None:
        s += user("q") + assistant(gen("x")) + user("q") + assistant(gen("y", regex="[a-f]+"))

    backend, api = fake(lambda request: "a")
    with pytest.raises(UnsupportedError, match=r"regex='\[a-f\]\+' is not possible there; use gen\(json_schema"):
        f.run(backend=backend)
    assert api.requests == []


def test_seeds_differ_by_place_and_repeat() -> None:
    @function
    def f(s: ProgramState) -> None:
        forks = s.fork(2)
        forks += user("q") + assistant(gen("x"))
        forks.join()

    seeds: list[list[int | None]] = []
    for _ in range(2):
        backend, api = fake(lambda request: "a")
        f.run(backend=backend, options=RunOptions(seed=5))
        seeds.append(sorted(request.seed or 0 for request in api.requests))
    assert seeds[0] == seeds[1]
    assert len(set(seeds[0])) == 2


def test_a_limit_of_zero_asks_for_nothing() -> None:
    @function
    def f(s: ProgramState) -> None:
        s += user("q") + assistant(gen("x", max_tokens=0))

    backend, api = fake(lambda request: "a")
    assert f.run(backend=backend)["x"] == ""
    assert api.requests == []


def test_n_answers_are_a_list() -> None:
    @function
    def f(s: ProgramState) -> None:
        s += user("q") + assistant(gen("x", n=2)) + user("w") + assistant(gen("y"))

    backend, api = fake(lambda request: ModelReply(tuple("ab"[: request.n])))
    assert f.run(backend=backend)["x"] == ["a", "b"]
    assert contents(api.requests[1])[1] == ("assistant", "a")
