"""How model families mark their thinking, by the names that SGLang gives them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ThinkingFormat:
    """How a model family marks its thinking. `starts_inside`: its prompt opens the thinking, or it always thinks."""

    marks: tuple[str, str] = ("<think>", "</think>")
    starts_inside: bool = False

    def held_marks(self, budget: int | None) -> tuple[str, str]:
        """`SamplingParams.thinking`: the first mark is empty where the text begins within the thinking, open or not."""
        return ("", self.marks[1]) if self.starts_inside and budget != 0 else self.marks


THINKING_FORMATS: dict[str, ThinkingFormat] = {
    "deepseek-r1": ThinkingFormat(starts_inside=True),
    "deepseek-v3": ThinkingFormat(),
    "glm45": ThinkingFormat(),
    "interns1": ThinkingFormat(),
    "kimi": ThinkingFormat(("◁think▷", "◁/think▷")),
    "kimi_k2": ThinkingFormat(starts_inside=True),
    "minimax": ThinkingFormat(starts_inside=True),
    "nano_v3": ThinkingFormat(),
    "qwen3": ThinkingFormat(),
    "qwen3-thinking": ThinkingFormat(starts_inside=True),
    "step3": ThinkingFormat(starts_inside=True),
}
"""By SGLang's names of the model types."""

MARKS: tuple[tuple[str, str], ...] = (
    ("<think>", "</think>"),
    ("◁think▷", "◁/think▷"),
    ("<seed:think>", "</seed:think>"),
    ("<reasoning>", "</reasoning>"),
    ("[THINK]", "[/THINK]"),
)
"""Marks that are looked for in templates."""
