"""Gens with tools and with thinking: what is sent, and what comes back."""

from __future__ import annotations

import json
from typing import Any

import pytest

import sglang_lite as sgl
from sglang_lite.chat_formats import ChatFormat, ThinkingFormat
from sglang_lite.errors import ProgramError, RequestError
from sglang_lite.request_tree import GenOp, TemplateOp


def add(a: int, b: int) -> int:
    """Adds."""
    return a + b


CALL = '<tool_call>\n{"name": "add", "arguments": {"a": 1, "b": 4}}\n</tool_call>'


@sgl.function
def ask(s: sgl.ProgramState, **parameters: Any) -> Any:
    s += sgl.user("1 + 4?") + sgl.assistant(sgl.gen("x", **parameters))
    return s["x"]


def ops(state: sgl.ProgramState, kind: type) -> list[Any]:
    return [op for op in state.branch.session.tree.ops.values() if isinstance(op, kind)]


def test_a_gen_with_tools_gives_text_and_calls() -> None:
    state = ask.run(tools=[add], backend=sgl.ScriptedBackend([f"Let me see. {CALL}"]))
    reply = state["x"]
    assert (reply.text, str(reply)) == ("Let me see.", "Let me see.")
    (call,) = reply.tool_calls
    assert (call.name, call.arguments) == ("add", {"a": 1, "b": 4})
    assert len(call.id) == 9
    assert state.messages()[-1] == {
        "role": "assistant",
        "content": "Let me see.",
        "tool_calls": [
            {"id": call.id, "type": "function", "function": {"name": "add", "arguments": '{"a": 1, "b": 4}'}}
        ],
    }
    again = ask.run(tools=[add], backend=sgl.ScriptedBackend([f"Let me see. {CALL}"]))
    assert again["x"] == reply, "ids are the same in every run"


def test_the_tools_reach_the_template_once_and_the_constraint_each_gen() -> None:
    @sgl.function
    def twice(s: sgl.ProgramState) -> None:
        for name, choice in (("x", "auto"), ("y", "required"), ("z", "none")):
            s += sgl.user("q") + sgl.assistant(sgl.gen(name, tools=[add], tool_choice=choice))

    state = twice.run(backend=sgl.ScriptedBackend(["a", CALL, CALL]))
    (shown,) = ops(state, TemplateOp)
    assert json.loads(shown.variables)["tools"][0]["function"]["name"] == "add"
    params = [op.params for op in ops(state, GenOp)]
    assert [p.constraint for p in params] == ["structural_tag", "structural_tag", None]
    assert all(p.max_new_tokens is None for p in params), "not the run's 128"
    assert state["z"].tool_calls == ()
    assert state["z"].text == CALL


def test_samples_have_replies_of_their_own() -> None:
    state = ask.run(tools=[add], n=2, backend=sgl.ScriptedBackend([[CALL, "no"]]))
    assert [len(reply.tool_calls) for reply in state["x"]] == [1, 0]


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"tools": [add], "regex": "a"}, "got tools and regex"),
        ({"tools": [add], "type": int}, "got tools and a type"),
        ({"tools": [add], "tool_choice": "sub"}, "expected auto, none, required or one of"),
        ({"tool_choice": "auto"}, "without tools"),
        ({"tools": [add], "choices": ["a"]}, "got choices and"),
        ({"thinking": -1}, "expected auto, off or a number"),
        ({"thinking": "on"}, "expected auto, off or a number"),
        ({"thinking": "auto", "thinking_marks": ("a",)}, "expected two texts"),
    ],
)
def test_wrong_combinations_are_refused_when_the_gen_is_made(parameters: dict[str, Any], words: str) -> None:
    with pytest.raises(RequestError, match=words):
        sgl.gen("x", **parameters)


def test_tools_need_an_assistants_turn() -> None:
    @sgl.function
    def outside(s: sgl.ProgramState) -> None:
        s += "text" + sgl.gen("x", tools=[add])

    with pytest.raises(ProgramError, match="no turn is open; tools are called in the assistant's turn"):
        outside.run(backend=sgl.ScriptedBackend(["a"]))


def test_openais_object_names_a_tool() -> None:
    state = ask.run(
        tools=[add], tool_choice={"type": "function", "function": {"name": "add"}}, backend=sgl.ScriptedBackend([CALL])
    )
    assert len(state["x"].tool_calls) == 1


# --- thinking ---

THOUGHT = "<think>1 and 4</think>5"


