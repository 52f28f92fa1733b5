"""The order of a device's work, and the memory through which arrays go to it and come back; knows no model and no plan.

All work of a step is queued in one order: transfers to the device, copies of pages, the forward, sampling, the transfer
back. So on the device nothing overtakes anything, and a page, a tensor or a token in flight needs no guard of its own.
What is left are the host's two kinds of buffers. It writes one for a transfer to the device only after the transfer that
read it before is done, and it reads one only after the transfer that writes it is done: each is followed by a mark in the queue,
which the host waits for. There are two of each kind, so with one step in flight nobody waits for a buffer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

_ALIGN = 16
"""Bytes: the widest number and a vector load of the kernels."""
_LEAST_BYTES = 1 << 16


class Mark(Protocol):
    """A place in the queue."""

    def wait(self) -> None:
        """Return when the device has done all that was queued before."""
        ...


class HostBuffer:
    """Bytes that both the host and the device's transfers reach. `put` and `get` are the host's, the others the queue's."""

    def __init__(self, num_bytes: int, *, pinned: bool) -> None:
        self.num_bytes = num_bytes
        self._bytes = torch.empty(num_bytes, dtype=torch.uint8, pin_memory=pinned)

    def put(self, offset: int, array: NDArray[np.generic]) -> None:
        """Write an array, contiguous, from byte `offset` on."""
        self._bytes.numpy()[offset : offset + array.nbytes] = array.reshape(-1).view(np.uint8)

    def get(self, num_bytes: int) -> NDArray[np.uint8]:
        """A copy of the first bytes."""
        return self._bytes.numpy()[:num_bytes].copy()

    def to_device(self, num_bytes: int, device: torch.device) -> torch.Tensor:
        """The first bytes as a new uint8 tensor on the device."""
        return torch.empty(num_bytes, dtype=torch.uint8, device=device).copy_(
            self._bytes[:num_bytes], non_blocking=True
        )

    def from_device(self, tensor: torch.Tensor) -> None:
        """Write a contiguous tensor from byte 0 on."""
        data = tensor.view(-1).view(torch.uint8)
        self._bytes[: len(data)].copy_(data, non_blocking=True)


class DeviceQueue(Protocol):
    """Where the work of one device is queued, by one thread."""

    @property
    def device(self) -> torch.device:
        """Where tensors live."""
        ...

    def submit(self, work: Callable[[], None]) -> None:
        """Queue the operations of `work`. They may run later: what it reads of the host must not change before a mark is reached."""
        ...

    def mark(self) -> Mark:
        """A mark behind all that is queued."""
        ...

    def host_buffer(self, num_bytes: int) -> HostBuffer:
        """A buffer for transfers."""
        ...


class _Reached:
    def wait(self) -> None:
        return


class HostQueue:
    """The CPU as a device: work is done when it is queued."""

    device = torch.device("cpu")

    def submit(self, work: Callable[[], None]) -> None:
        """See `DeviceQueue`."""
        work()

    def mark(self) -> Mark:
        """See `DeviceQueue`."""
        return _Reached()

    def host_buffer(self, num_bytes: int) -> HostBuffer:
        """See `DeviceQueue`."""
        return HostBuffer(num_bytes, pinned=False)


class CudaQueue:
    """One stream of a GPU: the one that is current for the thread that queues."""

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def submit(self, work: Callable[[], None]) -> None:
        """See `DeviceQueue`: torch queues each operation as it is called."""
        work()

    def mark(self) -> Mark:
        """See `DeviceQueue`."""
        event = torch.cuda.Event()
        event.record()
        return _CudaMark(event)

    def host_buffer(self, num_bytes: int) -> HostBuffer:
        """See `DeviceQueue`: memory that the GPU reads and writes by itself."""
        return HostBuffer(num_bytes, pinned=True)


class _CudaMark:
    def __init__(self, event: torch.cuda.Event) -> None:
        self._event = event

    def wait(self) -> None:
        self._event.synchronize()


def queue_for(device: str) -> DeviceQueue:
    """The queue of a device, by torch's name for it."""
    place = torch.device(device)
    return HostQueue() if place.type == "cpu" else CudaQueue(place)


