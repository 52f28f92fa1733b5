"""Runs inside a run: seeds that differ and repeat, and no run kept alive."""

from __future__ import annotations

from sglang_lite.lang.nested import NestedRuns


class Run:
    """Something that can be held weakly."""


def test_seeds_differ_and_repeat() -> None:
    seeds = [[runs.next_seed() for _ in range(3)] for runs in (NestedRuns[Run](7), NestedRuns[Run](7))]
    assert seeds[0] == seeds[1]
    assert len(set(seeds[0])) == 3
    assert NestedRuns[Run](None).next_seed() is None


def test_a_run_that_is_gone_is_forgotten() -> None:
    runs, kept, gone = NestedRuns[Run](1), Run(), Run()
    runs.add(kept)
    runs.add(gone)
    del gone
    assert runs.alive() == [kept]
