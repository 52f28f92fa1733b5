"""Branches on other backends: their history, values, joins, errors and cancelling."""

from __future__ import annotations

from typing import Any

import pytest

from sglang_lite.errors import CancelledError, ExecutionError, ProgramError, RequestError
from sglang_lite.lang.api import assistant, function, gen, select, user
from sglang_lite.lang.backends.scripted import ScriptedBackend
from sglang_lite.lang.options import RunOptions
from sglang_lite.request_tree import GenOp, TextOp
from tests.lang.support import Background, HandBackend


def prompts(backend: ScriptedBackend) -> list[str]:
    return [call.prompt for call in backend.calls]


def test_a_block_on_another_backend_goes_on_from_the_text_and_back() -> None:
    here, there = ScriptedBackend({"x": "one", "z": "three"}), ScriptedBackend({"y": "two"})

    def body(s: Any) -> None:
        s += "Q" + gen("x")
        with s.backend(there):
            s += "/" + gen("y")
            assert s["y"] == "two"
        s += "/" + gen("z")

    state = function(body).run(backend=here)
    assert (state["x"], state["y"], state["z"], state.text()) == ("one", "two", "three", "Qone/two/three")
    assert prompts(there) == ["Qone/"]
    assert prompts(here) == ["Q", "Qone/two/"]


def test_turns_are_those_of_each_backends_own_template() -> None:
    here, there = ScriptedBackend({"x": "one", "z": "three"}), ScriptedBackend({"y": "two"}, chat_template="chatml")

    def body(s: Any) -> None:
        s += user("Hi") + assistant(gen("x"))
        with s.backend(there):
            s += user("And?") + assistant(gen("y"))
        s += user("So?") + assistant(gen("z"))

    state = function(body).run(backend=here)
    assert prompts(there) == [
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\none<|im_end|>\n"
        "<|im_start|>user\nAnd?<|im_end|>\n<|im_start|>assistant\n"
    ]
    assert prompts(here)[1] == "USER:Hi\nASSISTANT:one\nUSER:And?\nASSISTANT:two\nUSER:So?\nASSISTANT:"
    assert [message["content"] for message in state.messages()] == ["Hi", "one", "And?", "two", "So?", "three"]


def test_nothing_is_waited_for_and_history_goes_out_once_it_is_done() -> None:
    here, there = HandBackend(), HandBackend()

    def body(s: Any) -> None:
        s += "Q" + gen("x")
        forks = s.fork(2, backends=[there, None])
        forks += gen("y")
        forks.join()

    running = Background(lambda: function(body).run(backend=here))
    base = here.wait_program()
    base.wait(lambda: len(base.gens()) == 2)
    foreign = there.wait_program()
    assert not foreign.ops
    base.done_others()
    base.done(base.gens()[0], "one")
    foreign.wait(lambda: bool(foreign.gens()))
    assert [op.text for op in foreign.ops if isinstance(op, TextOp)] == ["Q", "one"]
    assert all(op.branch == 0 for op in foreign.ops)
    assert all(op.literal for op in foreign.ops if isinstance(op, TextOp) and op.text == "one")
    foreign.done_others()
    foreign.done(foreign.gens()[0], "there")
    base.done(base.gens()[1], "here")
    base.done_others()
    assert running.result()["y"] == ["there", "here"]
    foreign.wait(lambda: foreign.num_closes == 1)
    base.wait(lambda: base.num_closes == 1)


def test_forks_on_several_backends_join_by_value_and_by_text() -> None:
    here = ScriptedBackend({"x": "h", "end": "."})
    others = [ScriptedBackend({"x": text}) for text in "ab"]

    def body(s: Any) -> None:
        s += "Q"
        forks = s.fork(3, backends=[others[0], None, others[1]])
        forks += "-" + gen("x")
        forks.join("concate_and_append")
        more = s.fork(2, backends=[None, others[0]])
        more += gen("x")
        more.join()
        s += s.ref("x", 1) + gen("end")

    state = function(body).run(backend=here)
    assert state.text() == "Q-a-h-ba."
    assert state["x"] == ["h", "a"]
    assert prompts(here)[-1] == "Q-a-h-ba"


