"""A recording of steps, from the engine's own calls to the file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sglang_lite.errors import RequestError
from sglang_lite.runtime.engine.step_profile import StepProfile
from tests.support.talking_engine import talking_engine


def names_in(path: str) -> set[str]:
    return {event.get("name", "") for event in json.loads(Path(path).read_text())["traceEvents"]}


def test_steps_are_in_the_trace(tmp_path: Path) -> None:
    with talking_engine() as (engine, _):
        path = engine.start_profile(str(tmp_path / "new"))
        with pytest.raises(RequestError, match="one is under way"):
            engine.start_profile(str(tmp_path))
        engine.generate("Hi", {"max_new_tokens": 2})
        assert engine.stop_profile() == path
        assert any(name.startswith("step ") for name in names_in(path))
        with pytest.raises(RequestError, match="none is under way"):
            engine.stop_profile()


def test_it_ends_by_itself_after_its_steps(tmp_path: Path) -> None:
    with talking_engine() as (engine, _):
        path = engine.start_profile(str(tmp_path), num_steps=2)
        engine.generate("Hi", {"max_new_tokens": 8, "ignore_eos": True})
        with pytest.raises(RequestError, match="none is under way"):
            engine.stop_profile()
        assert len([name for name in names_in(path) if name.startswith("step ")]) == 2


def test_the_summary_says_where_the_time_went(tmp_path: Path) -> None:
    """Parts of the scheduler, the runner and the texts are there, and afterwards nothing is wrapped."""
    with talking_engine() as (engine, runner):
        before = dict(vars(runner))
        path = engine.start_profile(str(tmp_path))
        assert "run" in vars(runner)
        engine.generate("Hi", {"max_new_tokens": 8, "ignore_eos": True})
        engine.stop_profile()
        assert set(vars(runner)) == set(before)
        trace = json.loads(Path(path).read_text())
    summary = trace["otherData"]
    assert {"plan", "commit", "radix tree and pages", "batch and results", "text and replies"} <= set(summary["parts"])
    assert sum(summary["shares"].values()) == pytest.approx(1.0)
    assert summary["steps"] >= 8
    assert 0 < sum(summary["parts"].values()) <= summary["seconds"]
    assert (summary["device_seconds"], summary["device_idle_share"]) == ({}, None)
    assert {"plan", "commit"} <= names_in(path)


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RequestError, match="profile-folder"):
        StepProfile(str(tmp_path / "file"), None)
