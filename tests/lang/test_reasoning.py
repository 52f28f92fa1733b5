"""Thinking and answers apart: whole, as they come, with roles, in forks, and by reference."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglang_lite.errors import RequestError, UnsupportedError
from sglang_lite.lang import ProgramState, ScriptedBackend, assistant, function, gen, select, separate_reasoning, user
from sglang_lite.lang.reasoning import FORMATS, ThinkingFormat, ThinkingSplitter
from sglang_lite.request_tree import split_thinking
from tests.lang.support import HandBackend

PARTS = st.sampled_from(["<think>", "</think>", "<", "th", "ink>", " ", "\n", "a", "</", "b "])


@given(st.lists(PARTS), st.booleans(), st.lists(st.integers(1, 5)))
def test_pieces_are_split_as_the_whole_and_never_taken_back(parts: list[str], inside: bool, cuts: list[int]) -> None:
    text = "".join(parts)
    found = ThinkingFormat(starts_inside=inside)
    whole = split_thinking(text, found.marks, starts_inside=inside)
    splitter, at = ThinkingSplitter(found), 0
    for cut in cuts:
        splitter.feed(text[at : at + cut])
        at += cut
        assert whole[0].startswith("".join(splitter.thinking))
        assert whole[1].startswith("".join(splitter.answer))
    splitter.feed(text[at:])
    splitter.finish()
    assert ("".join(splitter.thinking), "".join(splitter.answer)) == whole


@pytest.mark.parametrize(
    ("model_type", "text", "halves"),
    [
        ("qwen3", "<think>\nhm\n</think>\n\n42", ("hm", "42")),
        ("qwen3", "just 42 ", ("", "just 42 ")),
        ("Qwen3", "<think>cut off", ("cut off", "")),
        ("deepseek-r1", "hm</think>42", ("hm", "42")),
        ("deepseek-r1", "<think>hm</think>42", ("hm", "42")),
        ("kimi", "◁think▷hm◁/think▷42", ("hm", "42")),
    ],
)
def test_a_gen_is_split_by_the_marks_of_its_model_type(model_type: str, text: str, halves: tuple[str, str]) -> None:
    @function
    def f(s: ProgramState) -> None:
        s += "Q" + separate_reasoning(gen("x"), model_type)

    state = f.run(backend=ScriptedBackend([text]))
    assert (state["x_reasoning_content"], state["x"]) == halves
    assert state.text() == "Q" + halves[1]
    assert state.get_meta_info("x")["finish_reason"]["type"] == "stop"


def test_the_turn_keeps_its_end_and_the_next_prompt_has_no_thinking() -> None:
    backend = ScriptedBackend(["<think>a b</think>one", "two"], chat_template="chatml")

    @function
    def f(s: ProgramState) -> None:
        s += user("first") + assistant(separate_reasoning(gen("x"), "qwen3"))
        s += user("second") + assistant(gen("y"))

    state = f.run(backend=backend)
    assert backend.calls[1].prompt == (
        "<|im_start|>user\nfirst<|im_end|>\n<|im_start|>assistant\none<|im_end|>\n"
        "<|im_start|>user\nsecond<|im_end|>\n<|im_start|>assistant\n"
    )
    assert [m["content"] for m in state.messages()] == ["first", "one", "second", "two"]


def test_text_selects_scopes_and_unnamed_gens_go_through() -> None:
    backend = ScriptedBackend({"x": "<think>t</think>X", "c": "b", "*": "<think>u</think>U"})

    @function
    def f(s: ProgramState) -> None:
        with s.var_scope("all"):
            s += separate_reasoning("a:" + gen("x") + " b:" + select("c", ["a", "b"]) + " c:" + gen(), "qwen3")

    state = f.run(backend=backend)
    assert state.text() == state["all"] == "a:X b:b c:U"
    assert state["c"] == "b"
    assert [meta["completion_tokens"] for meta in state.op_metas()] == [1, 1, 1]


def test_every_sample_is_split() -> None:
    @function
    def f(s: ProgramState) -> None:
        s += separate_reasoning(gen("x", n=2), "qwen3")

    state = f.run(backend=ScriptedBackend([["<think>a</think>1", "<think>b</think>2"]]))
    assert (state["x"], state["x_reasoning_content"], state.text()) == (["1", "2"], ["a", "b"], "1")


def test_both_halves_stream_as_they_come() -> None:
    backend = HandBackend()

    @function
    def f(s: ProgramState) -> None:
        s += separate_reasoning(gen("x"), "qwen3")

    state = f.run(stream=True, backend=backend)
    program = backend.wait_program()
    op = program.wait_gen()
    program.done(program.ops[0])  # the fork, which stands before the answer in the text
    thinking, answer, text = state.text_iter("x_reasoning_content"), state.text_iter("x"), state.text_iter()
    program.delta(op, "<think>a b ")
    assert next(thinking) == "a b"
    program.delta(op, "c</")
    assert next(thinking) == " c"
    program.delta(op, "think>\n\none")
    assert (next(answer), next(text)) == ("one", "one")
    program.delta(op, " two ")
    assert (next(answer), next(text)) == (" two", " two")
    program.done(op, "<think>a b c</think>\n\none two ")
    program.done_others()
    assert [list(rest) for rest in (thinking, answer, text)] == [[], [], []]


def test_an_error_of_the_gen_is_an_error_of_both_halves_and_of_what_follows() -> None:
    failure = ValueError("broken")

    @function
    def f(s: ProgramState) -> None:
        s += separate_reasoning(gen("x"), "qwen3") + gen("y")
        for name in ("x", "x_reasoning_content", "y"):
            with pytest.raises(ValueError, match="broken"):
                s[name]

    with pytest.raises(ValueError, match="broken"):
        f.run(backend=ScriptedBackend([failure]))


def test_halves_are_gathered_by_a_join() -> None:
    @function
    def f(s: ProgramState) -> None:
        forks = s.fork(2)
        for fork in forks:
            fork += separate_reasoning(gen("x"), "qwen3")
        forks.join()

    state = f.run(backend=ScriptedBackend({"x": ["<think>a</think>1", "<think>b</think>2"]}))
    assert (state["x"], state["x_reasoning_content"]) == (["1", "2"], ["a", "b"])


def test_what_cannot_be_separated_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="model_type='gpt-oss'"):
        separate_reasoning(gen("x"), "gpt-oss")
    with pytest.raises(RequestError, match="inside"):
        separate_reasoning("a" + separate_reasoning(gen("x"), "qwen3"), "qwen3")
    with pytest.raises(RequestError, match="separating"):
        separate_reasoning(None, "qwen3")
    assert {"deepseek-r1", "qwen3"} <= set(FORMATS)


# --- references ---


def run(body: Any, replies: Any) -> tuple[ProgramState, ScriptedBackend]:
    backend = ScriptedBackend(replies)
    return function(body).run(backend=backend), backend


def test_a_reference_appends_a_value_without_waiting_for_it() -> None:
    """The whole program reaches the backend at once: no read forces anything."""

    def body(s: ProgramState) -> None:
        forks = s.fork(2)
        for fork in forks:
            fork += "?" + gen("x")
        forks.join()
        with s.var_scope("scope"):
            s += "a: " + s.ref("x", 0) + ", b: " + s.ref("x", 1)
        s["plain"] = "!"
        s += s.ref("plain") + s.ref("scope") + gen("y")

    state, backend = run(body, {"x": ["1", "2"], "y": "Y"})
    assert state.text() == "a: 1, b: 2!a: 1, b: 2Y"
    assert backend.calls[-1].prompt == "a: 1, b: 2!a: 1, b: 2"


def test_a_reference_fails_with_what_it_refers_to() -> None:
    def body(s: ProgramState) -> None:
        t = s.fork(1)[0]
        t += gen("x")
        s += t.ref("x") + gen("y")
        with pytest.raises(ValueError, match="broken"):
            s["y"]

    with pytest.raises(ValueError, match="broken"):
        run(body, {"x": ValueError("broken"), "y": "Y"})


def test_a_reference_that_has_no_text_is_refused() -> None:
    def body(s: ProgramState) -> None:
        with pytest.raises(KeyError):
            s.ref("nothing")
        forks = s.fork(1)
        forks[0] += gen("x")
        with pytest.raises(RequestError, match="is no list"):
            forks[0].ref("x", 0)
        forks.join()
        with pytest.raises(RequestError, match="say which one"):
            s.ref("x")
        with s.var_scope("turn"):
            s += user("hello")
        with pytest.raises(RequestError, match="roles"):
            s.ref("turn")

    run(body, None)
