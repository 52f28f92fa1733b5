"""Random programs of text, gens, forks and joins against a model that is a string for each branch."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from sglang_lite.lang import ProgramState, ScriptedBackend, function, gen

STEPS = st.lists(
    st.tuples(st.sampled_from(["text", "gen", "scope", "fork", "gather", "concat", "check"]), st.integers(0, 7)),
    max_size=30,
)


class Model:
    """What a branch should hold."""

    def __init__(self, parent: Model | None) -> None:
        self.text = parent.text if parent else ""
        self.variables: dict[str, Any] = dict(parent.variables) if parent else {}
        self.start = len(self.text)
        self.own: set[str] = set()

    def bind(self, name: str, value: Any) -> None:
        self.variables[name] = value
        self.own.add(name)


class Run:
    """The live branches of a program beside their models, and the forks that can be joined."""

    def __init__(self, s: ProgramState) -> None:
        self.live: list[tuple[ProgramState, Model]] = [(s, Model(None))]
        self.forks: list[tuple[Any, Model, list[tuple[ProgramState, Model]]]] = []

    def step(self, kind: str, pick: int) -> None:
        state, model = self.live[pick % len(self.live)]
        if kind == "text":
            state += f"t{pick} "
            model.text += f"t{pick} "
        elif kind == "gen":
            name = "xyz"[pick % 3]
            state += gen(name)
            model.bind(name, f"<{len(model.text)}>")
            model.text += model.variables[name]
        elif kind == "scope":
            with state.var_scope("v"):
                state += "in"
            model.bind("v", "in")
            model.text += "in"
        elif kind == "fork":
            group = state.fork(pick % 3 + 1)
            children = [(child, Model(model)) for child in group]
            self.forks.append((group, model, children))
            self.live.extend(children)
        elif kind == "check":
            assert state.text() == model.text
        else:
            self.join(kind, pick)

    def join(self, kind: str, pick: int) -> None:
        models = [model for _, model in self.live]
        ready = [fork for fork in self.forks if fork[1] in models and all(pair in self.live for pair in fork[2])]
        if not ready:
            return
        group, parent, children = fork = ready[pick % len(ready)]
        self.forks.remove(fork)
        self.live = [pair for pair in self.live if pair not in children]
        if kind == "concat":
            group.join("concate_and_append")
            parent.text += "".join(model.text[model.start :] for _, model in children)
            return
        group.join()
        for name in {name for _, model in children for name in model.own}:
            before = parent.variables.get(name)
            kept = before if isinstance(before, list) else []
            parent.bind(name, kept + [model.variables[name] for _, model in children if name in model.own])


@given(STEPS)
def test_texts_and_names_are_those_of_the_model(steps: list[tuple[str, int]]) -> None:
    @function
    def program(s: ProgramState) -> Run:
        run = Run(s)
        for kind, pick in steps:
            run.step(kind, pick)
        return run

    backend = ScriptedBackend(lambda call: f"<{len(call.prompt)}>")
    state = program.run(backend=backend)
    for branch, model in state.ret_value.live:
        assert branch.text() == model.text
        assert {name: branch[name] for name in model.variables} == model.variables
    backend.shutdown()
