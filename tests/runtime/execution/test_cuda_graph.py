"""The adapter over torch.cuda, with torch's own functions replaced by ones that write down the order of calls."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from sglang_lite.errors import RequestError
from sglang_lite.runtime.execution.cuda_graph import WARM_UPS, CudaGraphs


class FakeStream:
    def __init__(self, name: str, log: list[str]) -> None:
        self.name = name
        self._log = log

    def wait_stream(self, other: FakeStream) -> None:
        self._log.append(f"{self.name} waits for {other.name}")

    def synchronize(self) -> None:
        self._log.append(f"host waits for {self.name}")


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """torch.cuda's functions write here what is asked of them."""
    calls: list[str] = []

    class FakeCudaGraph:
        def replay(self) -> None:
            calls.append("replay")

        def reset(self) -> None:
            calls.append("reset")

    @contextmanager
    def on_stream(stream: FakeStream) -> Generator[None]:
        calls.append(f"on {stream.name}")
        yield
        calls.append(f"off {stream.name}")

    @contextmanager
    def recording(graph: Any, *, pool: Any, stream: FakeStream, capture_error_mode: str) -> Generator[None]:
        assert isinstance(graph, FakeCudaGraph)
        calls.append(f"record on {stream.name} into {pool}")
        yield
        calls.append("recorded")

    pools = iter(["pool 1", "pool 2"])
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: FakeStream("side", calls))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: FakeStream("main", calls))
    monkeypatch.setattr(torch.cuda, "stream", on_stream)
    monkeypatch.setattr(torch.cuda, "graph", recording)
    monkeypatch.setattr(torch.cuda, "CUDAGraph", FakeCudaGraph)
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: next(pools))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: calls.append("host waits for the device"))
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: calls.append("cache emptied"))
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: calls.append("memory read") or (123, 456))
    return calls


def test_a_capture_warms_up_on_a_side_stream_before_it_records(log: list[str]) -> None:
    CudaGraphs("cuda").capture(lambda: log.append("launch"))
    assert log == [
        "side waits for main",
        "on side",
        *["launch"] * WARM_UPS,
        "off side",
        "host waits for side",
        "record on side into pool 1",
        "launch",
        "recorded",
        "main waits for side",
    ]


def test_a_step_that_waits_for_the_device_is_refused_with_the_remedy(log: list[str]) -> None:
    def launch() -> None:
        log.append("launch")
        if log.count("launch") > WARM_UPS:
            raise RuntimeError("CUDA error: operation not permitted when stream is capturing\nmore")

    with pytest.raises(RequestError, match=r"cannot be recorded \(CUDA error: [^\n]*capturing\).*disable_cuda_graph"):
        CudaGraphs("cuda").capture(launch)


def test_errors_before_the_recording_and_lack_of_memory_stay_what_they_are(log: list[str]) -> None:
    def fail() -> None:
        raise RuntimeError("wrong anyway")

    with pytest.raises(RuntimeError, match="wrong anyway"):
        CudaGraphs("cuda").capture(fail)
    launches = iter([None] * WARM_UPS)

    def lack() -> None:
        if next(launches, "recording") == "recording":
            raise torch.OutOfMemoryError("no memory")

    with pytest.raises(torch.OutOfMemoryError):
        CudaGraphs("cuda").capture(lack)


def test_all_graphs_of_a_factory_share_one_pool(log: list[str]) -> None:
    graphs = CudaGraphs("cuda")
    for _ in range(3):
        graphs.capture(lambda: None)
    assert [line for line in log if line.startswith("record ")] == ["record on side into pool 1"] * 3


def test_replay_and_release_reach_the_graph(log: list[str]) -> None:
    graph = CudaGraphs("cuda").capture(lambda: None)
    log.clear()
    graph.replay()
    graph.release()
    assert log == ["replay", "reset"]


def test_free_memory_counts_what_torch_keeps_unused(log: list[str]) -> None:
    assert CudaGraphs("cuda").free_bytes() == 123
    assert log == ["host waits for the device", "cache emptied", "memory read"]
