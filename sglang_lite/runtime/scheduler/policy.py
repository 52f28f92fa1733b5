"""The order in which waiting requests are tried; pure functions of what is known about them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from sglang_lite.errors import RequestError
from sglang_lite.runtime.scheduler.config import Batching, SchedulePolicy


class Waiting(Protocol):
    """What a policy sees of a request."""

    @property
    def order(self) -> tuple[int, bool, int]:
        """(step of arrival, not continuing, number of arrival)."""
        ...

    @property
    def deadline(self) -> int:
        """When so many requests have been admitted in all, this one has aged."""
        ...


W = TypeVar("W", bound=Waiting)
Probe = Callable[[W], int]
"""How many leading tokens of a request are cached."""


def order_fcfs(window: Sequence[W], num_admitted: int, probe: Probe[W]) -> list[W]:
    """First come first served; of one step's arrivals, continuing requests first."""
    return sorted(window, key=lambda req: req.order)


def order_lpm(window: Sequence[W], num_admitted: int, probe: Probe[W]) -> list[W]:
    """Aged requests first, oldest first; then continuing ones; then by longest cached prefix; ties by age."""

    def key(req: W) -> tuple[bool, bool, int, tuple[int, bool, int]]:
        if num_admitted >= req.deadline:
            return (False, False, 0, req.order)
        return (True, req.order[1], -probe(req), req.order)

    return sorted(window, key=key)


_ORDERS: dict[str, Callable[..., list[Waiting]]] = {"fcfs": order_fcfs, "lpm": order_lpm}


def order_waiting(policy: SchedulePolicy, window: Sequence[W], num_admitted: int, probe: Probe[W]) -> list[W]:
    """`window` in the order in which `policy` tries it.

    Args:
        num_admitted: requests admitted in all so far, the clock of ageing.
        probe: asked at most once for each request, and only where the policy needs it.
    """
    order: Callable[..., list[W]] | None = _ORDERS.get(policy)  # pyright: ignore[reportAssignmentType]
    if order is None:
        raise RequestError(
            f"ordering the waiting requests: schedule_policy={policy!r}, expected one of {list(_ORDERS)}"
        )
    return order(window, num_admitted, probe)


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Choice(Generic[T]):
    """What the next step runs, and the running set after the last step's prefills have joined it."""

    prefill: tuple[T, ...]
    decode: tuple[T, ...]
    running: tuple[T, ...]


def choose_next(
    batching: Batching, running: Sequence[T], completed: Sequence[T], prefill: Callable[[Sequence[T]], Sequence[T]]
) -> Choice[T]:
    """The order of choice: completed prefills join the running set, then a new prefill goes before decode.

    Both empty: the step is idle. Only `prefill-first` keeps decode out of a step with a prefill.

    Args:
        prefill: given the updated running set, the requests that compute prompt tokens in this step.
    """
    joined = (*running, *completed)
    rows = tuple(prefill(joined))
    return Choice(rows, () if rows and batching == "prefill-first" else joined, joined)
