"""Workloads of programs beyond the seven: agents, chats, judges, votes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import sglang_lite as sgl
from benchmarks.texts import passage
from benchmarks.workloads.programs import ProgramWorkload

_ASPECTS = ("Clarity", "Depth", "Style", "Truth")


def _gen(name: str, tokens: int) -> Any:
    return sgl.gen(name, max_tokens=tokens, temperature=0.0, ignore_eos=True)


@sgl.function(lazy=True)
def react(s: sgl.ProgramState, head: str, question: str, steps: int, tokens: int) -> None:
    """Thought, action and a given observation, step by step."""
    s += head + "Question: " + question + "\n"
    for step in range(steps):
        s += f"Thought {step}:" + _gen(f"thought{step}", tokens)
        s += f"\nAction {step}:" + sgl.select(f"action{step}", [" search", " lookup", " finish"])
        s += f"\nObservation {step}: {passage((question, step), 2)}\n"
    s += "Answer:" + _gen("answer", 12)


@sgl.function(lazy=True)
def chat(s: sgl.ProgramState, head: str, question: str, steps: int, tokens: int) -> None:
    """Turns of a user, each with a short reply."""
    s += head
    for step in range(steps):
        s += f"User: {question} {passage((question, step), 2)}\nAssistant:" + _gen(f"reply{step}", tokens) + "\n"


@sgl.function(lazy=True)
def judge(s: sgl.ProgramState, head: str, question: str, steps: int, tokens: int) -> None:
    """An essay, judged on aspects side by side, then a grade over what was said."""
    s += head + "Essay: " + passage((question, "essay"), 16) + "\n"
    forks = s.fork(steps)
    for fork, aspect in zip(forks, _ASPECTS, strict=False):
        fork += aspect + ", judged in one sentence:" + _gen("verdict", tokens)
    forks.join()
    for verdict in s["verdict"]:
        s += verdict + "\n"
    s += "Grade:" + sgl.select("grade", [" A", " B", " C", " D"])


@sgl.function(lazy=True)
def self_consistency(s: sgl.ProgramState, head: str, question: str, steps: int, tokens: int) -> None:
    """Several ways from one problem, each with an answer, and a vote."""
    s += head + "Problem: " + question + " " + passage((question, "problem"), 8) + "\n"
    ways = s.fork(steps)
    for number, way in enumerate(ways):
        way += f"Way {number}:" + _gen("way", tokens) + "\nSo the answer is" + _gen("answer", 4)
    ways.join()
    for answer in s["answer"]:
        s += "One says" + answer + ".\n"
    s += "Most say" + sgl.select("most", [" yes", " no"])


@sgl.function(lazy=True)
def townsfolk(s: sgl.ProgramState, head: str, question: str, steps: int, tokens: int) -> None:
    """An agent of a simulated town: what it remembers, and small decisions on it."""
    s += head + f"{question} remembers: {passage((question, 'memory'), 6)}\n"
    for step in range(steps):
        s += f"Hour {step}: {passage((question, step), 1)} Is this important?"
        s += sgl.select(f"important{step}", [" yes", " no"]) + "\nPlan:" + _gen(f"plan{step}", tokens) + "\n"


@dataclass(frozen=True)
class AgentWorkload(ProgramWorkload):
    """Programs a second: `programs` of them at once, of `steps` steps (turns, branches), after a common head.

    `tokens`: of most gens.
    """

    unit: ClassVar[str] = "programs/s"
    limit_s: ClassVar[float] = 120.0
    program: ClassVar[Any]

    programs: int = 8
    steps: int = 4
    head: int = 16
    tokens: int = 24

    def small(self) -> Self:
        """Two programs."""
        return replace(self, programs=2)

    def tiny(self) -> Self:
        """One program of two steps."""
        return replace(self, programs=1, steps=2, head=1, tokens=2)

    @property
    def function(self) -> Any:
        """The program."""
        return self.program

    @property
    def amount(self) -> float:
        """Programs."""
        return self.programs

    def rows(self, seed: int) -> list[dict[str, Any]]:
        """One for each program."""
        head = f"Handbook {seed}. {passage((self.code, seed), self.head)}\n\n"
        sizes = {"steps": self.steps, "tokens": self.tokens}
        return [{"head": head, "question": f"Number {n} of {seed}:"} | sizes for n in range(self.programs)]


class ReAct(AgentWorkload):
    """Agents that reason and act."""

    code: ClassVar[str] = "react"
    title: ClassVar[str] = "ReAct agents"
    program: ClassVar[Any] = react


class Chat(AgentWorkload):
    """Chats of several turns."""

    code: ClassVar[str] = "chat"
    title: ClassVar[str] = "multi-turn chats"
    program: ClassVar[Any] = chat


class Judge(AgentWorkload):
    """Judges of essays."""

    code: ClassVar[str] = "judge"
    title: ClassVar[str] = "judges of essays"
    program: ClassVar[Any] = judge


class SelfConsistency(AgentWorkload):
    """Votes over several answers."""

    code: ClassVar[str] = "consistency"
    title: ClassVar[str] = "self-consistency"
    program: ClassVar[Any] = self_consistency


class Townsfolk(AgentWorkload):
    """Generative agents."""

    code: ClassVar[str] = "town"
    title: ClassVar[str] = "generative agents"
    program: ClassVar[Any] = townsfolk
