from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from sglang_lite.grammar.errors import UnsupportedGrammarError
from sglang_lite.grammar.left_recursion import refuse_left_recursion

BORDERS = {"a": (10, 19), "b": (20, 29), "c": (30, 39)}
NAMES = dict(zip(BORDERS, range(3), strict=True))


def drawn(empty: dict[int, list[int]], refs: dict[int, list[tuple[str, int]]]) -> Any:
    """An automaton as it is drawn; a reference that returns to 19, 29 or 39 is the last thing its rule does."""
    return SimpleNamespace(
        graph=SimpleNamespace(names=NAMES),
        live_rules=BORDERS,
        empty=np.array(
            [(source, 0, target) for source, targets in empty.items() for target in targets], np.int32
        ).reshape(-1, 3),
        refs=np.array(
            [(source, NAMES[name], target) for source, found in refs.items() for name, target in found], np.int32
        ).reshape(-1, 3),
        bare_ends=np.arange(40) % 10 == 9,
    )


def test_a_circle_of_tail_calls_is_no_fault() -> None:
    refuse_left_recursion(drawn({}, {10: [("b", 19)], 20: [("a", 29)]}))


def test_a_call_behind_a_byte_is_no_fault() -> None:
    refuse_left_recursion(drawn({10: [11]}, {12: [("a", 13)], 11: [("b", 12)]}))


@pytest.mark.parametrize(
    ("empty", "refs", "names"),
    [
        ({}, {10: [("a", 11)]}, "a -> a"),
        ({10: [11]}, {11: [("b", 12)], 20: [("a", 29)]}, r"(a -> b -> a|b -> a -> b)"),
        ({30: [39]}, {10: [("c", 11)], 11: [("a", 12)]}, "a -> a"),
        ({}, {10: [("b", 11)], 20: [("c", 29)], 30: [("b", 31)]}, r"(b -> c -> b|c -> b -> c)"),
    ],
    ids=["at once", "through another", "behind a rule that may be empty", "below another"],
)
def test_a_circle_with_something_left_to_do_is_refused(
    empty: dict[int, list[int]], refs: dict[int, list[tuple[str, int]]], names: str
) -> None:
    with pytest.raises(UnsupportedGrammarError, match=rf"left recursion \({names}\)"):
        refuse_left_recursion(drawn(empty, refs))
