"""Buffers between host and device: what is written arrives, and nothing is written over before it was read."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from sglang_lite.runtime.execution.device_queue import HostQueue, ReadBack, Staging, queue_for
from tests.support.simulated_device import SimulatedQueue

ARRAYS = {
    "ids": np.arange(7, dtype=np.int64),
    "table": np.arange(6, dtype=np.int32).reshape(2, 3),
    "none": np.zeros((0, 3), dtype=np.int32),
    "temperature": np.array([0.5], dtype=np.float32),
    "uniform": np.array([0.25, 0.75], dtype=np.float64),
}


@pytest.mark.parametrize("make", [HostQueue, SimulatedQueue])
@pytest.mark.parametrize("scale", [1, 20_000])
def test_arrays_arrive_as_they_were_staged(make: type, scale: int) -> None:
    """Whatever their sizes and types; also where they are larger than the buffer was."""
    queue = make()
    staging = Staging(queue)
    arrays = {name: np.repeat(array, scale, axis=0) for name, array in ARRAYS.items()}
    staged = staging.stage(arrays)
    got: dict[str, torch.Tensor] = {}
    queue.submit(lambda: got.update(staged.upload()))
    queue.mark().wait()
    assert got.keys() == arrays.keys()
    for name, array in arrays.items():
        assert got[name].numpy().dtype == array.dtype
        assert np.array_equal(got[name].numpy(), array)


def test_two_stagings_are_under_way_at_once_and_a_third_waits_for_the_first() -> None:
    queue = SimulatedQueue()
    staging = Staging(queue)
    got: list[list[int]] = []

    def send(number: int) -> None:
        staged = staging.stage({"x": np.array([number], dtype=np.int64)})
        queue.submit(lambda: got.append(staged.upload()["x"].tolist()))
        staging.sent()

    send(1)
    send(2)
    assert (queue.num_waits, got) == (0, [])
    send(3)
    assert (queue.num_waits, got) == (1, [[1]])
    queue.mark().wait()
    assert got == [[1], [2], [3]]


def test_two_results_are_under_way_at_once() -> None:
    queue = SimulatedQueue()
    results = ReadBack(queue)
    first = results.fetch(2, lambda: torch.tensor([1, 2]))
    second = results.fetch(3, lambda: torch.tensor([3, 4, 5]))
    assert queue.num_waits == 0
    assert second().tolist() == [3, 4, 5]
    assert first().tolist() == [1, 2]
    assert results.fetch(0, lambda: torch.zeros(0))().tolist() == []


def test_a_result_of_another_size_than_awaited_is_an_error() -> None:
    with pytest.raises(AssertionError, match=r"\(2,\) numbers come back, 3 are awaited"):
        ReadBack(HostQueue()).fetch(3, lambda: torch.tensor([1, 2]))


def test_the_simulated_device_sees_a_buffer_that_is_written_too_early() -> None:
    """The check itself: without a wait between them, a transfer and the next write are in no order."""
    queue = SimulatedQueue(eager=1.0)
    buffer = queue.host_buffer(64)
    buffer.put(0, np.array([1], dtype=np.int64))
    queue.submit(lambda: buffer.to_device(8, queue.device))
    with pytest.raises(AssertionError, match="is not ordered after"):
        buffer.put(0, np.array([2], dtype=np.int64))
    queue.mark().wait()
    buffer.put(0, np.array([2], dtype=np.int64))
    queue.submit(lambda: buffer.from_device(torch.tensor([5])))
    with pytest.raises(AssertionError, match="is not ordered after"):
        buffer.get(8)


def test_the_cpu_is_its_own_queue() -> None:
    assert isinstance(queue_for("cpu"), HostQueue)
