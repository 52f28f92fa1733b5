"""What a name of a state stands for: a value, known now or later; reading waits for just that."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, Self

from sglang_lite.lang.futures import OpFuture


class Value(Protocol):
    """The meaning of a name."""

    def get(self) -> Any:
        """Wait for the value; raises the error of the op that it needs."""
        ...

    def text(self) -> Any:
        """Wait for the text, where the value is not the text itself; a list of them as `get`."""
        ...

    def meta(self) -> Any:
        """Wait for what the backend reported about it; None where there is nothing to report."""
        ...

    def ops(self) -> list[OpFuture]:
        """The ops that it needs."""
        ...


class PlainValue:
    """A value that the program set itself."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def get(self) -> Any:
        """The value."""
        return self._value

    def text(self) -> Any:
        """The value, if it is a text; else its `str`."""
        return self._value if isinstance(self._value, str) else str(self._value)

    def meta(self) -> Any:
        """Nothing."""
        return None

    def ops(self) -> list[OpFuture]:
        """None."""
        return []


class OpValue:
    """The value of a gen or select."""

    def __init__(self, future: OpFuture) -> None:
        self.future = future

    def over(self, future: OpFuture) -> Self:
        """The same of another op."""
        mine = object.__new__(type(self))
        mine.__dict__.update(self.__dict__)
        mine.future = future
        return mine

    def get(self) -> Any:
        """Text, or what it means where the gen has a type; a list (as a copy) of these where the gen has `n > 1`."""
        value = self.future.result().value
        if self.future.attempts is not None:
            return self.future.attempts.value
        return list(value) if isinstance(value, list) else value

    def text(self) -> Any:
        """Text, or a list of texts where the gen has `n > 1`."""
        value = self.future.result().value
        return list(value) if isinstance(value, list) else value

    def meta(self) -> Any:
        """The op's `meta_info`."""
        return dict(self.future.result().meta)

    def ops(self) -> list[OpFuture]:
        """The one op."""
        return [self.future]


class ScopeValue:
    """The text that ops of a variable scope added."""

    def __init__(self, futures: Sequence[OpFuture]) -> None:
        self.futures = list(futures)

    def get(self) -> Any:
        """The text."""
        return "".join(future.result().text for future in self.futures)

    def text(self) -> Any:
        """The text."""
        return self.get()

    def meta(self) -> Any:
        """Nothing."""
        return None

    def ops(self) -> list[OpFuture]:
        """The ops of the scope."""
        return list(self.futures)


class GatherValue:
    """The values that fork children left under one name, in the order of joining."""

    def __init__(self, parts: Sequence[Value]) -> None:
        self.parts = tuple(parts)

    def get(self) -> Any:
        """The values as a list; the first failed one raises its error."""
        return [part.get() for part in self.parts]

    def text(self) -> Any:
        """The texts as a list."""
        return [part.text() for part in self.parts]

    def meta(self) -> Any:
        """What was reported about each."""
        return [part.meta() for part in self.parts]

    def ops(self) -> list[OpFuture]:
        """The ops of all parts."""
        return [future for part in self.parts for future in part.ops()]
