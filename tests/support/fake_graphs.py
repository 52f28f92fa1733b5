"""Graphs without a GPU: a replay runs the captured function again and refuses what a recorded graph could not follow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from sglang_lite.runtime.attention.kv_pool import KvPool

Call = tuple[str, tuple[Any, ...]]


class _Recorder(TorchDispatchMode):
    """Writes down every operation with its arguments; of memory that was there before, the addresses."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Call] = []
        self.written: dict[int, torch.Tensor] = {}
        self._own: dict[int, torch.UntypedStorage] = {}  # kept alive, so that no address is met twice

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        leaves = tree_leaves((args, kwargs))
        self.calls.append((str(func), tuple(self._describe(leaf) for leaf in leaves)))
        given = {_storage(leaf) for leaf in leaves if isinstance(leaf, torch.Tensor)}
        for argument, value in zip(func._schema.arguments, args, strict=False):
            if argument.alias_info is not None and argument.alias_info.is_write:
                for tensor in tree_leaves(value):
                    if _storage(tensor) not in self._own:
                        self.written[tensor.data_ptr()] = tensor
        out = func(*args, **kwargs)
        for tensor in tree_leaves(out):
            if isinstance(tensor, torch.Tensor) and _storage(tensor) not in given:
                self._own[_storage(tensor)] = tensor.untyped_storage()
        return out

    def _describe(self, leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        place = "inside" if _storage(leaf) in self._own else leaf.data_ptr()
        return place, tuple(leaf.shape), leaf.stride(), leaf.dtype


def _storage(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


class FakeGraph:
    """One captured function. What it wrote outside of the KV pools is poisoned before each replay, and so is their sink page."""

    def __init__(self, launch: Callable[[], None], owner: FakeGraphs) -> None:
        self._launch = launch
        self._owner = owner
        self.is_released = False
        self.num_replays = 0
        with _Recorder() as recorder:
            launch()
        self._calls = recorder.calls
        pools = {_storage(tensor) for pool in owner.pools for tensor in (pool.k, pool.v)}
        self.outputs = [tensor for tensor in recorder.written.values() if _storage(tensor) not in pools]

    def replay(self) -> None:
        assert not self.is_released, "a released graph was replayed"
        self._owner.poison(self.outputs)
        with _Recorder() as recorder:
            self._launch()
        for number, (before, now) in enumerate(zip(self._calls, recorder.calls, strict=False)):
            assert before == now, f"operation {number} of the graph was recorded as {before}, the replay needs {now}"
        assert len(self._calls) == len(recorder.calls), (
            f"{len(self._calls)} operations were recorded, the replay needs {len(recorder.calls)}"
        )
        self.num_replays += 1

    def release(self) -> None:
        assert not self.is_released, "a graph was released twice"
        self.is_released = True
        self._owner.released(self)


class FakeGraphs:
    """`GraphFactory` on a simulated device.

    `memory`: its bytes. The first capture costs `cost(number of output rows)`, further ones only what is beyond the
    largest before, since they share their memory.
    """

    def __init__(
        self, pools: Sequence[KvPool] = (), memory: int = 1 << 30, cost: Callable[[int], int] = lambda rows: 0
    ) -> None:
        self.pools = list(pools)
        self.graphs: list[FakeGraph] = []
        self.num_poisoned = 0
        self._memory = memory
        self._cost = cost
        self._pooled: dict[int, int] = {}

    def capture(self, launch: Callable[[], None]) -> FakeGraph:
        graph = FakeGraph(launch, self)
        cost = self._cost(max((len(tensor) for tensor in graph.outputs), default=0))
        if cost > self._memory:
            raise torch.OutOfMemoryError(f"the graph needs {cost} bytes, the device has {self._memory}")
        self._pooled[id(graph)] = cost
        self.graphs.append(graph)
        return graph

    def free_bytes(self) -> int:
        return self._memory - max(self._pooled.values(), default=0)

    def poison(self, outputs: Sequence[torch.Tensor]) -> None:
        """Nothing that a replay does not write anew is of use."""
        for tensor in (*outputs, *(part[:, 0] for pool in self.pools for part in (pool.k, pool.v))):
            if tensor.is_floating_point():
                tensor.fill_(float("nan"))
                self.num_poisoned += 1

    def released(self, graph: FakeGraph) -> None:
        del self._pooled[id(graph)]
