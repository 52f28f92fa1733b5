"""The children of one fork, as a program handles them together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, Protocol, TypeVar

from sglang_lite.errors import RequestError
from sglang_lite.lang.branch import Branch, JoinMode
from sglang_lite.lang.races import JoinResult

_MODES: dict[str, JoinMode] = {"gather_variable": "gather", "concate_and_append": "concat"}


class Member(Protocol):
    """What a group needs of a state."""

    def append(self, value: object) -> None:
        """Append text or an expression."""
        ...

    @property
    def branch(self) -> Branch:
        """Its branch."""
        ...


StateT = TypeVar("StateT", bound=Member)


class ProgramStateGroup(Generic[StateT]):
    """The states of a fork, in order: `group[i]`, `len`, iteration, `group += ...`, `join`."""

    def __init__(self, states: Sequence[StateT], parent: Branch) -> None:
        self.states: list[StateT] = list(states)
        self._parent = parent

    def join(
        self, mode: str = "gather_variable", *, first: int | None = None, vote: str | None = None
    ) -> JoinResult | None:
        """End all states; nothing is waited for.

        `gather_variable`: each name that states bound since the fork becomes a list in the parent, in state order; a
        further join makes the list longer. A state that failed is a failed element: reading the list raises its error.
        `concate_and_append`: the text that each state added is appended to the parent, in order.

        Args:
            first: go on once so many states have done all they have to, without an error; the others are cancelled.
                The lists are those of the winners, in the order in which they finished (at once: in state order).
            vote: a name: go on once no other value of it can get more votes than the leading one; the others are
                cancelled. The name then is the value that won, the other names are lists of those who gave it.

        Returns:
            With `first` or `vote`, who won: it can be asked for `winners`, `value` and `votes`, and waits only then.

        Raises:
            RequestError: another mode, `first` and `vote` together or beside `concate_and_append`, `first` out of range, or
                no state has a gen or select called `vote`.
            ProgramError: the states were joined before.
        """
        if mode not in _MODES:
            raise RequestError(f"joining a fork: got mode={mode!r}, expected one of {sorted(_MODES)}")
        if first is not None or vote is not None:
            self._check_race(_MODES[mode], first, vote)
        join = self._parent.join([state.branch for state in self.states], _MODES[mode], first, vote)
        if join is None or (first is None and vote is None):
            return None
        return JoinResult(self._parent.session, join)

    def _check_race(self, mode: JoinMode, first: int | None, vote: str | None) -> None:
        if mode != "gather" or (first is not None and vote is not None):
            raise RequestError(
                f"joining a fork: got first={first!r}, vote={vote!r} and mode {mode!r}, expected one of the two, in the "
                "mode 'gather_variable'"
            )
        if first is not None and (type(first) is not int or not 1 <= first <= len(self.states)):
            raise RequestError(
                f"joining a fork: got first={first!r}, expected a whole number from 1 to {len(self.states)}, the number of "
                "states"
            )
        if vote is not None and not any(vote in state.branch.own_names for state in self.states):
            names = sorted({name for state in self.states for name in state.branch.own_names})
            raise RequestError(f"joining a fork: no state has a value called {vote!r} to vote with, they have {names}")

    def __getitem__(self, index: int) -> StateT:
        return self.states[index]

    def __setitem__(self, index: int, value: StateT) -> None:
        # `group[i] += x` ends in an assignment of the same state.
        if value is not self.states[index]:
            raise RequestError(f"assigning to state {index} of a fork: append to it with group[{index}] += ...")

    def __iter__(self) -> Iterator[StateT]:
        return iter(self.states)

    def __len__(self) -> int:
        return len(self.states)

    def __iadd__(self, other: Any) -> ProgramStateGroup[StateT]:
        """Append to every state: one expression for all, a list with one for each, or a function of the index.

        Raises:
            RequestError: a list of another length, or something that cannot be appended.
        """
        if isinstance(other, list | tuple):
            values: list[Any] = list(other)  # pyright: ignore[reportUnknownArgumentType]
            if len(values) != len(self.states):
                raise RequestError(
                    f"appending a list to a fork: got {len(values)} values, expected {len(self.states)}, one a state"
                )
        elif callable(other):
            function: Callable[[int], Any] = other
            values = [function(i) for i in range(len(self.states))]
        else:
            values = [other] * len(self.states)
        for state, value in zip(self.states, values, strict=True):
            state.append(value)
        return self
