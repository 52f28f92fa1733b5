"""Which deaths are mended, and how often."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from sglang_lite.errors import EngineStoppedError, ModelLoadError, SglangLiteError
from sglang_lite.runtime.server.ipc.host import MAX_QUICK_DEATHS, EngineHost
from sglang_lite.runtime.server.ipc.process import Pulse


@dataclass
class FakeProcess:
    ready: Callable[[], None]
    exited: Callable[[int], None]
    client: Any = None
    error: SglangLiteError | None = None
    info: dict[str, Any] = field(default_factory=dict)
    pulse: Pulse = field(default_factory=lambda: Pulse(7, has_work=True, stands_s=3.0))
    is_stopped: bool = False

    def stop(self) -> None:
        self.is_stopped = True
        self.exited(0)


class Fixture:
    def __init__(self, *, restart: bool) -> None:
        self.processes: list[FakeProcess] = []
        self.num_ready = 0
        self.ends: list[SglangLiteError] = []
        self.host = EngineHost(self._spawn, restart=restart, on_ready=self._ready, on_end=self.ends.append)

    def _spawn(self, ready: Callable[[], None], exited: Callable[[int], None]) -> FakeProcess:
        self.processes.append(FakeProcess(ready, exited))
        return self.processes[-1]

    def _ready(self) -> None:
        self.num_ready += 1


class FakeClient:
    def get_server_info(self) -> dict[str, Any]:
        return {"a": 1}


def test_until_it_is_ready_it_says_so() -> None:
    f = Fixture(restart=False)
    with pytest.raises(EngineStoppedError, match="not ready: loading"):
        f.host.get_server_info()
    assert f.host.pulse.stands_s == 0
    f.processes[0].client = FakeClient()
    f.processes[0].ready()
    assert f.host.get_server_info() == {"a": 1, "restarts": 0}
    assert f.host.pulse.stands_s == 3.0


def test_without_restart_a_death_is_the_end() -> None:
    f = Fixture(restart=False)
    f.processes[0].ready()
    f.processes[0].exited(-9)
    assert len(f.processes) == 1
    assert f.host.phase == "ended"
    assert [str(e) for e in f.ends] == ["the scheduler process ended (signal 9)"]


def test_with_restart_another_takes_its_place() -> None:
    f = Fixture(restart=True)
    f.processes[0].ready()
    f.processes[0].exited(-9)
    assert f.host.phase == "loading"
    assert len(f.processes) == 2
    f.processes[1].client = FakeClient()
    f.processes[1].ready()
    assert f.host.get_server_info()["restarts"] == 1
    assert not f.ends


def test_one_that_dies_again_and_again_is_given_up() -> None:
    f = Fixture(restart=True)
    for number in range(MAX_QUICK_DEATHS):
        f.processes[number].ready()
        f.processes[number].exited(1)
    assert len(f.processes) == MAX_QUICK_DEATHS
    assert len(f.ends) == 1


def test_a_model_that_cannot_be_loaded_is_not_tried_again() -> None:
    f = Fixture(restart=True)
    f.processes[0].error = ModelLoadError("no such file")
    f.processes[0].exited(1)
    assert [str(e) for e in f.ends] == ["no such file"]
    assert len(f.processes) == 1


def test_a_shutdown_is_no_death() -> None:
    f = Fixture(restart=True)
    f.processes[0].ready()
    f.host.shutdown()
    assert f.processes[0].is_stopped
    assert not f.ends
    assert len(f.processes) == 1
