"""Programs as SGLang's client runs them: whole texts, named templates; for a comparison."""

from __future__ import annotations

from typing import Any

import pytest

from sglang_lite.errors import RequestError, UnsupportedError
from sglang_lite.lang import (
    ProgramState,
    RuntimeEndpoint,
    ScriptedBackend,
    assistant,
    function,
    gen,
    select,
    system,
    user,
)
from sglang_lite.lang.backends.strict import StrictBackend
from sglang_lite.lang.choices import TokenLengthNormalized
from sglang_lite.request_tree import ForkOp, GenOp, RefOp, TextOp
from tests.lang.support import Background, HandBackend


@pytest.fixture(autouse=True)
def strict(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SGLANG_LITE_COMPAT", "strict")


@function
def chat(s: ProgramState) -> None:
    s += system("S") + user("Q") + assistant(gen("a")) + user("R") + assistant(gen("b"))


@function
def bare_chat(s: ProgramState) -> None:
    s += user("Q") + assistant(gen("a"))


def test_turns_are_written_as_sglang_writes_them(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = ScriptedBackend({"a": "A", "b": "B"}, chat_template="chatml")
    state = chat.run(backend=backend)
    assert state.text() == "SYSTEM:S\nUSER:Q\nASSISTANT:A\nUSER:R\nASSISTANT:B\n"
    assert [call.prompt for call in backend.calls] == [
        "SYSTEM:S\nUSER:Q\nASSISTANT:",
        "SYSTEM:S\nUSER:Q\nASSISTANT:A\nUSER:R\nASSISTANT:",
    ]
    assert state.messages()[2] == {"role": "assistant", "content": "A"}
    expected = {
        "qwen": "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\nQ<|im_end|>\n<|im_start|>assistant\n",
        "llama-2-chat": "[INST] Q [/INST]",
        "gemma-it": "<start_of_turn>user\nQ<end_of_turn>\n<start_of_turn>model\n",
    }
    for name, prompt in expected.items():
        monkeypatch.setenv("SGLANG_LITE_COMPAT", f"strict:{name}")
        backend = ScriptedBackend({"a": "A"})
        bare_chat.run(backend=backend)
        assert backend.calls[0].prompt == prompt
    monkeypatch.setenv("SGLANG_LITE_COMPAT", "strict:llama-2-chat")
    backend = ScriptedBackend({"a": "A", "b": "B"})
    chat.run(backend=backend)
    assert backend.calls[0].prompt == "[INST] <<SYS>>\nS\n<</SYS>>\n\nQ [/INST]"


def test_the_templates_stop_ends_each_gen_and_nothing_of_the_users_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SGLANG_LITE_COMPAT", "strict:chatml")
    backend = ScriptedBackend({"a": "A<|im_end|>x"})
    stop = ["END"]
    assert bare_chat.run(stop=stop, backend=backend)["a"] == "A"
    params = backend.calls[0].params
    assert params is not None
    assert params.stop == ("END", "<|im_end|>")
    assert stop == ["END"]


def test_every_gen_is_a_request_of_its_own_over_the_whole_text() -> None:
    """From the empty root: one text, no generated id is kept, so that all of it is tokenised anew."""
    backend = HandBackend()

    @function
    def f(s: ProgramState) -> None:
        s += "one" + gen("a") + "two" + gen("b")

    run = Background(lambda: f.run(backend=backend))
    program = backend.wait_program()
    first, second = program.wait_gen(0), program.wait_gen(1)
    assert first.branch != second.branch
    own = [op for op in program.ops if op.branch == second.branch]
    assert [type(op) for op in own[:4]] == [TextOp, RefOp, TextOp, GenOp]
    assert isinstance(own[1], RefOp)
    assert own[1].target == first.id
    forks = [op for op in program.ops if isinstance(op, ForkOp)]
    assert {(op.branch, len(op.children)) for op in forks} == {(0, 1)}
    program.done(first, "A")
    program.done(second, "B")
    program.done_others()
    assert run.result().text() == "oneAtwoB"


def test_forks_joins_selects_and_references() -> None:
    class Last(TokenLengthNormalized):
        def __call__(self, *, choices: list[str], **rest: Any) -> Any:
            from sglang_lite.lang.choices import ChoicesDecision

            return ChoicesDecision(choices[-1], {})

    @function
    def f(s: ProgramState) -> None:
        s += "p:"
        forks = s.fork(2)
        forks += lambda i: f"[{i}"
        forks += gen("x") + "]"
        forks.join("concate_and_append")
        s += select("c", ["u", "v"], choices_method=Last())
        inner = s.fork(2)
        inner += gen("y")
        inner.join()
        s += s.ref("y", 0) + gen("z")

    backend = ScriptedBackend(lambda call: "u" if call.kind == "select" else f"{call.name}!")
    state = f.run(backend=backend)
    assert state.text() == "p:[0x!][1x!]vy!z!"
    assert state["y"] == ["y!", "y!"]
    assert backend.calls[-1].prompt == "p:[0x!][1x!]vy!"


def test_a_failed_gen_fails_what_comes_after_it() -> None:
    def reply(call: Any) -> str:
        if call.name == "a":
            raise ValueError("bad a")
        return "ok"

    @function
    def f(s: ProgramState) -> None:
        s += "t"
        forks = s.fork(2)
        forks[0].append(gen("a"))
        forks[1].append(gen("b"))
        forks.join("concate_and_append")
        s += gen("c")

    with pytest.raises(ValueError, match="bad a"):
        f.run(backend=ScriptedBackend(reply))


def test_streams_pass_through() -> None:
    @function
    def f(s: ProgramState) -> None:
        s += "t" + gen("a")

    state = f.run(backend=ScriptedBackend(["one two"]), stream=True)
    assert "".join(state.text_iter("a")) == "one two"


def test_nested_programs_are_wrapped_once() -> None:
    seen: list[Any] = []

    @function
    def inner(s: ProgramState) -> None:
        s += "i" + gen("a")

    @function
    def outer(s: ProgramState) -> None:
        seen.append(inner.run()["a"])

    backend = ScriptedBackend(["A"])
    outer.run(backend=backend)
    assert seen == ["A"]
    assert StrictBackend(backend).get_server_info()["compat_template"] == "default"


def test_a_template_that_an_endpoint_is_given_is_used_without_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    class Named(ScriptedBackend, RuntimeEndpoint):
        def __init__(self) -> None:
            ScriptedBackend.__init__(self, {"a": "A"})
            self.chat_template_name = "chatml"

    monkeypatch.delenv("SGLANG_LITE_COMPAT")
    backend = Named()
    bare_chat.run(backend=backend)
    assert backend.calls[0].prompt == "<|im_start|>user\nQ<|im_end|>\n<|im_start|>assistant\n"


def test_what_sglang_does_not_have_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    @function
    def f(s: ProgramState) -> None:
        mark = s.mark()
        s += "t" + gen("a")
        s.rewind(mark)

    with pytest.raises(UnsupportedError, match="MarkOp has no counterpart"):
        f.run(backend=ScriptedBackend(["A"]))
    monkeypatch.setenv("SGLANG_LITE_COMPAT", "loose")
    with pytest.raises(RequestError, match="expected 'strict' or 'strict:TEMPLATE'"):
        bare_chat.run(backend=ScriptedBackend(["A"]))
    monkeypatch.setenv("SGLANG_LITE_COMPAT", "strict:nothing")
    with pytest.raises(RequestError, match="finding a chat template: got 'nothing'"):
        bare_chat.run(backend=ScriptedBackend(["A"]))


@pytest.mark.model
def test_generated_ids_are_not_kept(engine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second prompt is the whole text as the tokenizer takes it; without the variable it keeps what was generated."""

    @function
    def f(s: ProgramState) -> None:
        s += "One, two," + gen("a", max_tokens=6, temperature=0) + " and" + gen("b", max_tokens=2, temperature=0)

    state = f.run(backend=engine)
    whole = "One, two," + state["a"] + " and"
    prompt_tokens = state.get_meta_info("b")["prompt_tokens"]
    assert prompt_tokens == len(engine.tokenizer.encode(whole, parse_special=True))
    monkeypatch.delenv("SGLANG_LITE_COMPAT")
    assert f.run(backend=engine)["a"] == state["a"]