def test_references_cross_backends_both_ways() -> None:
    here, there = ScriptedBackend({"x": "one", "z": "3"}), ScriptedBackend({"y": "two"})

    def body(s: Any) -> None:
        forks = s.fork(2, backends=[None, there])
        forks[0] += gen("x")
        forks[1] += "ref " + forks[0].ref("x") + gen("y")
        s += forks[1].ref("y") + gen("z")

    state = function(body).run(backend=here)
    assert prompts(there) == ["ref one"]
    assert prompts(here) == ["", "two"]
    assert state.text() == "two3"


def test_a_fork_of_a_foreign_state_runs_where_that_does_and_may_come_back() -> None:
    here, there = ScriptedBackend({"y": "back"}), ScriptedBackend({"x": ["a", "b", "c"]})

    def body(s: Any) -> Any:
        s += "Q"
        child = s.fork(1, backends=[there])[0]
        child += gen("x")
        inner = child.fork(2, backends=[None, here])
        inner[0] += "1" + gen("x")
        inner[1] += "2" + gen("y")
        inner.join("concate_and_append")
        child += gen("x")
        return child.text()

    state = function(body).run(backend=here)
    assert state.ret_value == "Qa1b2backc"
    assert prompts(there) == ["Q", "Qa1", "Qa1b2back"]
    assert prompts(here) == ["Qa2"]


@pytest.mark.parametrize("where", ["there", "here"])
def test_an_error_reaches_what_needs_it_alone(where: str) -> None:
    fault = RuntimeError("no")
    here = ScriptedBackend({"x": fault if where == "here" else "one", "z": "z"})
    there = ScriptedBackend({"y": fault})

    def body(s: Any) -> None:
        side = s.fork(1)[0]
        side += "side" + gen("z")
        s += gen("x")
        child = s.fork(1, backends=[there])[0]
        child += gen("y")
        s += child.ref("y") + gen("z")

    state = function(body).run(backend=here, options=RunOptions(on_error="state"))
    assert state.error() is fault
    assert len(prompts(here)) == 2
    assert len(prompts(there)) == (where == "there")


def test_a_failed_child_fails_a_join_by_text() -> None:
    def body(s: Any) -> None:
        forks = s.fork(2, backends=[ScriptedBackend({"x": RuntimeError("no")}), None])
        forks += gen("x")
        forks.join("concate_and_append")
        s += gen("x")

    with pytest.raises(RuntimeError, match="no"):
        function(body).run(backend=ScriptedBackend({"x": "one"}))


def test_cancelling_reaches_all_backends() -> None:
    here, there = HandBackend(), HandBackend()

    def body(s: Any) -> None:
        forks = s.fork(2, backends=[None, there])
        forks += gen("x")
        s.branch.session.flush()
        there.wait_program().wait_gen()
        s.cancel()

    with pytest.raises(CancelledError):
        function(body).run(backend=here)
    assert here.programs[0].cancels == [None]
    assert there.programs[0].cancels == [None]


def test_a_rewind_past_the_fork_cancels_the_foreign_child() -> None:
    here, there = ScriptedBackend({"x": "done"}), HandBackend()

    def body(s: Any) -> None:
        mark = s.mark()
        child = s.fork(1, backends=[there])[0]
        child += gen("x")
        s.branch.session.flush()
        there.wait_program().wait_gen()
        s.rewind(mark)
        s += gen("x")
        assert s["x"] == "done"
        there.wait_program().wait(lambda: bool(there.programs[0].cancels))
        there.wait_program().fail_rest()

    state = function(body).run(backend=here)
    assert state.text() == "done"


def test_a_race_over_backends_cancels_the_losers() -> None:
    here, there = ScriptedBackend({"x": "fast", "y": "."}), HandBackend()

    def body(s: Any) -> Any:
        forks = s.fork(2, backends=[there, None])
        forks += gen("x")
        s.branch.session.flush()
        there.wait_program().wait_gen()
        result = forks.join(first=1)
        winners = result.winners
        there.wait_program().fail_rest()
        s += gen("y")
        return winners, s["x"]

    state = function(body).run(backend=here)
    assert state.ret_value == ([1], ["fast"])
    assert there.programs[0].cancels == [None]


