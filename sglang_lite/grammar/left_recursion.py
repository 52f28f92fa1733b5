"""Finds rules that enter themselves again before a byte is read, which would make stacks without end; knows states, not syntax."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from sglang_lite.grammar.errors import UnsupportedGrammarError
from sglang_lite.grammar.rules import components

Borders = Mapping[str, tuple[int, int]]


class States(Protocol):
    """What is asked of the automaton."""

    def resolved(self, state: int, /) -> int:
        """The state that `state` stands for."""
        ...

    def empty(self, state: int, /) -> list[int]:
        """States reached without a byte."""
        ...

    def refs(self, state: int, borders: Borders, /) -> list[tuple[str, int]]:
        """References and the states to return to; -1 where only the end of the rule follows."""
        ...


def refuse_left_recursion(states: States, borders: Borders) -> None:
    """Raise if a rule of `borders` (first and last state) comes back to itself without a byte, its own end aside.

    A rule that returns to itself as the last thing it does needs no stack and is no fault.

    Raises:
        UnsupportedGrammarError: naming the rules of the circle.
    """
    nullable: set[str] = set()
    entered = {name: _entered_first(states, borders, name, nullable) for name in borders}
    while more := {name for name, (_, ends) in entered.items() if ends} - nullable:
        nullable |= more
        entered = {name: _entered_first(states, borders, name, nullable) for name in borders}
    edges = {name: {inner for inner, _ in first} for name, (first, _) in entered.items()}
    for group in components(edges):
        members = set(group)
        if any(inner in members and not last for name in group for inner, last in entered[name][0]):
            circle = " -> ".join([*group[::-1], group[-1]])
            raise UnsupportedGrammarError(
                f"building a grammar: left recursion ({circle}): a rule begins with itself before any character is read; "
                "write it as a repetition"
            )


def _entered_first(
    states: States, borders: Borders, name: str, nullable: set[str]
) -> tuple[set[tuple[str, bool]], bool]:
    """The rules that `name` enters before a byte (each with whether it is the last thing done), and whether its end is reached so."""
    entry, end = borders[name]
    end = states.resolved(end)
    found: set[tuple[str, bool]] = set()
    seen: set[int] = set()
    waiting = [states.resolved(entry)]
    ends = False
    while waiting:
        state = waiting.pop()
        if state in seen:
            continue
        seen.add(state)
        ends |= state == end
        waiting += states.empty(state)
        for inner, behind in states.refs(state, borders):
            found.add((inner, behind < 0))
            if inner in nullable:
                waiting.append(behind if behind >= 0 else end)
    return found, ends