def test_thinking_is_kept_apart_and_out_of_later_prompts() -> None:
    @sgl.function
    def chat(s: sgl.ProgramState) -> None:
        s += sgl.user("1 + 4?") + sgl.assistant(sgl.gen("x", thinking="auto"))
        s += sgl.user("Sure?") + sgl.assistant(sgl.gen("y", thinking=8))

    backend = sgl.ScriptedBackend([THOUGHT, "yes"])
    state = chat.run(backend=backend)
    assert (state["x"], state.get_reasoning("x")) == ("5", "1 and 4")
    assert (state["y"], state.get_reasoning("y")) == ("yes", "")
    assert "1 and 4" not in backend.calls[1].prompt
    assert "<think>" not in state.text()
    assert state.messages()[1] == {"role": "assistant", "content": "5"}
    params = [op.params for op in ops(state, GenOp)]
    assert [(p.thinking, p.thinking_budget) for p in params] == [
        (("<think>", "</think>"), None),
        (("<think>", "</think>"), 8),
    ]
    with pytest.raises(KeyError):
        state.get_reasoning("z")


def test_thinking_stays_where_that_is_asked() -> None:
    @sgl.function
    def chat(s: sgl.ProgramState) -> None:
        s += sgl.user("1 + 4?") + sgl.assistant(sgl.gen("x", thinking="auto", keep_thinking=True))
        s += sgl.user("Sure?") + sgl.assistant(sgl.gen("y"))

    backend = sgl.ScriptedBackend([THOUGHT, "yes"])
    state = chat.run(backend=backend)
    assert (state["x"], state.get_reasoning("x")) == ("5", "1 and 4")
    assert THOUGHT in backend.calls[1].prompt
    assert ops(state, GenOp)[1].params.thinking is None, "the second gen asked for nothing"


@pytest.mark.parametrize("switch", ["enable_thinking", None])
def test_thinking_is_turned_off_by_the_templates_switch_or_by_a_budget_of_none(switch: str | None) -> None:
    backend = sgl.ScriptedBackend(["5"], chat_format=ChatFormat(thinking=ThinkingFormat(), thinking_switch=switch))
    state = ask.run(thinking="off", backend=backend)
    assert (state["x"], state.get_reasoning("x")) == ("5", "")
    (op,) = ops(state, GenOp)
    if switch is None:
        assert op.params.thinking_budget == 0
        assert not ops(state, TemplateOp)
    else:
        assert op.params.thinking is None
        assert json.loads(ops(state, TemplateOp)[0].variables) == {switch: False}


def test_marks_of_the_program_go_before_the_models() -> None:
    state = ask.run(
        thinking="auto",
        thinking_marks=("[a]", "[b]"),
        backend=sgl.ScriptedBackend(["[a]hm[b]5"], chat_format=ChatFormat()),
    )
    assert (state["x"], state.get_reasoning("x")) == ("5", "hm")


def test_a_model_that_does_not_think_is_asked_as_ever() -> None:
    state = ask.run(thinking="auto", backend=sgl.ScriptedBackend([THOUGHT], chat_format=ChatFormat()))
    assert (state["x"], state.get_reasoning("x")) == (THOUGHT, "")


def test_a_prompt_that_opens_the_thinking_is_closed_before_the_answer() -> None:
    @sgl.function
    def chat(s: sgl.ProgramState) -> None:
        s += sgl.user("q") + sgl.assistant(sgl.gen("x", thinking="auto") + " In short: " + sgl.gen("y"))

    form = ChatFormat(thinking=ThinkingFormat(starts_inside=True))
    backend = sgl.ScriptedBackend(["hm</think>5", "five"], chat_format=form)
    state = chat.run(backend=backend)
    assert (state["x"], state.get_reasoning("x"), state["y"]) == ("5", "hm", "five")
    assert backend.calls[1].prompt.endswith("ASSISTANT:</think>\n\n5 In short: ")
    assert state.messages()[-1]["content"] == "5 In short: five"


def test_a_thinking_gen_calls_tools() -> None:
    state = ask.run(thinking="auto", tools=[add], backend=sgl.ScriptedBackend([f"<think>hm</think>Well. {CALL}"]))
    assert (state["x"].text, state.get_reasoning("x")) == ("Well.", "hm")
    assert state["x"].tool_calls[0].arguments == {"a": 1, "b": 4}
    assert state.messages()[-1]["tool_calls"][0]["function"]["name"] == "add"


def test_a_thinking_gen_has_a_type() -> None:
    state = ask.run(thinking="auto", type=int, backend=sgl.ScriptedBackend(["<think>hm hm</think>5"]))
    assert state["x"] == 5
    assert state.get_reasoning("x") == "hm hm", "what ends a number does not end the thinking"
