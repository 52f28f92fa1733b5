"""A contest with made-up contestants and a made-up clock: who runs when, what is reported, what does not end it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import pytest

from benchmarks.rounds import Contest, compared
from benchmarks.workload import OURS, CompletionServer, Measured, PeerError, Workload


@dataclass(frozen=True)
class Counting(Workload):
    code: ClassVar[str] = "WX"
    title: ClassVar[str] = "counting"
    unit: ClassVar[str] = "things/s"
    goals: ClassVar[Mapping[str, tuple[float, float]]] = {"slow": (1.5, 4.0), "fast": (1.5, 4.0)}

    things: int = 100

    def small(self) -> Self:
        return replace(self, things=10)

    def tiny(self) -> Self:
        return replace(self, things=1)

    def on_engine(self, engine: Any, seed: int) -> Measured:
        raise AssertionError("contestants here count by themselves")

    def on_server(self, server: CompletionServer, seed: int) -> Measured:
        raise AssertionError("contestants here count by themselves")


@dataclass
class Clock:
    now: float = 0.0
    log: list[tuple[str, int, int]] = field(default_factory=list)

    def __call__(self) -> float:
        return self.now


@dataclass
class Counter:
    """Counts `rates[seed]` things a second; a rate that is an error is raised."""

    clock: Clock
    group: str
    name: str
    rates: list[float | Exception]
    small_rate: float | Exception = 1.0

    def run(self, workload: Workload, seed: int, limit_s: float) -> Measured:
        assert isinstance(workload, Counting)
        rate = self.rates[seed] if seed < len(self.rates) else self.small_rate
        self.clock.log.append((self.name, seed, workload.things))
        if isinstance(rate, Exception):
            raise rate
        seconds = workload.things / rate
        self.clock.now += seconds
        return Measured(workload.things, seconds)

    def stop(self) -> None:
        return


def contest(clock: Clock, *others: Counter, ours: list[float | Exception] | None = None, **options: Any) -> Contest:
    first = Counter(clock, OURS, OURS, ours or [40.0, 60.0, 50.0])
    return Contest(Counting(), [first, *others], clock=clock, say=lambda line: None, **options)


def test_medians_and_ratios_are_those_of_the_rounds() -> None:
    clock = Clock()
    slow = Counter(clock, "slow", "slow np=1", [20.0, 25.0, 10.0])
    report = contest(clock, slow).run(3)
    assert report["contestants"][OURS]["rate"] == {"median": 50.0, "min": 40.0, "max": 60.0}
    found = report["groups"]["slow"]
    assert found["rate"]["median"] == pytest.approx(20.0)
    assert found["ratio"] == pytest.approx(2.5)
    assert (found["ratio_min"], found["ratio_max"]) == (pytest.approx(2.0), pytest.approx(5.0))
    assert found["verdict"] == "safe"


@pytest.mark.parametrize(("ours", "verdict"), [(2.0, "goal"), (1.2, "safe"), (0.9, "below")])
def test_a_verdict_says_which_goal_the_ratio_of_medians_reaches(ours: float, verdict: str) -> None:
    assert compared({0: ours}, {0: 1.0}, (1.0, 2.0))["verdict"] == verdict


def test_rounds_run_in_turn_and_begin_with_another_one_each_time() -> None:
    clock = Clock()
    contest(clock, Counter(clock, "slow", "slow np=1", [20.0, 20.0, 20.0])).run(3)
    measured = [(name, seed) for name, seed, things in clock.log if things == 100]
    assert measured == [
        (OURS, 0), ("slow np=1", 0), ("slow np=1", 1), (OURS, 1), (OURS, 2), ("slow np=1", 2),
    ]  # fmt: skip


def test_only_the_best_setting_of_a_group_goes_on_unless_all_are_asked_for() -> None:
    def settings(clock: Clock) -> tuple[Counter, Counter]:
        return (
            Counter(clock, "slow", "slow np=1", [20.0], small_rate=5.0),
            Counter(clock, "slow", "slow np=4", [30.0], small_rate=9.0),
        )

    clock = Clock()
    report = contest(clock, *settings(clock)).run(1)
    assert report["groups"]["slow"]["best"] == "slow np=4"
    assert report["contestants"]["slow np=1"]["rounds"] == []
    assert "slower than another setting" in report["contestants"]["slow np=1"]["notes"][0]
    clock = Clock()
    everyone = contest(clock, *settings(clock), all_settings=True).run(1)
    assert len(everyone["contestants"]["slow np=1"]["rounds"]) == 1
    assert everyone["groups"]["slow"]["best"] == "slow np=4"


def test_who_fails_to_start_is_reported_and_the_others_go_on() -> None:
    clock = Clock()
    broken = Counter(clock, "fast", "fast np=1", [], small_rate=PeerError("no such program"))
    report = contest(clock, broken, Counter(clock, "slow", "slow np=1", [20.0, 20.0, 20.0])).run(3)
    assert report["groups"]["fast"] is None
    assert report["contestants"]["fast np=1"]["notes"] == ["failed: no such program"]
    assert report["groups"]["slow"]["rounds"] == 3


def test_who_breaks_in_a_round_keeps_what_it_has_and_takes_part_no_more() -> None:
    clock = Clock()
    breaking = Counter(clock, "slow", "slow np=1", [20.0, RuntimeError("gone"), 20.0])
    report = contest(clock, breaking).run(3)
    assert report["groups"]["slow"]["rounds"] == 1
    assert "RuntimeError('gone')" in report["contestants"]["slow np=1"]["notes"][0]
    assert report["groups"][OURS]["rounds"] == 3


def test_a_peer_that_would_pass_the_time_limit_runs_no_further_round() -> None:
    """Small forms take 20 s; a round takes ours 2 to 3 s and the peer 50."""
    clock = Clock()
    report = contest(clock, Counter(clock, "slow", "slow np=1", [2.0, 2.0, 2.0]), limit_s=90.0).run(3)
    assert report["groups"]["slow"]["rounds"] == 1
    assert report["groups"][OURS]["rounds"] == 3
    assert report["contestants"]["slow np=1"]["notes"] == ["1 of the rounds, for the time limit of 90 s"]
