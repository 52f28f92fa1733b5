"""What an author does with `s`: append, read, roles, scopes, copies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from sglang_lite import lang as sgl
from sglang_lite.errors import ExecutionError, ProgramError, RequestError, UnsupportedError
from sglang_lite.lang import ProgramState, RunOptions, ScriptedBackend, function, gen, literal, select
from sglang_lite.lang.ir import SglVarScopeEnd
from sglang_lite.request_tree import GenOp, RoleBeginOp, SelectOp, TextOp
from tests.lang.support import Background, HandBackend


def run(body: Callable[[ProgramState], Any], replies: Any = None, **given: Any) -> ProgramState:
    template = given.pop("chat_template", "plain")
    backend = ScriptedBackend(replies, chat_template=template)
    return function(lambda s: body(s)).run(backend=backend, **given)


def test_values_are_text_and_text_is_everything() -> None:
    def body(s: ProgramState) -> str:
        s += "1 + 1 = " + gen("sum", dtype=int) + ", " + select("mood", ["good", "bad"])
        return s["sum"]

    state = run(body, ["2", "bad"])
    assert (state.ret_value, state["mood"], state.get_var("sum")) == ("2", "bad", "2")
    assert state.text() == "1 + 1 = 2, bad"
    assert repr(state) == "ProgramState(1 + 1 = 2, bad)"
    assert ("sum" in state, "other" in state) == (True, False)


def test_a_name_used_again_is_the_latest() -> None:
    def body(s: ProgramState) -> list[str]:
        s += gen("x")
        first = s["x"]
        s += gen("x")
        return [first, s["x"]]

    assert run(body, ["1", "2"]).ret_value == ["1", "2"]


def test_an_unknown_name_is_a_key_error_and_has_no_meta_info() -> None:
    def body(s: ProgramState) -> None:
        with pytest.raises(KeyError, match="nope"):
            _ = s["nope"]
        assert s.get_meta_info("nope") is None

    state = run(body)
    with pytest.raises(KeyError, match="nope"):
        _ = state["nope"]
    assert state.get_meta_info("nope") is None


def test_a_set_value_is_any_object() -> None:
    def body(s: ProgramState) -> None:
        s["list"] = [1]
        s.set_var("none", None)
        assert s["list"] == [1]
        assert s["none"] is None
        assert s.get_meta_info("list") is None

    assert run(body)["list"] == [1]


@pytest.mark.parametrize("bad", [None, 3, 1.5, ["a"], object()])
def test_what_is_no_text_and_no_expression_is_refused_at_once(bad: Any) -> None:
    def body(s: ProgramState) -> None:
        s += "before"
        with pytest.raises(ValueError, match="expected a str or an expression"):
            s += bad
        with pytest.raises(RequestError):
            s.user(bad) if bad is not None else s.append(bad)

    assert run(body).text().startswith("before")


def test_an_empty_text_is_no_op() -> None:
    backend = HandBackend()

    @function
    def f(s: ProgramState) -> None:
        s += ""
        s += "" + gen("x") + ""

    state = Background(lambda: f.run(backend=backend))
    program = backend.wait_program()
    program.done(program.wait_gen(), "v")
    assert state.result().text() == "v"
    assert len(program.ops) == 1


def test_text_is_literal_inside_roles_and_where_it_is_said() -> None:
    backend = HandBackend()

    @function
    def f(s: ProgramState) -> None:
        s += "plain" + literal("literal")
        s.user("in a role")
        with s.assistant(), s.copy() as t:
            t += "in a fork of an open role"
        s += "plain"

    background = Background(lambda: f.run(backend=backend))
    program = backend.wait_program()
    program.wait(lambda: any(isinstance(op, TextOp) for op in program.ops))
    texts = {op.text: op.literal for op in program.ops if isinstance(op, TextOp)}
    program.done_others()
    background.result()
    assert texts == {"plain": False, "literal": True, "in a role": True, "in a fork of an open role": True}


def roles_as_calls(s: ProgramState) -> None:
    s.system("sys")
    s.user("q" + literal("!"))
    s.assistant(gen("a"))


def roles_as_blocks(s: ProgramState) -> None:
    with s.system():
        s += "sys"
    with s.user():
        s += "q" + literal("!")
    with s.assistant():
        s += gen("a")


def roles_as_expressions(s: ProgramState) -> None:
    s += sgl.system("sys") + sgl.user("q" + literal("!"))
    s += sgl.assistant(gen("a"))


def roles_in_halves(s: ProgramState) -> None:
    s += sgl.system_begin() + "sys" + sgl.system_end()
    s += sgl.user_begin()
    s += "q" + literal("!")
    s += sgl.user_end() + sgl.assistant_begin() + gen("a") + sgl.assistant_end()


@pytest.mark.parametrize("body", [roles_as_calls, roles_as_blocks, roles_as_expressions, roles_in_halves])
def test_all_ways_to_write_roles_are_the_same(body: Callable[[ProgramState], None]) -> None:
    state = run(body, {"a": " \nyes "}, chat_template="chatml")
    assert state.messages() == [
        {"role": "system", "content": "sys"},
        {"role": "user", "content": "q!"},
        {"role": "assistant", "content": "yes "},
    ]
    assert state.text() == (
        "<|im_start|>system\nsys<|im_end|>\n<|im_start|>user\nq!<|im_end|>\n<|im_start|>assistant\n \nyes <|im_end|>\n"
    )


def test_an_open_turn_is_text_but_no_message_yet() -> None:
    def body(s: ProgramState) -> None:
        s += sgl.user("q") + sgl.assistant_begin() + "so far"

    state = run(body)
    assert state.messages() == [{"role": "user", "content": "q"}]
    assert state.text() == "USER:q\nASSISTANT:so far"


def test_nested_and_unopened_roles_are_program_errors() -> None:
    def body(s: ProgramState) -> None:
        with pytest.raises(ProgramError, match="no role is open"):
            s += sgl.user_end()
        with s.user():
            with pytest.raises(ProgramError, match="Nested roles are not allowed"):
                s.assistant("x")
            with pytest.raises(ProgramError, match="ending the role 'assistant': the open one is 'user'"):
                s += sgl.assistant_end()

    assert run(body).text() == "USER:\n"


def test_what_a_role_call_returns_cannot_be_appended_again() -> None:
    """SGLang would put the turn in twice."""

    def body(s: ProgramState) -> None:
        with pytest.raises(ProgramError, match=r"in the state already; write s\.user\(x\)"):
            s += s.user("q")

    assert run(body).messages() == [{"role": "user", "content": "q"}]


def test_a_turn_is_closed_when_its_block_is_left_by_an_error() -> None:
    def body(s: ProgramState) -> None:
        with pytest.raises(ZeroDivisionError), s.user():
            s += str(1 / 0)
        s.user("next")

    assert run(body).text() == "USER:\nUSER:next\n"


def test_the_error_that_leaves_a_block_is_not_replaced() -> None:
    """The program is cancelled inside the block: closing the turn is left out, and the first error gets out."""

    def body(s: ProgramState) -> None:
        with s.user(), s.var_scope("v"):
            s.cancel()
            raise ZeroDivisionError("first")

    with pytest.raises(ZeroDivisionError, match="first"):
        run(body)


def test_a_scope_is_the_text_inside_gens_included() -> None:
    def body(s: ProgramState) -> None:
        s += "a"
        with s.var_scope("outer"):
            s += "b" + gen("x")
            with s.var_scope("inner"):
                s += select("y", ["c", "d"])
        s += "e"
        assert s["outer"] == "bXc"

    state = run(body, ["X", "c"])
    assert (state["outer"], state["inner"], state.text()) == ("bXc", "c", "abXce")
    assert state.get_meta_info("outer") is None


def test_a_scope_that_is_open_at_a_fork_ends_in_each() -> None:
    def body(s: ProgramState) -> None:
        with s.var_scope("v"):
            s += "a"
            child = s.fork(1)[0]
            child += "b"
            child += SglVarScopeEnd("v")
            s += "c"
        assert child["v"] == "ab"

    assert run(body)["v"] == "ac"


def test_a_scope_that_is_not_open_cannot_end() -> None:
    def body(s: ProgramState) -> None:
        with pytest.raises(ProgramError, match=r"ending the variable scope 'v': open are \[\]"):
            s += SglVarScopeEnd("v")

    run(body)


def test_a_fork_needs_a_size_and_no_offsets() -> None:
    def body(s: ProgramState) -> None:
        with pytest.raises(UnsupportedError, match="position_ids_offset"):
            s.fork(2, [0, 1])
        for bad in (-1, 1.0, True, None):
            with pytest.raises(RequestError, match="forking: got size"):
                s.fork(bad)  # type: ignore[arg-type]
        assert len(s.fork(0)) == 0
        s.fork(0).join()

    run(body)


def test_a_copy_is_joined_at_the_end_of_its_block() -> None:
    def body(s: ProgramState) -> None:
        s += "a"
        with s.copy() as t:
            t += gen("x")
            assert t["x"] == "X"
        with pytest.raises(ProgramError, match="the branch has ended"):
            t += "more"
        assert t.text() == "aX"

    state = run(body, ["X"])
    assert (state["x"], state.text()) == (["X"], "a")


def test_a_child_waits_for_a_name_that_its_parent_will_have() -> None:
    backend = HandBackend()
    error = ExecutionError("the parent's op")

    @function
    def f(s: ProgramState) -> str:
        s += gen("a")
        child = s.fork(1)[0]
        return child["a"]

    for fails in (False, True):
        background = Background(lambda: f.run(backend=backend))
        program = backend.wait_program(int(fails))
        op = program.wait_gen()
        if fails:
            program.fail(op, error)
            program.fail_rest(error)
            with pytest.raises(ExecutionError, match="the parent's op"):
                background.result()
        else:
            program.done(op, "v")
            program.done_others()
            assert background.result().ret_value == "v"


def test_reading_waits_for_that_op_only() -> None:
    """The body goes on with the first value while the second is open."""
    backend = HandBackend()
    seen: list[str] = []

    @function
    def f(s: ProgramState) -> None:
        s += gen("a") + gen("b")
        seen.append(s["a"])

    background = Background(lambda: f.run(backend=backend))
    program = backend.wait_program()
    program.wait_gen(1)
    program.done(program.gens()[0], "first")
    program.wait(lambda: program.num_closes == 1)
    assert seen == ["first"]
    assert background.is_running, "run returns when all ops are done"
    program.done(program.gens()[1], "second")
    assert background.result()["b"] == "second"


def test_n_texts_are_a_list_and_the_first_goes_on() -> None:
    def body(s: ProgramState) -> None:
        s += "q " + gen("x", n=3) + "!"

    state = run(body, [["a", "b", "c"]])
    assert state["x"] == ["a", "b", "c"]
    assert state.text() == "q a!"
    state["x"].append("d")
    assert state["x"] == ["a", "b", "c"]


def test_meta_info_comes_from_the_backend() -> None:
    def body(s: ProgramState) -> None:
        s += "one two " + gen("x", stop="END")
        forks = s.fork(2)
        forks += gen("y")
        forks.join()

    state = run(body, {"x": "three four END five", "y": "z"})
    meta = state.get_meta_info("x")
    assert meta["finish_reason"] == {"type": "stop", "matched": "END"}
    assert (meta["prompt_tokens"], meta["completion_tokens"]) == (3, 3)
    assert [one["completion_tokens"] for one in state.get_meta_info("y")] == [1, 1]
    assert [one["id"] for one in state.op_metas()] == [meta["id"]]


def test_run_options_keep_errors_on_the_state() -> None:
    error = ExecutionError("planned")

    def body(s: ProgramState) -> None:
        s += "before " + gen("x") + " after"
        s.sync()

    state = run(body, [error], options=RunOptions(on_error="state"))
    assert state.error() is error
    assert state.text() == "before "
    assert state.messages() == []
    assert repr(state) == "ProgramState(before )"
    with pytest.raises(ExecutionError, match="planned"):
        _ = state["x"]
    with pytest.raises(ExecutionError, match="planned"):
        state.get_meta_info("x")


def test_errors_kept_on_the_state_are_the_ops_not_the_bodys() -> None:
    def reads(s: ProgramState) -> None:
        s += gen("x")
        _ = s["x"]

    def breaks(s: ProgramState) -> None:
        raise ZeroDivisionError("the body's own")

    options = RunOptions(on_error="state")
    assert isinstance(run(reads, [ExecutionError("op")], options=options).error(), ExecutionError)
    with pytest.raises(ZeroDivisionError):
        run(breaks, options=options)


def test_sync_text_and_messages_raise_what_failed() -> None:
    def body(s: ProgramState) -> None:
        s += gen("x")
        for read in (s.sync, s.text, s.messages):
            with pytest.raises(ExecutionError, match="planned"):
                read()
        assert repr(s) == "ProgramState()"

    with pytest.raises(ExecutionError, match="planned"):
        run(body, [ExecutionError("planned")])


def test_ops_carry_names_choices_and_the_streaming_wish() -> None:
    backend = HandBackend()

    @function
    def f(s: ProgramState) -> None:
        s.user("q")
        s += gen("a", max_tokens=3)
        s += select("b", ["x", "y"], choices_method=sgl.unconditional_likelihood_normalized)

    state = f.run(backend=backend, stream=True, temperature=0.5)
    program = backend.wait_program()
    program.wait_gen(1)
    gen_op, select_op = program.gens()
    assert isinstance(gen_op, GenOp)
    assert isinstance(select_op, SelectOp)
    assert (gen_op.name, gen_op.stream, gen_op.params.max_new_tokens, gen_op.params.temperature) == ("a", True, 3, 0.5)
    assert (select_op.name, select_op.choices, select_op.method) == (
        "b",
        ("x", "y"),
        "unconditional_likelihood_normalized",
    )
    assert not select_op.needs_unconditional, "the known methods need no wish"
    assert isinstance(program.ops[0], RoleBeginOp)
    state.cancel()


def test_usage_counts_every_gen_and_select_of_the_run() -> None:
    @function
    def f(s: ProgramState) -> None:
        s += "one two" + gen("x")
        assert s["x"]
        assert s.usage().requests == 1
        for fork in s.fork(2):
            fork += gen("y", choices=["a", "b"])

    usage = f.run(backend=ScriptedBackend({"x": "three", "*": "a"})).usage()
    assert (usage.requests, usage.prompt_tokens, usage.completion_tokens) == (3, 2 + 2 * 2, 3)
