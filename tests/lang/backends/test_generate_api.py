"""A server that has only SGLang's `/generate`: programs give what they give in process, one request a gen."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

import sglang_lite as sgl
from sglang_lite.errors import ContextLengthError, EngineStoppedError, ExecutionError, RequestError, UnsupportedError
from sglang_lite.lang.backends.hosted.retry import RetryPolicy
from sglang_lite.request_tree import ArgOp, GenOp, OpDone, OpFailed, RequestTree, SamplingParams, TextOp, TreeRow
from sglang_lite.runtime.engine.engine import Engine
from tests.support.generate_stub import GenerateStub, generate_stub
from tests.support.live_server import wait_until
from tests.support.talking_engine import TalkingRunner, talking_engine

Made = tuple[Engine, TalkingRunner, GenerateStub, sgl.RuntimeEndpoint]


@pytest.fixture
def made() -> Iterator[Made]:
    """An engine, what it says, a server over it without programs, and the backend that reaches it."""
    with talking_engine() as (engine, runner), generate_stub(engine) as stub:
        backend = sgl.RuntimeEndpoint(stub.url)
        yield engine, runner, stub, backend
        backend.shutdown()


@sgl.function
def mixed(s: Any, question: str) -> None:
    s += question + sgl.gen("answer", max_tokens=40, temperature=0, stop=["!"])
    forks = s.fork(3)
    for number, fork in enumerate(forks):
        fork += f"\nview {number}: " + sgl.gen("view", max_tokens=8, temperature=0)
    s += "\n" + sgl.select("pick", ["yes", "no", "perhaps"])
    s += sgl.gen("samples", n=2, max_tokens=4, temperature=0, return_logprob=True, top_logprobs_num=2)
    s += sgl.gen("held", regex="abc", temperature=0)
    s["views"] = [fork["view"] for fork in forks]
    forks.join()


def outcome(state: sgl.ProgramState) -> dict[str, Any]:
    names = ("answer", "pick", "samples", "held")
    kept = ("finish_reason", "completion_tokens", "output_token_logprobs", "output_top_logprobs")
    metas = [{key: state.get_meta_info(name).get(key) for key in kept} for name in names if name != "pick"]
    scores = [[entry[:2] for entry in row] for row in state.get_meta_info("pick")["input_token_logprobs"]]
    return {
        "text": state.text(),
        "values": [state[name] for name in names],
        "views": state["views"],
        "metas": metas,
        "scores": [[list(entry) for entry in row] for row in scores],
        "means": state.get_meta_info("pick")["normalized_prompt_logprobs"],
    }


def test_a_program_gives_the_same_as_in_process(made: Made) -> None:
    """Texts, forks, samples, a regex, the scores of a select to the token."""
    engine, runner, stub, backend = made
    runner.replies |= {"view 1": "left", "view 2": "right", "question": "An answer! More"}
    here = outcome(mixed.run("the question", backend=engine))
    there = outcome(mixed.run("the question", backend=backend))
    assert there == here
    assert here["values"][0] == "An answer"
    assert here["views"][1] == "left"
    assert stub.requests[-1]["text"].startswith("the questionAn answer\n")


def test_every_choices_method_decides_alike(made: Made) -> None:
    engine, _, _, backend = made

    class Last(sgl.greedy_token_selection.__class__):  # type: ignore[misc]
        def __call__(self, *, choices: list[str], **_: Any) -> Any:
            from sglang_lite.lang import ChoicesDecision

            return ChoicesDecision(decision=choices[-1], meta_info={"mine": 1})

    methods = [sgl.greedy_token_selection, sgl.unconditional_likelihood_normalized, sgl.token_length_normalized, Last()]

    @sgl.function
    def choose(s: Any) -> None:
        s += "x"
        for number, method in enumerate(methods):
            s += sgl.select(f"c{number}", ["ab", "zz", "abc"], choices_method=method) + " "

    here, there = choose.run(backend=engine), choose.run(backend=backend)
    assert there.text() == here.text()
    assert there["c3"] == "abc"
    unconditional = [state.get_meta_info("c1")["unconditional_token_logprobs"] for state in (here, there)]
    assert [[entry[1] for entry in row] for row in unconditional[1]] == [
        [entry[1] for entry in row] for row in unconditional[0]
    ]


def test_text_streams_in_pieces(made: Made) -> None:
    _, runner, stub, backend = made
    runner.default = "a stream of words é\U0001f469\u200d\U0001f4bb"
    runner.gate = threading.Semaphore(3)

    @sgl.function
    def stream(s: Any) -> None:
        s += "x" + sgl.gen("a", max_tokens=60, temperature=0)

    state = stream.run(stream=True, backend=backend)
    texts = state.text_iter("a")
    pieces = [next(texts)]  # before there is any more of it
    runner.gate.release(100)
    pieces += texts
    assert "".join(pieces) == runner.default
    assert len(pieces) > 1
    assert stub.requests[-1]["stream"] is True


def test_turns_are_written_with_sglangs_templates(made: Made) -> None:
    """By the model's path, or as named; the template's stop goes with the request, and its default system turn."""
    _, _, stub, backend = made

    @sgl.function
    def chat(s: Any) -> None:
        s += sgl.user("Q") + sgl.assistant(sgl.gen("a", max_tokens=20, temperature=0))

    assert chat.run(backend=backend).text() == "USER:Q\nASSISTANT:Hello there.\n"
    stub.model_path = "toy/qwen-chat"
    chat.run(backend=sgl.RuntimeEndpoint(stub.url))
    by_path = stub.requests[-1]
    assert by_path["text"].startswith("<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\nQ")
    assert by_path["sampling_params"]["stop"] == ["<|im_end|>"]
    chat.run(backend=sgl.RuntimeEndpoint(stub.url, chat_template_name="gemma-it"))
    assert stub.requests[-1]["text"] == "<start_of_turn>user\nQ<end_of_turn>\n<start_of_turn>model\n"


def test_marks_held_gens_races_and_counts(made: Made) -> None:
    _, runner, _, backend = made
    runner.replies |= {"first": "bad", "again": "good", "vote": "yes"}

    @sgl.function
    def program(s: Any) -> Any:
        s += "Q "
        mark = s.mark()
        s += "first " + sgl.gen("x", max_tokens=20, temperature=0)
        s.rewind(mark)
        count = s.num_tokens()
        s += "again " + sgl.gen("x", max_tokens=20, temperature=0, check=lambda text: text == "good")
        forks = s.fork(3)
        forks += " vote " + sgl.gen("v", max_tokens=8, temperature=0)
        return count, forks.join(vote="v").value

    state = program.run(backend=backend)
    assert state.ret_value == (2, "yes")
    assert state.text() == "Q again good"


def test_a_gen_of_no_tokens_asks_for_what_would_come(made: Made) -> None:
    """The log-probabilities of the next token, as programs that look ahead read them."""
    _, _, stub, backend = made

    @sgl.function
    def look(s: Any) -> None:
        s += "x" + sgl.gen("a", max_tokens=0, temperature=0, return_logprob=True, top_logprobs_num=3)

    assert look.run(backend=backend)["a"] == ""
    assert stub.requests[-1]["sampling_params"]["max_new_tokens"] == 0
    assert stub.requests[-1]["top_logprobs_num"] == 3


def test_seeds_and_parameters_travel_under_sglangs_names(made: Made) -> None:
    _, _, stub, backend = made

    @sgl.function
    def f(s: Any) -> None:
        s += "x" + sgl.gen("a", max_tokens=3, temperature=0.5, top_k=4, min_p=0.1)
        s += sgl.gen("d", regex="c", temperature=0)

    f.run(backend=backend, options=sgl.RunOptions(seed=7))
    params = stub.requests[0]["sampling_params"]
    assert (params["temperature"], params["top_k"], params["min_p"], params["max_new_tokens"]) == (0.5, 4, 0.1, 3)
    first = params["sampling_seed"]
    f.run(backend=backend, options=sgl.RunOptions(seed=7))
    assert stub.requests[2]["sampling_params"]["sampling_seed"] == first
    f.run(backend=backend)
    assert "sampling_seed" not in stub.requests[4]["sampling_params"]


def test_a_server_that_fails_for_a_moment_is_asked_again(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    _, _, stub, backend = made
    waits: list[float] = []

    async def sleep(wait_s: float) -> None:
        waits.append(wait_s)

    monkeypatch.setattr(backend._texts, "_policy", None)  # what asks keeps its own
    backend._texts._asker._policy = RetryPolicy(max_retries=3, sleep=sleep)  # type: ignore[union-attr]
    stub.failures[:] = [503, 502]

    @sgl.function
    def f(s: Any) -> None:
        s += "x" + sgl.gen("a", max_tokens=20, temperature=0)

    assert f.run(backend=backend)["a"] == "Hello there."
    assert waits == [0.5, 1.0]
    stub.failures[:] = [500] * 10
    with pytest.raises(ExecutionError, match=r"HTTP 500: .*not now"):
        f.run(backend=backend)


def test_refusals_keep_their_words(made: Made) -> None:
    _, _, _, backend = made

    @sgl.function
    def bad(s: Any) -> None:
        s += "x" + sgl.gen("a", regex="refuse me")

    with pytest.raises(RequestError, match="as asked"):
        bad.run(backend=backend)

    @sgl.function
    def long(s: Any) -> None:
        s += "x" * 600 + sgl.gen("a", max_tokens=4)

    with pytest.raises(ContextLengthError):
        long.run(backend=backend)

    def now(city: str) -> str:
        """The time in a city."""
        return city

    @sgl.function
    def tools(s: Any) -> None:
        s += sgl.user("Q") + sgl.assistant(sgl.gen("a", tools=[now]))

    with pytest.raises(UnsupportedError):
        tools.run(backend=backend)


def test_the_other_calls_of_a_backend(made: Made) -> None:
    backend = made[3]
    assert backend.get_model_name() == "toy/talking.gguf"
    assert sgl.flush_cache(backend) is True
    assert backend.generate("Hi", {"temperature": 0})["text"] == "Hello there."
    assert backend.check(RequestTree()) == []
    backend.shutdown()
    with pytest.raises(EngineStoppedError):
        backend.open_program(lambda _: None)


def test_rows_run_one_by_one(made: Made) -> None:
    tree = RequestTree()
    params = SamplingParams(max_new_tokens=20, temperature=0.0)
    for op in (TextOp(0, 0, "Q: "), ArgOp(1, 0, "q"), GenOp(2, 0, "x", params)):
        tree.add(op)
    events: list[list[Any]] = [[], []]
    programs = made[3].open_rows(tree, [TreeRow({"q": "a"}, events[0].append), TreeRow({}, events[1].append)])
    wait_until(lambda: all(len(one) == 3 for one in events))
    assert [type(one[-1]) for one in events] == [OpDone, OpFailed]
    assert events[0][-1].text == "Hello there."
    assert len(programs) == 2  # held by whoever opened them, as a batch does
