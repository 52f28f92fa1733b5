"""Programs on a server give what they give in process, whatever happens to the connection between."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import sglang_lite as sgl
from sglang_lite.errors import (
    CancelledError,
    EngineStoppedError,
    ExecutionError,
    GrammarError,
    RequestError,
)
from sglang_lite.lang.backends.registry import as_backend, shutdown_named_backends
from sglang_lite.runtime.engine.engine import Engine
from tests.support.live_server import LiveServer, live_server, wait_until
from tests.support.talking_engine import TalkingRunner, talking_engine

Made = tuple[Engine, TalkingRunner, LiveServer, sgl.RuntimeEndpoint]


@pytest.fixture
def made() -> Iterator[Made]:
    """An engine, what it says, a server over it, and the backend that reaches it."""
    with talking_engine() as (engine, runner), live_server(engine) as server:
        backend = sgl.RuntimeEndpoint(server.url)
        yield engine, runner, server, backend
        backend.shutdown()


@sgl.function
def mixed(s: Any, question: str) -> None:
    s += sgl.system("Be short.")
    s += sgl.user(question)
    s += sgl.assistant(sgl.gen("answer", max_tokens=40, temperature=0))
    forks = s.fork(3)
    for number, fork in enumerate(forks):
        fork += f"\nview {number}: " + sgl.gen("view", max_tokens=8, temperature=0)
    s += "\n" + sgl.select("pick", ["yes", "no", "perhaps"])
    s += sgl.gen("samples", n=2, max_tokens=4, temperature=0, return_logprob=True, top_logprobs_num=2)
    s["views"] = [fork["view"] for fork in forks]
    forks.join()


def outcome(state: sgl.ProgramState) -> dict[str, Any]:
    names = ("answer", "pick", "samples")
    metas = [state.get_meta_info(name) for name in names]
    for meta in metas:
        for changing in (
            "id",
            "seed",
            "e2e_latency",
            "queue_time",
            "time_to_first_token",
            "cached_tokens",
            "computed_tokens",
            "samples",
        ):
            meta.pop(changing, None)
    return {"text": state.text(), "values": [state[name] for name in names], "views": state["views"], "metas": metas}


def test_a_program_gives_the_same_as_in_process(made: Made) -> None:
    """Text, values, forks, the numbers of a select, log-probability entries to the type."""
    engine, runner, _, backend = made
    runner.replies |= {"view 1": "left", "view 2": "right", "question": "An answer."}
    here = outcome(mixed.run("the question", backend=engine))
    there = outcome(mixed.run("the question", backend=backend))
    assert there == here
    assert here["views"][1] == "left"


def test_many_rows_and_futures(made: Made) -> None:
    _, runner, server, backend = made
    runner.replies |= {f"number {i}.": f"reply {i}" for i in range(40)}

    @sgl.function
    def row(s: Any, i: int) -> None:
        s += f"number {i}." + sgl.gen("a", max_tokens=20, temperature=0)
        s += " again " + s["a"] + f" number {i}." + sgl.gen("b", max_tokens=20, temperature=0)

    states = row.run_batch([{"i": i} for i in range(40)], backend=backend, num_threads=16)
    assert [state["a"] for state in states] == [f"reply {i}" for i in range(40)]
    assert [state["b"] for state in states] == [f"reply {i}" for i in range(40)]
    wait_until(lambda: server.app.service.engine.get_server_info()["programs"] == 0)


def test_a_known_tree_is_one_request(made: Made) -> None:
    _, _, server, backend = made
    before = server.app.log.num_requests + server.app.log.in_flight

    @sgl.function
    def fixed(s: Any) -> None:
        for number in range(5):
            s += f"part {number} " + sgl.gen(f"g{number}", max_tokens=4)
        forks = s.fork(2)
        forks += sgl.gen("f", max_tokens=3)
        forks.join("concate_and_append")

    state = fixed.run(backend=backend)
    assert state["g4"]
    backend.get_server_info()
    requests = server.app.log.num_requests + server.app.log.in_flight - before
    assert requests <= 3  # the program, perhaps its close, and the information


def test_text_streams(made: Made) -> None:
    _, runner, _, backend = made
    runner.default = "a stream of words é\U0001f469\u200d\U0001f4bb"
    runner.gate = threading.Semaphore(3)

    @sgl.function
    def stream(s: Any) -> None:
        s += "x" + sgl.gen("a", max_tokens=60)

    state = stream.run(stream=True, backend=backend)
    texts = state.text_iter("a")
    pieces = [next(texts)]
    runner.gate.release(100)
    pieces += texts
    assert "".join(pieces) == runner.default
    assert len(pieces) > 1
    assert all("\ufffd" not in piece for piece in pieces)


def test_a_choice_method_of_the_programs_own(made: Made) -> None:
    """The scores travel, the decision travels back."""

    class Last(sgl.greedy_token_selection.__class__):  # type: ignore[misc]
        def __call__(self, *, choices: list[str], **_: Any) -> Any:
            from sglang_lite.lang import ChoicesDecision

            return ChoicesDecision(decision=choices[-1], meta_info={"mine": 1})

    @sgl.function
    def choose(s: Any) -> None:
        s += "x" + sgl.select("c", ["a", "b", "zz"], choices_method=Last()) + "y"

    state = choose.run(backend=made[3])
    assert state["c"] == "zz"
    assert state.text() == "xzzy"


def test_errors_keep_their_type_and_words(made: Made) -> None:
    @sgl.function
    def bad(s: Any) -> None:
        s += "x" + sgl.gen("a", regex="refuse me")

    with pytest.raises(GrammarError, match="as asked"):
        bad.run(backend=made[3])

    @sgl.function
    def long(s: Any) -> None:
        s += "x" * 600 + sgl.gen("a")

    with pytest.raises(Exception) as here:
        long.run(backend=made[0])
    with pytest.raises(type(here.value)) as there:
        long.run(backend=made[3])
    assert re.sub(r"'r\d+'", "", str(there.value)) == re.sub(r"'r\d+'", "", str(here.value))


def test_cancel_reaches_the_server(made: Made) -> None:
    engine, runner, server, backend = made
    runner.gate = threading.Semaphore(2)

    @sgl.function
    def endless(s: Any) -> None:
        s += "x" + sgl.gen("a", max_tokens=400, ignore_eos=True)

    state = endless.run(stream=True, backend=backend)
    next(state.text_iter("a"))
    state.cancel()
    with pytest.raises(CancelledError):
        _ = state["a"]
    gate = runner.gate

    def is_gone() -> bool:
        gate.release()
        return len(server.app.programs) == 0

    wait_until(is_gone)
    gate.release(5)
    wait_until(lambda: engine.get_server_info()["programs"] == 0)
    assert runner.num_steps < 300


def test_a_server_that_forgot_the_program_is_given_it_again(made: Made) -> None:
    """Values that are known stay; the op that ran is done again; pieces of a stream are not repeated."""
    _, runner, server, backend = made
    runner.replies |= {"first": "one", "second": "two two two"}
    runner.gate = threading.Semaphore(1000)
    reached, go_on = threading.Event(), threading.Event()

    @sgl.function
    def two(s: Any) -> None:
        s += "first " + sgl.gen("a", max_tokens=20, temperature=0)
        _ = s["a"]
        reached.set()
        go_on.wait(60)
        s += " second " + sgl.gen("b", max_tokens=20, temperature=0)
        forks = s.fork(2)
        forks += " first " + sgl.gen("c", max_tokens=20, temperature=0)
        forks.join()

    state = two.run(stream=True, backend=backend)
    assert reached.wait(60)
    asked = len(runner.prompts)
    forget_all(server)
    runner.replies["first"] = "uno"
    go_on.set()
    assert "".join(state.text_iter("b")) == "two two two"
    assert state["a"] == "one"
    assert state.text() == "first one second two two two"
    assert sum(b"second" not in prompt for prompt in runner.prompts[asked:]) == 0  # the first gen was not done again


def test_marks_races_and_counts_on_a_server(made: Made) -> None:
    _, runner, _, backend = made
    runner.replies |= {"first": "bad", "again": "good", "vote": "yes"}

    @sgl.function
    def program(s: Any) -> Any:
        s += "Q "
        mark = s.mark()
        s += "first " + sgl.gen("x", max_tokens=20, temperature=0)
        s.rewind(mark)
        count = s.num_tokens()
        s += "again " + sgl.gen("x", max_tokens=20, temperature=0)
        forks = s.fork(3)
        forks += " vote " + sgl.gen("v", max_tokens=8, temperature=0)
        result = forks.join(vote="v")
        return count, result.winners, result.value

    state = program.run(backend=backend)
    count, winners, value = state.ret_value
    assert state.text() == "Q again good"
    assert count == 2
    assert (len(winners) >= 2, value, state["v"]) == (True, "yes", "yes")
    assert state.error() is None


def test_a_rewound_program_goes_on_on_a_server_that_forgot_it(made: Made) -> None:
    _, runner, server, backend = made
    runner.replies |= {"first": "bad", "again": "good", "end": "."}

    @sgl.function
    def program(s: Any) -> None:
        s += "Q "
        mark = s.mark()
        s += "first " + sgl.gen("x", max_tokens=20, temperature=0)
        s.rewind(mark)
        s += "again " + sgl.gen("y", max_tokens=20, temperature=0)
        assert s["y"] == "good"
        forget_all(server)
        s += " end " + sgl.gen("z", max_tokens=20, temperature=0)

    state = program.run(backend=backend)
    assert state.text() == "Q again good end ."
    assert runner.prompts[-1] == b"Q again good end "


def forget_all(server: LiveServer) -> None:
    """The server loses every program, as by a restart."""

    async def forget() -> None:
        server.app.programs.delete_all()

    asyncio.run_coroutine_threadsafe(forget(), server.loop).result(60)


def test_a_stream_that_is_taken_up_again_repeats_nothing(made: Made) -> None:
    _, runner, server, backend = made
    runner.default = "abcdefghijkl"
    runner.gate = threading.Semaphore(6)

    @sgl.function
    def stream(s: Any) -> None:
        s += "x" + sgl.gen("a", max_tokens=60, temperature=0)

    state = stream.run(stream=True, backend=backend)
    texts = state.text_iter("a")
    got = next(texts)
    forget_all(server)
    runner.gate.release(100)
    got += "".join(texts)
    assert got == "abcdefghijkl"


def test_a_shut_down_backend_fails_what_is_open(made: Made) -> None:
    _, runner, _, backend = made
    runner.gate = threading.Semaphore(2)

    @sgl.function
    def endless(s: Any) -> None:
        s += "x" + sgl.gen("a", max_tokens=400, ignore_eos=True)

    state = endless.run(stream=True, backend=backend)
    next(state.text_iter("a"))
    backend.shutdown()
    with pytest.raises(EngineStoppedError, match="shut down"):
        _ = state["a"]
    with pytest.raises(EngineStoppedError):
        backend.open_program(lambda _: None)


def test_nobody_there_is_said_at_once() -> None:
    with pytest.raises(ExecutionError, match=r"http://127\.0\.0\.1:9.*is a server running"):
        sgl.RuntimeEndpoint("http://127.0.0.1:9")
    with pytest.raises(RequestError, match="expected a URL"):
        sgl.RuntimeEndpoint("127.0.0.1:30000")


def test_a_key_opens_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    with talking_engine() as (engine, _), live_server(engine, api_keys=("secret",)) as server:
        with pytest.raises(RequestError, match=r"401.*API key"):
            sgl.RuntimeEndpoint(server.url)
        assert sgl.RuntimeEndpoint(server.url, api_key="secret").get_model_name() == "toy/talking.gguf"
        monkeypatch.setenv("SGLANG_LITE_API_KEY", "secret")
        assert isinstance(as_backend(server.url), sgl.RuntimeEndpoint)
        assert as_backend(server.url) is as_backend(server.url)
        shutdown_named_backends()


def test_the_other_calls_of_a_backend(made: Made) -> None:
    backend = made[3]
    assert sgl.flush_cache(backend) is True
    info = sgl.get_server_info(backend)
    assert info is not None
    assert info["context_length"] == 512
    backend.cache_prefix("some text")
    assert backend.generate("Hi", {"temperature": 0})["text"] == "Hello there."
    with pytest.raises(RequestError, match="temperature"):
        backend.generate("Hi", {"temperature": "hot"})


def test_this_packages_own_generate_drives_programs_too(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    """As behind a proxy that passes SGLang's routes only; a choice is scored from its own first token on."""
    from sglang_lite.runtime.server import native

    known = native.model_info
    monkeypatch.setattr(native, "model_info", lambda service: known(service) | {"programs": False})
    backend = sgl.RuntimeEndpoint(made[2].url)

    @sgl.function
    def f(s: Any) -> None:
        s += "x" + sgl.gen("a", max_tokens=20, temperature=0) + sgl.select("c", ["yes", "no"])

    here, there = f.run(backend=made[0]), f.run(backend=backend)
    assert there.text() == here.text()
    scores = [state.get_meta_info("c")["normalized_prompt_logprobs"] for state in (here, there)]
    assert scores[0] == pytest.approx(scores[1])
    backend.shutdown()
