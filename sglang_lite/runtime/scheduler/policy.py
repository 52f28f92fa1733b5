"""The order in which waiting requests are tried; pure functions of what is known about them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeAlias, TypeVar, get_args

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
        """When the token clock shows this, the request has aged."""
        ...

    @property
    def rank(self) -> int:
        """Smaller goes first; equal for all where priorities are off."""
        ...

    @property
    def place(self) -> tuple[int, ...]:
        """Where its program and its branch stand in a depth-first walk of the programs; (): of no program."""
        ...

    @property
    def tokens_left(self) -> int:
        """Output tokens that it may still give."""
        ...


W = TypeVar("W", bound=Waiting)
Probe = Callable[[W], int]
"""How many leading tokens of a request are cached."""
Path = Callable[[W], Sequence[int]]
"""One key for each whole page of a request's cached prefix; equal keys: equal tokens up to there."""
Key: TypeAlias = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Moment:
    """When and for whom an order is made. `clock`: tokens computed so far. `step`, `seed`: for the random policy."""

    clock: int
    step: int = 0
    seed: int = 0


def order_waiting(
    policy: SchedulePolicy, window: Sequence[W], moment: Moment, probe: Probe[W], path: Path[W]
) -> list[W]:
    """`window` in the order in which `policy` tries it.

    First those that have aged, by arrival, so that no policy and no priority starves anybody; then by rank; then by the
    policy:

    - `fcfs`, `priority`: by arrival; of one step's arrivals, continuing requests first.
    - `lpm`: continuing requests first, then the longest cached prefix, then depth first through the programs' trees.
    - `dfs-weight`: depth first through the cached prefixes, at each fork where more requests wait first (SGLang's), so
      that those that share a prefix run one after the other.
    - `lof`: the longest possible output first.
    - `random`: another order in each step, the same in each run.

    Ties go by arrival.

    Args:
        probe, path: asked at most once for each request, and only where the policy needs it.
    """
    if policy not in get_args(SchedulePolicy):
        raise RequestError(
            f"ordering the waiting requests: schedule_policy={policy!r}, expected one of {get_args(SchedulePolicy)}"
        )
    aged = [req for req in window if moment.clock >= req.deadline]
    fresh = [req for req in window if moment.clock < req.deadline] if aged else list(window)
    aged.sort(key=_order)
    return aged + _by_policy(policy, fresh, moment, probe, path)


def _by_policy(policy: SchedulePolicy, reqs: list[W], moment: Moment, probe: Probe[W], path: Path[W]) -> list[W]:
    match policy:
        case "lpm":
            return sorted(reqs, key=lambda req: (req.rank, req.order[1], -probe(req), req.place, req.order))
        case "lof":
            return sorted(reqs, key=lambda req: (req.rank, -req.tokens_left, req.order))
        case "random":
            return sorted(reqs, key=lambda req: (req.rank, _shuffled(moment, req.order[2]), req.order))
        case "dfs-weight":
            places = dict(zip((req.order for req in reqs), _depth_first(reqs, path), strict=True))
            return sorted(reqs, key=lambda req: (req.rank, places[req.order], req.order))
        case _:
            return sorted(reqs, key=lambda req: (req.rank, req.order))


def _order(req: Waiting) -> tuple[int, bool, int]:
    return req.order


def _shuffled(moment: Moment, number: int) -> int:
    """A number that depends on seed, step and request only (splitmix64)."""
    mask = (1 << 64) - 1
    value = (moment.seed * 0xD1342543DE82EF95 + moment.step * 0x9E3779B97F4A7C15 + number) & mask
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        value = ((value ^ (value >> shift)) * factor) & mask
    return value ^ (value >> 31)


_AFTER_CHILDREN = 1
"""Sorts after every (minus weight, ...) of a deeper place."""


def _depth_first(reqs: Sequence[W], path: Path[W]) -> list[Key]:
    """For each request a key that sorts as a walk of the tree of their cached pages: heavier branches first, children
    before those that end at the node, equal weights by the oldest request below.
    """
    paths = [tuple(path(req)) for req in reqs]
    weights = Counter(key for keys in paths for key in keys)
    oldest: dict[int, tuple[int, bool, int]] = {}
    for req, keys in zip(reqs, paths, strict=True):
        for key in keys:
            if key not in oldest or req.order < oldest[key]:
                oldest[key] = req.order
    return [(*((-weights[key], oldest[key]) for key in keys), (_AFTER_CHILDREN,)) for keys in paths]


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
