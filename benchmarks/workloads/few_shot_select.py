"""W5: many texts are labelled by `select` after the same examples."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import sglang_lite as sgl
from benchmarks.texts import passage
from benchmarks.workload import Q4_0, Q4_1
from benchmarks.workloads.programs import ProgramWorkload

_LABELS = (" nature", " work", " money", " travel")


@sgl.function(lazy=True)
def label(s: sgl.ProgramState, examples: str, text: str) -> None:
    """Examples, a text, and the choice of its label."""
    s += examples + "Text: " + text + "\nAbout:" + sgl.select("label", list(_LABELS))


@dataclass(frozen=True)
class FewShotSelect(ProgramWorkload):
    """Texts labelled a second. `examples` of two sentences come to some 400 tokens, a text of one to 24 with its frame."""

    code: ClassVar[str] = "W5"
    title: ClassVar[str] = "few-shot select"
    unit: ClassVar[str] = "selects/s"
    limit_s: ClassVar[float] = 110.0
    goals: ClassVar[Mapping[str, tuple[float, float]]] = {Q4_1: (2.5, 6.0), Q4_0: (2.5, 6.0)}

    texts: int = 64
    examples: int = 11

    def small(self) -> Self:
        """A quarter of the texts."""
        return replace(self, texts=16)

    def tiny(self) -> Self:
        """Three texts after two examples."""
        return replace(self, texts=3, examples=2)

    @property
    def function(self) -> Any:
        """One label."""
        return label

    @property
    def amount(self) -> float:
        """Labels."""
        return self.texts

    def rows(self, seed: int) -> list[dict[str, Any]]:
        """One for each text; the examples are the same in all."""
        shots = "".join(
            f"Text: {passage((self.code, seed, number), 2)}\nAbout:{_LABELS[number % len(_LABELS)]}\n\n"
            for number in range(self.examples)
        )
        head = f"Collection {seed}. Each text is about one thing.\n\n" + shots
        return [
            {"examples": head, "text": f"({number}) {passage((self.code, seed, 'text', number), 1)}"}
            for number in range(self.texts)
        ]
