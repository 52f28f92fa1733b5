"""Finds rules that enter themselves again before a byte is read, which would make stacks without end; knows states, not syntax."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from sglang_lite.grammar.errors import UnsupportedGrammarError
from sglang_lite.grammar.rules import components
from sglang_lite.grammar.trimming import Trimmed


def refuse_left_recursion(trimmed: Trimmed) -> None:
    """Raise if a rule comes back to itself without a byte, its own end aside.

    A rule that returns to itself as the last thing it does needs no stack and is no fault.

    Raises:
        UnsupportedGrammarError: naming the rules of the circle.
    """
    search = _Search(trimmed)
    nullable: set[str] = set()
    entered = {name: search.entered_first(name, nullable) for name in trimmed.live_rules}
    while more := {name for name, (_, ends) in entered.items() if ends} - nullable:
        nullable |= more
        entered = {name: search.entered_first(name, nullable) for name in trimmed.live_rules}
    edges = {name: {inner for inner, _ in first} for name, (first, _) in entered.items()}
    for group in components(edges):
        members = set(group)
        if any(inner in members and not last for name in group for inner, last in entered[name][0]):
            circle = " -> ".join([*group[::-1], group[-1]])
            raise UnsupportedGrammarError(
                f"building a grammar: left recursion ({circle}): a rule begins with itself before any character is read; "
                "write it as a repetition"
            )


class _Search:
    """What can be reached in an automaton without a byte."""

    def __init__(self, trimmed: Trimmed) -> None:
        self._rules = trimmed.live_rules
        names = list(trimmed.graph.names)
        empty = trimmed.empty[np.argsort(trimmed.empty[:, 0], kind="stable")]
        self._sources, self._targets = empty[:, 0], empty[:, 2]
        self._refs: dict[int, list[tuple[str, int, bool]]] = defaultdict(list)
        for source, index, target in trimmed.refs.tolist():
            self._refs[source].append((names[index], target, bool(trimmed.bare_ends[target])))

    def _empty(self, state: int) -> list[int]:
        begin, end = np.searchsorted(self._sources, [state, state + 1])
        return self._targets[begin:end].tolist()

    def entered_first(self, name: str, nullable: set[str]) -> tuple[set[tuple[str, bool]], bool]:
        """The rules that `name` enters before a byte (each with whether it is the last thing done), and whether its end is reached so."""
        entry, end = self._rules[name]
        found: set[tuple[str, bool]] = set()
        seen: set[int] = set()
        waiting = [entry]
        ends = False
        while waiting:
            state = waiting.pop()
            if state in seen:
                continue
            seen.add(state)
            ends |= state == end
            waiting += self._empty(state)
            for inner, behind, last in self._refs.get(state, ()):
                found.add((inner, last))
                if inner in nullable:
                    waiting.append(behind)
        return found, ends
