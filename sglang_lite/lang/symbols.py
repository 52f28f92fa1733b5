"""Text that is not known yet, as an expression: it can be appended, and nothing else; it knows no state."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from sglang_lite.errors import ProgramError
from sglang_lite.lang.ir import SglExpr


class UnknownValueError(ProgramError, TypeError):
    """A program asked something of a value that is not known yet."""


unknown_value_error: ContextVar[type[BaseException]] = ContextVar(
    "sglang_lite_unknown_value_error", default=UnknownValueError
)
"""What is raised on such a question: a tracer puts in an error of its own, which no `except Exception` swallows."""


class SglSymbol(SglExpr):
    """A text that is not known yet. Appending it and joining it by `+` is all that can be done with it."""

    def shown(self) -> str:
        """The symbol in words, for messages and printed trees."""
        return type(self).__name__

    def _refuse(self, what: str) -> NoReturn:
        raise unknown_value_error.get()(
            f"{what} {self.shown()}: it is not known yet; append it, or join it by +, and read s[name] for the text"
        )

    def __bool__(self) -> bool:
        self._refuse("branching on")

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        self._refuse("comparing")

    def __hash__(self) -> int:
        self._refuse("looking up")

    def __lt__(self, other: object) -> bool:
        self._refuse("comparing")

    __le__ = __gt__ = __ge__ = __lt__

    def __len__(self) -> int:
        self._refuse("measuring")

    def __iter__(self) -> Any:
        self._refuse("iterating")

    def __contains__(self, item: object) -> bool:
        self._refuse("searching in")

    def __getitem__(self, key: object) -> Any:
        self._refuse("taking a part of")

    def __str__(self) -> str:
        self._refuse("formatting")

    def __format__(self, spec: str) -> str:
        self._refuse("formatting")

    def __int__(self) -> int:
        self._refuse("converting")

    def __float__(self) -> float:
        self._refuse("converting")

    def __index__(self) -> int:
        self._refuse("converting")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        self._refuse(f"calling .{name} of")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class SglArgument(SglSymbol):
    """An argument that a traced run was not given, or another value from outside of the tree."""

    name: str
    value: Any = None

    def shown(self) -> str:
        """By its name."""
        return f"the argument {self.name!r}"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class SglRef(SglSymbol):
    """The text of an op of this program. `session` says of which; `marks` and `starts_inside` as in `RefOp`."""

    session: object
    target: int
    name: str | None = None
    marks: tuple[str, str] | None = None
    starts_inside: bool = False

    def shown(self) -> str:
        """By the name of the value."""
        return f"the value {self.name!r}" if self.name else "a value without a name"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class SglTextOf(SglSymbol):
    """A text made of parts, some of which are not known yet."""

    parts: list[SglExpr] = field(default_factory=list[SglExpr])
    what: str = "a text"

    def shown(self) -> str:
        """As what it was asked for."""
        return self.what


_HERE = Path(__file__).parent


def caller_place() -> str:
    """File and line of the innermost frame outside the language: the place in a program's body that asks."""
    frame = inspect.currentframe()
    while frame is not None and Path(frame.f_code.co_filename).parent == _HERE:
        frame = frame.f_back
    return "an unknown place" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"


class SglLazyValue(SglSymbol):
    """A value of a lazy run: appended and joined without waiting; asked for anything else it is waited for.

    Args:
        expr: what is appended in its place.
        read: waits for the value.
        note: told what the value was needed for, before the wait.
    """

    __slots__ = ("_name", "_note", "expr", "read")

    def __init__(self, name: str, expr: SglExpr, read: Callable[[], Any], note: Callable[[str], None]) -> None:
        self._name = name
        self.expr = expr
        self.read = read
        self._note = note

    def shown(self) -> str:
        """By the name of the value."""
        return f"the value {self._name!r}"

    def value(self, what: str = "reading") -> Any:
        """Wait for the value."""
        self._note(f"{what} {self.shown()}")
        return self.read()

    def __bool__(self) -> bool:
        return bool(self.value("branching on"))

    def __eq__(self, other: object) -> bool:
        return self is other or self.value("comparing") == _known(other)

    def __hash__(self) -> int:
        return hash(self.value("looking up"))

    def __lt__(self, other: Any) -> bool:
        return self.value("comparing") < _known(other)

    def __le__(self, other: Any) -> bool:
        return self.value("comparing") <= _known(other)

    def __gt__(self, other: Any) -> bool:
        return self.value("comparing") > _known(other)

    def __ge__(self, other: Any) -> bool:
        return self.value("comparing") >= _known(other)

    def __len__(self) -> int:
        return len(self.value("measuring"))

    def __iter__(self) -> Iterator[Any]:
        return iter(self.value("iterating"))

    def __contains__(self, item: object) -> bool:
        return _known(item) in self.value("searching in")

    def __getitem__(self, key: Any) -> Any:
        return self.value("taking a part of")[key]

    def __str__(self) -> str:
        return str(self.value("formatting"))

    def __format__(self, spec: str) -> str:
        return format(self.value("formatting"), spec)

    def __int__(self) -> int:
        return int(self.value("converting"))

    def __float__(self) -> float:
        return float(self.value("converting"))

    def __index__(self) -> int:
        return self.value("converting").__index__()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.value(f"calling .{name} of"), name)

    def __repr__(self) -> str:
        return f"SglLazyValue({self._name!r})"


def _known(other: object) -> Any:
    return other.value("comparing") if isinstance(other, SglLazyValue) else other
