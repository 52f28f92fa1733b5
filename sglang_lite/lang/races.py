"""Names that a race of fork children leaves, and its result; who wins is the backend's word."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sglang_lite.errors import ProgramError
from sglang_lite.lang.futures import OpFuture
from sglang_lite.lang.session import Session
from sglang_lite.lang.symbols import SglArgument
from sglang_lite.lang.values import Value


class RaceValue:
    """What the winners left under one name, in the order of winning.

    Args:
        join: the op that decides the race.
        parts: the value of each child that bound the name, by the child's index.
    """

    def __init__(self, join: OpFuture, parts: Mapping[int, Value]) -> None:
        self.join = join
        self._by_child = dict(parts)

    def won(self) -> list[Value]:
        """Wait for the race; the values of the winners."""
        winners: list[int] = self.join.result().meta["winners"]
        return [self._by_child[index] for index in winners if index in self._by_child]

    def get(self) -> Any:
        """The values as a list."""
        return [value.get() for value in self.won()]

    def text(self) -> Any:
        """Their texts."""
        return [value.text() for value in self.won()]

    def meta(self) -> Any:
        """What was reported about each."""
        return [value.meta() for value in self.won()]

    def ops(self) -> list[OpFuture]:
        """The join, and once it is decided the ops of what it left."""
        if self.join.done is None:
            return [self.join]
        return [self.join, *(future for value in self.won() for future in value.ops())]


class VoteValue(RaceValue):
    """The value that won a vote, as the first child that gave it has it."""

    def won(self) -> list[Value]:
        """Wait for the vote; the one value."""
        return super().won()[:1]

    def get(self) -> Any:
        """The value."""
        return self.won()[0].get()

    def text(self) -> Any:
        """Its text."""
        return self.won()[0].text()

    def meta(self) -> Any:
        """What was reported about it."""
        return self.won()[0].meta()


class ListsValue:
    """What several joins left under one name, where one of them was a race: their lists, one after the other."""

    def __init__(self, *lists: Value) -> None:
        self.lists = lists

    def get(self) -> Any:
        """The values as a list."""
        return [item for value in self.lists for item in value.get()]

    def text(self) -> Any:
        """Their texts."""
        return [item for value in self.lists for item in value.text()]

    def meta(self) -> Any:
        """What was reported about each."""
        return [item for value in self.lists for item in value.meta()]

    def ops(self) -> list[OpFuture]:
        """The ops of all."""
        return [future for value in self.lists for future in value.ops()]


class JoinResult:
    """Who won a `join` with `first` or `vote`; nothing is waited for before it is asked."""

    def __init__(self, session: Session, join: OpFuture) -> None:
        self._session = session
        self._join = join

    @property
    def winners(self) -> Any:
        """Wait for the race; the indices of the winning states, in the order of finishing (at once: by index).

        Raises:
            Exception: too few could win, or the program failed.
            ProgramError: it was not awaited in an `async def` body.
        """
        return list(self._result().meta["winners"]) if not self._session.is_traced else self._unknown("winners")

    @property
    def value(self) -> Any:
        """Wait for the vote; the text that won, None of a join with `first`. Raises as `winners`."""
        return self._result().value if not self._session.is_traced else self._unknown("value")

    @property
    def votes(self) -> Any:
        """Wait for the vote; how many states had given each text when it was decided. Raises as `winners`."""
        return dict(self._result().meta.get("votes", {})) if not self._session.is_traced else self._unknown("votes")

    async def wait(self) -> list[int]:
        """The winners, without blocking the event loop; from then on the rest can be read in an `async def` body, too."""
        await self._session.signal.wait_for_async(lambda: self._join.has_ended)
        self._join.was_awaited = True
        return list(self._join.result().meta["winners"])

    def _unknown(self, what: str) -> SglArgument:
        return SglArgument(f"{what} of the join")

    def _result(self) -> Any:
        if self._session.is_in_async_body and not self._join.was_awaited:
            raise ProgramError(
                f"reading who won a join in the async def body {self._session.label}: it was not awaited; write "
                "await result.wait()"
            )
        return self._join.result()