class Staged:
    """Arrays that lie in a buffer; `upload` is called once, in work that is queued."""

    def __init__(self, buffer: HostBuffer, num_bytes: int, layout: Mapping[str, _Place], device: torch.device) -> None:
        self._buffer = buffer
        self._num_bytes = num_bytes
        self._layout = layout
        self._device = device

    def upload(self) -> dict[str, torch.Tensor]:
        """All arrays by name, as views of one tensor on the device: one transfer."""
        if not self._num_bytes:
            return {name: torch.from_numpy(place.array).to(self._device) for name, place in self._layout.items()}
        data = self._buffer.to_device(self._num_bytes, self._device)
        return {
            name: data[place.offset : place.offset + place.array.nbytes]
            .view(_TORCH[place.array.dtype])
            .view(place.array.shape)
            for name, place in self._layout.items()
        }


class _Place:
    __slots__ = ("array", "offset")

    def __init__(self, array: NDArray[np.generic], offset: int) -> None:
        self.array = array
        self.offset = offset


_TORCH = {
    np.dtype(np.int64): torch.int64,
    np.dtype(np.int32): torch.int32,
    np.dtype(np.float32): torch.float32,
    np.dtype(np.float64): torch.float64,
}


class Staging:
    """Arrays on their way to the device, through two buffers in turn."""

    def __init__(self, queue: DeviceQueue) -> None:
        self._queue = queue
        self._turns = _Turns(queue)

    def stage(self, arrays: Mapping[str, NDArray[np.generic]]) -> Staged:
        """Write the arrays (int32, int64, float32 or float64) into the next buffer, once the device has read what it held."""
        layout: dict[str, _Place] = {}
        end = 0
        for name, array in arrays.items():
            layout[name] = _Place(np.ascontiguousarray(array), end)
            end += -(-array.nbytes // _ALIGN) * _ALIGN
        buffer = self._turns.next(end)
        for place in layout.values():
            if place.array.nbytes:
                buffer.put(place.offset, place.array)
        return Staged(buffer, end, layout, self._queue.device)

    def sent(self) -> None:
        """The work that uploads what was staged last is queued."""
        self._turns.used()


class ReadBack:
    """Numbers on their way back from the device, through two buffers in turn."""

    def __init__(self, queue: DeviceQueue) -> None:
        self._queue = queue
        self._turns = _Turns(queue)

    def fetch(self, num_items: int, tensor_of: Callable[[], torch.Tensor]) -> Callable[[], NDArray[np.int64]]:
        """Queue the transfer of an int64 `[num_items]`, which `tensor_of` gives once the work before has run.

        Returns:
            A function that waits for it and returns the numbers; it is to be called before the fetch after the next one.

        """
        buffer = self._turns.next(8 * num_items)

        def transfer() -> None:
            tensor = tensor_of()
            assert tensor.shape == (num_items,), f"{tuple(tensor.shape)} numbers come back, {num_items} are awaited"
            buffer.from_device(tensor)

        if num_items:
            self._queue.submit(transfer)
        mark = self._turns.used()

        def wait() -> NDArray[np.int64]:
            mark.wait()
            return buffer.get(8 * num_items).view(np.int64)

        return wait


class _Turns:
    """Two buffers, and the marks behind the work that used them last."""

    def __init__(self, queue: DeviceQueue) -> None:
        self._queue = queue
        self._buffers = [queue.host_buffer(_LEAST_BYTES) for _ in range(2)]
        self._marks: list[Mark] = [_Reached(), _Reached()]
        self._turn = 0

    def next(self, num_bytes: int) -> HostBuffer:
        """The other buffer, with at least this much room, which nothing that is queued uses any more."""
        self._turn ^= 1
        self._marks[self._turn].wait()
        if self._buffers[self._turn].num_bytes < num_bytes:
            self._buffers[self._turn] = self._queue.host_buffer(max(num_bytes, 2 * self._buffers[self._turn].num_bytes))
        return self._buffers[self._turn]

    def used(self) -> Mark:
        """The work that uses the buffer given last is queued; returns the mark behind it."""
        mark = self._marks[self._turn] = self._queue.mark()
        return mark
