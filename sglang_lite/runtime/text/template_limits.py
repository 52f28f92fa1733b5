"""Limits of one template rendering and the counter that holds them; knows nothing of Jinja's syntax."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from jinja2.exceptions import SecurityError
from jinja2.utils import Namespace

_WIDE_PERCENT = re.compile(r"%[^a-zA-Z%]*(?:\d{5}|\*)")


@dataclass(frozen=True, slots=True)
class RenderLimits:
    """Bounds of one rendering, far above what any honest template needs.

    Attributes:
        chars: characters of any one text and of all output together, captured blocks included.
        nodes: values in any one list or dict, nested ones counted each time they appear.
        steps: loop iterations, calls, filters and outputs.
        cpu_seconds: CPU time of the rendering thread.
        source_chars: length of the template itself.
    """

    chars: int = 8_000_000
    nodes: int = 200_000
    steps: int = 1_000_000
    cpu_seconds: float = 1.0
    source_chars: int = 200_000


class RenderBudget:
    """What one rendering has used; raises where a limit is crossed."""

    __slots__ = ("_deadline", "_limits", "_output", "_steps")

    def __init__(self, limits: RenderLimits) -> None:
        self._limits = limits
        self._steps = 0
        self._output = 0
        self._deadline = time.thread_time() + limits.cpu_seconds

    def step(self) -> None:
        """Count one step."""
        self._steps += 1
        if self._steps > self._limits.steps:
            raise SecurityError(f"the template takes more than {self._limits.steps} steps")
        if self._steps % 16 == 0 and time.thread_time() > self._deadline:
            raise SecurityError(f"the template takes more than {self._limits.cpu_seconds:g} s")

    def emit(self, text: str) -> None:
        """Count output."""
        self._output += len(text)
        self.check_chars(self._output)

    def check_chars(self, count: int) -> None:
        """Refuse a text of `count` characters that is too long; called before it is made."""
        if count > self._limits.chars:
            raise SecurityError(f"the template makes more than {self._limits.chars} characters of text")

    def check_value(self, value: Any) -> Any:
        """`value` itself, if neither it nor what it holds is too large."""
        if isinstance(value, str):
            self.check_chars(len(value))
        elif isinstance(value, int):
            if value.bit_length() > 10_000:
                raise SecurityError("the template makes a number of more than 10000 bits")
        elif isinstance(value, (list, tuple, dict, set, frozenset, Namespace)):
            self._check_nested(value)
        return value

    def text(self, value: Any) -> str:
        """`str(value)` of a bounded value."""
        if isinstance(value, str):
            return value
        return str(self.check_value(value))

    def _check_nested(self, value: Any) -> None:
        count = chars = 0
        waiting = [value]
        while waiting:
            item = waiting.pop()
            count += 1
            if count > self._limits.nodes:
                raise SecurityError(f"the template makes a value of more than {self._limits.nodes} parts")
            if isinstance(item, str):
                chars += len(item)
                self.check_chars(chars)
            elif isinstance(item, Mapping):
                waiting.extend(item)  # pyright: ignore[reportUnknownArgumentType]
                waiting.extend(item.values())  # pyright: ignore[reportUnknownArgumentType]
            elif isinstance(item, (list, tuple, set, frozenset)):
                waiting.extend(item)  # pyright: ignore[reportUnknownArgumentType]
            elif isinstance(item, Namespace):
                waiting.append(object.__getattribute__(item, "_Namespace__attrs"))


current_budget: ContextVar[RenderBudget] = ContextVar("rendercurrent_budget")


def check_replace(budget: RenderBudget, text: str, old: str, new: str) -> None:
    """Refuse a replacement whose result would be too long."""
    if isinstance(old, str) and isinstance(new, str):
        budget.check_chars(len(text) + text.count(old) * len(new))


def check_percent(budget: RenderBudget, text: str, values: Iterable[Any]) -> None:
    """Refuse `text % values` where its result could be too long."""
    if _WIDE_PERCENT.search(text):
        raise SecurityError(f"the template formats with a width that is not allowed: {text[:80]!r}")
    longest = max((len(budget.text(value)) for value in values), default=0)
    budget.check_chars(len(text) + text.count("%") * longest)
