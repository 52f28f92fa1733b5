"""Runs one workload on all contestants in turn, and works out medians and ratios; knows neither engines nor servers."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from benchmarks.contestants import Contestant
from benchmarks.report import spread
from benchmarks.workload import OURS, Measured, PeerError, Workload

WARM_UP_SEED = 1000
"""Seeds of measured rounds are 0, 1, 2, ...; prompts of the warm-up are none of theirs."""


@dataclass
class _Entries:
    """What one contestant did."""

    warm_up: Measured | None = None
    rounds: dict[int, Measured] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    last_s: float = 0.0

    @property
    def rates(self) -> list[float]:
        return [one.rate for one in self.rounds.values()]


class Contest:
    """One workload's measurement: a warm-up that also picks each group's best setting, then rounds in turn."""

    def __init__(
        self,
        workload: Workload,
        contestants: Sequence[Contestant],
        *,
        all_settings: bool = False,
        limit_s: float | None = None,
        clock: Callable[[], float] = time.perf_counter,
        say: Callable[[str], None] = print,
    ) -> None:
        """`all_settings`: every setting runs every round. `limit_s` None: the workload's own."""
        self._workload = workload
        self._contestants = list(contestants)
        self._all_settings = all_settings
        self._limit_s = workload.limit_s if limit_s is None else limit_s
        self._clock = clock
        self._say = say
        self._entries = {one.name: _Entries() for one in contestants}
        self._start = clock()

    def run(self, rounds: int) -> dict[str, Any]:
        """The report of the workload, as plain data."""
        self._start = self._clock()
        in_race = self._warmed_up()
        if not self._all_settings:
            in_race = self._best_settings(in_race)
        for number in range(rounds):
            turn = in_race[number % len(in_race) :] + in_race[: number % len(in_race)] if in_race else []
            for contestant in turn:
                self._one_round(contestant, number, in_race)
        return self._report()

    def _warmed_up(self) -> list[Contestant]:
        small = self._workload.small()
        alive: list[Contestant] = []
        for contestant in self._contestants:
            entries = self._entries[contestant.name]
            entries.warm_up = self._measured(contestant, small, WARM_UP_SEED, self._limit_s / 4)
            if entries.warm_up is not None:
                alive.append(contestant)
        return alive

    def _best_settings(self, alive: Sequence[Contestant]) -> list[Contestant]:
        best: dict[str, Contestant] = {}
        for contestant in alive:
            known = best.get(contestant.group)
            if known is None or self._warm_rate(contestant) > self._warm_rate(known):
                best[contestant.group] = contestant
        for contestant in alive:
            if best[contestant.group] is not contestant:
                self._entries[contestant.name].notes.append("slower than another setting in the small form")
        return list(best.values())

    def _warm_rate(self, contestant: Contestant) -> float:
        warm_up = self._entries[contestant.name].warm_up
        return 0.0 if warm_up is None else warm_up.rate

    def _one_round(self, contestant: Contestant, number: int, in_race: list[Contestant]) -> None:
        entries = self._entries[contestant.name]
        is_late = self._clock() - self._start + entries.last_s > self._limit_s
        if number and is_late and contestant.group != OURS:
            note = f"{len(entries.rounds)} of the rounds, for the time limit of {self._limit_s:.0f} s"
            entries.notes = [*(n for n in entries.notes if "time limit" not in n), note]
            return
        left = max(self._limit_s - (self._clock() - self._start), self._limit_s / 3)
        measured = self._measured(contestant, self._workload, number, left)
        if measured is None:
            in_race.remove(contestant)
            return
        entries.rounds[number] = measured
        self._say(
            f"{self._workload.code} round {number + 1}: {contestant.name} {measured.rate:.4g} {self._workload.unit}"
        )

    def _measured(self, contestant: Contestant, workload: Workload, seed: int, limit_s: float) -> Measured | None:
        """None after a failure, which is noted."""
        entries, start = self._entries[contestant.name], self._clock()
        try:
            return contestant.run(workload, seed, limit_s)
        except PeerError as error:
            failure = str(error)
        except Exception as error:  # noqa: BLE001 - whatever a contestant does, the others go on
            failure = repr(error)
        finally:
            entries.last_s = self._clock() - start
        entries.notes.append(f"failed: {failure}")
        self._say(f"{workload.code}: {contestant.name} is out: {failure}")
        return None

    def _report(self) -> dict[str, Any]:
        contestants = {
            one.name: {
                "group": one.group,
                "rate": spread(self._entries[one.name].rates) if self._entries[one.name].rounds else None,
                "rounds": [
                    {"round": number, "rate": measured.rate} | asdict(measured)
                    for number, measured in self._entries[one.name].rounds.items()
                ],
                "small": None
                if (warm := self._entries[one.name].warm_up) is None
                else {"rate": warm.rate} | asdict(warm),
                "notes": self._entries[one.name].notes,
            }
            for one in self._contestants
        }
        return {
            "code": self._workload.code,
            "title": self._workload.title,
            "unit": self._workload.unit,
            "settings": self._workload.settings(),
            "seconds": self._clock() - self._start,
            "contestants": contestants,
            "groups": self._groups(),
        }

    def _groups(self) -> dict[str, Any]:
        """Each group by its best setting, with the ratio of medians to it and the ratios round by round."""
        ours = next((self._entries[one.name] for one in self._contestants if one.group == OURS), _Entries())
        groups: dict[str, Any] = {}
        for group in dict.fromkeys(one.group for one in self._contestants):
            members = [one for one in self._contestants if one.group == group and self._entries[one.name].rounds]
            if not members:
                groups[group] = None
                continue
            best = max(members, key=lambda one: statistics.median(self._entries[one.name].rates))
            entries = self._entries[best.name]
            groups[group] = {"best": best.name, "rate": spread(entries.rates), "rounds": len(entries.rounds)}
            if group != OURS and ours.rounds:
                groups[group] |= compared(
                    {n: m.rate for n, m in ours.rounds.items()},
                    {n: m.rate for n, m in entries.rounds.items()},
                    self._workload.goals.get(group),
                )
        return groups


def compared(ours: dict[int, float], peer: dict[int, float], goals: tuple[float, float] | None) -> dict[str, Any]:
    """The ratio of medians, the least and greatest ratio of one round, and what they say of the goals.

    Args:
        ours: rates by round.
        peer: rates by round.
        goals: the acceptable ratio and the one aimed at; None: none are set.
    """
    ratio = statistics.median(ours.values()) / statistics.median(peer.values())
    by_round = [ours[number] / peer[number] for number in peer if number in ours]
    verdict = None
    if goals is not None:
        safe, goal = goals
        verdict = "goal" if ratio >= goal else "safe" if ratio >= safe else "below"
    return {
        "ratio": ratio,
        "ratio_min": min(by_round, default=ratio),
        "ratio_max": max(by_round, default=ratio),
        "goals": goals,
        "verdict": verdict,
    }