def test_a_vote_over_backends() -> None:
    backends = [ScriptedBackend({"x": text}) for text in ("a", "b", "b")]

    def body(s: Any) -> Any:
        s += "Q"
        forks = s.fork(3, backends=backends)
        forks += select("x", ["a", "b"])
        result = forks.join(vote="x")
        s += s.ref("x") + gen("end")
        return result.winners, result.votes, s["x"]

    here = ScriptedBackend({"end": "."})
    state = function(body).run(backend=here)
    winners, votes, value = state.ret_value
    assert (sorted(winners), votes.get("b"), value) == ([1, 2], 2, "b")
    assert prompts(here) == ["Qb"]


def test_a_race_that_all_lose_is_a_clear_error() -> None:
    def body(s: Any) -> None:
        forks = s.fork(2, backends=[ScriptedBackend({"x": RuntimeError("no")}), None])
        forks += gen("x")
        forks.join(first=2)
        s += gen("x")

    with pytest.raises(ExecutionError, match="first=2: 1 failed"):
        function(body).run(backend=ScriptedBackend({"x": "one"}))


def test_samples_on_the_same_backend_have_seeds_of_their_own() -> None:
    seeds: list[int | None] = []

    class Seeded(ScriptedBackend):
        def open_program(self, sink: Any, *, seed: int | None = None) -> Any:
            seeds.append(seed)
            return super().open_program(sink, seed=seed)

    there = Seeded({"x": "one"})

    def body(s: Any) -> None:
        forks = s.fork(2, backends=[there, there])
        forks += gen("x")

    for _ in range(2):
        function(body).run(backend=there, options=RunOptions(seed=7))
    assert seeds[0] == 7
    assert len(set(seeds)) == 3
    assert seeds[:3] == seeds[3:]


def test_inside_a_block_its_backend_is_the_default_of_other_programs() -> None:
    here, there = ScriptedBackend({"x": "here"}), ScriptedBackend({"x": "there"})
    inner = function(lambda s: s.append(gen("x")))

    def body(s: Any) -> Any:
        with s.backend(there):
            first = inner.run()["x"]
        return first, inner.run()["x"]

    assert function(body).run(backend=here).ret_value == ("there", "here")


def test_async_bodies_use_several_backends_without_blocking() -> None:
    here, there = ScriptedBackend({"x": "one"}), ScriptedBackend({"y": "two"})

    async def body(s: Any) -> Any:
        s += gen("x")
        with s.backend(there):
            s += gen("y")
            inside = await s.get("y")
        await s.wait()
        return inside, s.text()

    assert function(body).run(backend=here).ret_value == ("two", "onetwo")


def test_a_stream_shows_what_came_from_elsewhere() -> None:
    here, there = ScriptedBackend({"x": "one"}), ScriptedBackend({"y": " two"})

    def body(s: Any) -> None:
        s += gen("x")
        with s.backend(there):
            s += gen("y")

    state = function(body).run(backend=here, stream=True)
    assert "".join(state.text_iter()) == "one two"
    assert "".join(state.text_iter("y")) == " two"


def test_what_is_wrong_is_refused() -> None:
    other = ScriptedBackend()

    def body(s: Any) -> None:
        with pytest.raises(RequestError, match="got 1 backends for 2 states"):
            s.fork(2, backends=[other])
        with pytest.raises(RequestError, match="finding the backend"):
            s.fork(1, backends=[5])
        with pytest.raises(ProgramError, match="begun or ended inside"), s.backend(other):
            s.branch.begin_role("user")

    function(body).run(backend=ScriptedBackend())


def test_an_error_in_a_block_leaves_the_state_as_it_was() -> None:
    other = ScriptedBackend({"y": "two"})

    def leave(s: Any) -> None:
        with s.backend(other):
            s += gen("y")
            raise KeyError("mine")

    def body(s: Any) -> None:
        s += "a"
        with pytest.raises(KeyError):
            leave(s)
        s += "b"

    assert function(body).run(backend=ScriptedBackend()).text() == "ab"


def test_a_trace_follows_the_block() -> None:
    def body(s: Any) -> None:
        with s.backend(ScriptedBackend()):
            s += "a" + gen("x")
        s += "b"

    traced = function(body).trace()
    assert traced.is_closed
    assert sum(isinstance(op, GenOp) for op in traced.tree.ops.values()) == 1
