"""Five programs of fixed shape with small data, for measurements: they depend on no model's taste.

All gens run to their limit, so the numbers of tokens are the same for whoever runs them. Siblings get their instruction in
equal words where a program would be written so, and draw different continuations.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import sglang_lite as sgl

_SENTENCES = (
    "The harbour was empty when the last boat came in.",
    "Nobody had seen the old keeper since the first snow.",
    "A bridge of rope crossed the gorge above the mill.",
    "Prices rose in spring and fell again after the harvest.",
    "The committee met twice and agreed on nothing.",
    "Her report was short, but every number in it was right.",
    "Rain had washed the names off the wooden signs.",
    "The new engine needed less oil and made more noise.",
    "They counted forty herons along the lower river.",
    "A letter from the capital lay unopened on the desk.",
    "The school bell rang an hour late all week.",
    "Most of the seed had been eaten by mice.",
    "He repaired clocks that nobody would ever wind again.",
    "The map showed a village where there was only sand.",
    "Two of the three witnesses remembered a red coat.",
    "The soup was thin, and there was plenty of it.",
)
_LABELS = (" weather", " trade", " people", " machines")


def _text(seed: str, sentences: int) -> str:
    return " ".join(random.Random(seed).choices(_SENTENCES, k=sentences))


def _gen(name: str, tokens: int, temperature: float = 0.0) -> Any:
    return sgl.gen(name, max_tokens=tokens, temperature=temperature, ignore_eos=True)


@sgl.function(lazy=True)
def few_shot_select(s: sgl.ProgramState, text: str) -> None:
    """Examples that all rows share, then one text, and its label by `select`."""
    for number in range(8):
        s += f"Text: {_text(f'example {number}', 2)}\nAbout:{_LABELS[number % len(_LABELS)]}\n\n"
    s += "Text: " + text + "\nAbout:" + sgl.select("label", list(_LABELS))


@sgl.function(lazy=True)
def tree_of_thought(s: sgl.ProgramState, task: str) -> None:
    """Three thoughts, two ways on from each, and a verdict on every leaf."""
    s += task + "\nThink about this task step by step.\n"
    for thought in s.fork(3):
        thought += (
            "Propose a plan. It names the facts that the task gives, the order in which they are used, and what "
            "is still to be found out. Do not solve the task yet.\nPlan:"
        )
        thought += _gen("thought", 20, temperature=0.7)
        for way in thought.fork(2):
            way += (
                "\nCarry the plan out: follow it line by line, write down every result with its unit, and stop "
                "where the plan does not say how to go on.\nResult:"
            )
            way += _gen("step", 20, temperature=0.7)
            way += "\nLook at the plan and at the result once more. Taken together, this is"
            way += sgl.select("verdict", [" good", " bad", " unclear"])


@sgl.function(lazy=True)
def judge(s: sgl.ProgramState, essay: str) -> None:
    """An essay, judged on four aspects side by side, then a sum and a grade."""
    s += "Read this essay.\n" + essay + "\n"
    aspects = ("clarity", "depth", "style", "truth")
    forks = s.fork(len(aspects))
    for fork, aspect in zip(forks, aspects, strict=True):
        fork += f"Judge the {aspect} of the essay in one sentence:"
        fork += _gen("verdict", 24)
    forks.join()
    for aspect, verdict in zip(aspects, s["verdict"], strict=True):
        s += f"On {aspect}:" + verdict + "\n"
    s += "In sum:" + _gen("sum", 16)
    s += "\nGrade:" + sgl.select("grade", [" A", " B", " C", " D"])


@sgl.function(lazy=True)
def skeleton_of_thought(s: sgl.ProgramState, question: str) -> None:
    """A skeleton of three points, each expanded on a branch of its own, and a last word."""
    s += "Answer in three points.\nQuestion: " + question + "\n"
    points: list[Any] = []
    for number in range(3):
        s += f"{number + 1}." + _gen(f"point{number}", 8) + "\n"
        points.append(s[f"point{number}"])
    forks = s.fork(3)
    for number, fork in enumerate(forks):
        fork += f"Write point {number + 1} in full:" + points[number] + "\n"
        fork += _gen("body", 24)
    forks.join()
    for body in s["body"]:
        s += body + "\n"
    s += "To end:" + _gen("end", 16)


@sgl.function(lazy=True)
def multi_chain_vote(s: sgl.ProgramState, problem: str) -> None:
    """Five chains from one problem, each with an answer, and a vote over them."""
    s += "Solve the problem.\nProblem: " + problem + "\n"
    chains = s.fork(5)
    for chain in chains:
        chain += "Think step by step:"
        chain += _gen("way", 24, temperature=0.7)
        chain += "\nSo the answer is"
        chain += _gen("answer", 4)
    chains.join()
    for answer in s["answer"]:
        s += "One says" + answer + ".\n"
    s += "Most say" + sgl.select("most", [" yes", " no"])


@dataclass(frozen=True)
class Workload:
    """A program with its rows. `is_bounded`: the tokens computed are held against the optimum with a small pool."""

    function: Any
    rows: Sequence[dict[str, str]]
    is_bounded: bool = False

    @property
    def name(self) -> str:
        """Of the program."""
        return self.function.__name__


def workloads(scale: float = 1.0) -> list[Workload]:
    """All five; `scale` multiplies the number of rows."""

    def rows(count: int, name: str, make: Callable[[int], str]) -> list[dict[str, str]]:
        return [{name: make(number)} for number in range(max(round(count * scale), 2))]

    return [
        Workload(few_shot_select, rows(24, "text", lambda i: _text(f"text {i}", 3)), True),
        Workload(tree_of_thought, rows(6, "task", lambda i: f"Task {i + 1}. " + _text(f"task {i}", 8)), True),
        Workload(judge, rows(6, "essay", lambda i: _text(f"essay {i}", 16)), True),
        Workload(skeleton_of_thought, rows(6, "question", lambda i: _text(f"question {i}", 4))),
        Workload(multi_chain_vote, rows(6, "problem", lambda i: _text(f"problem {i}", 8))),
    ]
