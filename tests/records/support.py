"""A recorded run that has some of everything, and small reads of its JSON form."""

from __future__ import annotations

from typing import Any

from sglang_lite.lang import ProgramState, RunOptions, ScriptedBackend, function, gen, select, system, user
from sglang_lite.records.record import RunRecord

REPLIES: dict[str, Any] = {"topic": "<b>tea</b> & more", "idea": ["one", "two three"], "pick": "b", "last": "the end"}


@function
def inner(s: ProgramState) -> None:
    s += "Inside: " + gen("deep")


@function
def outline(s: ProgramState, question: str = "Why?") -> None:
    s += system("Be short.")
    s += user(question)
    s += "Topic: " + gen("topic", stop="\n")
    branches = s.fork(2)
    for number, branch in enumerate(branches):
        branch += f"\nIdea {number}: " + gen("idea")
    branches.join()
    s += "\nBest: " + select("pick", ["a", "b"])
    s += gen("last", max_tokens=5)


def recorded(question: str = "Why?") -> RunRecord:
    return outline.run(
        question=question, backend=ScriptedBackend(REPLIES), options=RunOptions(record=True, seed=7)
    ).record()


def named_ops(data: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The entries of gens and selects of a record's JSON form, by name."""
    return {entry["op"]["name"]: entry for entry in data["ops"] if entry["op"].get("name")}
