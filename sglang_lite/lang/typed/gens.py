"""The expression of a gen that gives a value, or that is tried again until its text is good; pure data."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar, cast

from sglang_lite.errors import RequestError
from sglang_lite.lang.ir import SglGen
from sglang_lite.lang.typed.spec import Typed

T = TypeVar("T")

RETRY_TEXT = "{text}\nThis is not valid: {error}\nOnce more: "
"""What `retry_text=True` stands for."""


@dataclass(frozen=True, slots=True)
class Retries:
    """How often a gen is tried again, and how.

    `text`: appended before a further try, with `{error}` and `{text}` (the rejected one) put in; a `{text}` at its very
    beginning stays as it was generated. None: the same prompt with another seed.
    """

    count: int = 0
    text: str | None = None

    @property
    def keeps_rejected(self) -> bool:
        """True where the rejected text stays in front of the next try."""
        return self.text is not None and self.text.startswith("{text}")

    def text_after(self, rejected: str, error: str) -> str:
        """What is appended after a try that was rejected."""
        values = {"{text}": rejected, "{error}": error}
        return re.sub(r"\{(?:text|error)\}", lambda found: values[found[0]], (self.text or "").removeprefix("{text}"))


@dataclass(frozen=True, slots=True, eq=False)
class SglTypedGen(SglGen, Generic[T]):
    """A gen whose value is a `T`: `s[gen]` reads it with that static type. `described`: text in front of it."""

    typed: Typed | None = None
    retries: Retries = field(default_factory=Retries)
    described: str = ""


def as_typed(gen: SglGen) -> SglTypedGen[Any] | None:
    """`gen`, if it is one that is judged."""
    return cast("SglTypedGen[Any]", gen) if isinstance(gen, SglTypedGen) else None


def read_retries(retries: int | None, retry_text: str | bool | None, temperature: float | None) -> Retries:
    """The retries that the arguments of a gen ask for.

    Raises:
        RequestError: no whole number >= 0; a text without retries; temperature 0 without a text, where every try is
            the same.
    """
    count = 0 if retries is None else retries
    if type(count) is not int or count < 0:
        raise RequestError(f"making a gen: got retries={retries!r}, expected a whole number >= 0")
    text = RETRY_TEXT if retry_text is True else retry_text or None
    if text is not None and count == 0:
        raise RequestError(f"making a gen: got retry_text={retry_text!r} without retries; say how often: retries=2")
    if temperature == 0:
        check_can_differ(Retries(count, text), is_greedy=True)
    return Retries(count, text)


def check_can_differ(retries: Retries, *, is_greedy: bool) -> None:
    """Refuse tries that would all be the same.

    Raises:
        RequestError: says what to change.
    """
    if retries.count and retries.text is None and is_greedy:
        raise RequestError(
            "making a gen with retries: at temperature 0 every try is the same; give a retry_text (True: the default "
            "one), or a temperature"
        )
