"""CUDA graphs of torch behind `GraphFactory`; knows no model."""

from __future__ import annotations

from collections.abc import Callable

import torch

from sglang_lite.errors import RequestError

WARM_UPS = 2
"""Runs before a capture: the first compiles and tunes kernels, the second shows that nothing is left to do."""


class CudaGraph:
    """A recorded `torch.cuda.CUDAGraph`."""

    def __init__(self, graph: torch.cuda.CUDAGraph) -> None:
        self._graph = graph

    def replay(self) -> None:
        """See `Graph.replay`."""
        self._graph.replay()

    def release(self) -> None:
        """See `Graph.release`."""
        self._graph.reset()


class CudaGraphs:
    """`GraphFactory` of one GPU; all graphs share one memory pool.

    Sharing is sound because graphs run one after the other on one stream, and nothing that a graph allocated is read
    after it: results are copied to memory that lies outside of the pool.
    """

    def __init__(self, device: str = "cuda") -> None:
        self._device = torch.device(device)
        self._stream = torch.cuda.Stream(self._device)
        self._pool = torch.cuda.graph_pool_handle()

    def capture(self, launch: Callable[[], None]) -> CudaGraph:
        """See `GraphFactory.capture`.

        Raises:
            RequestError: `launch` does what cannot be recorded.

        """
        current = torch.cuda.current_stream(self._device)
        self._stream.wait_stream(current)
        with torch.cuda.stream(self._stream):
            for _ in range(WARM_UPS):
                launch()
        self._stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        try:
            # thread_local: other threads of the process may allocate meanwhile
            with torch.cuda.graph(graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local"):
                launch()
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:  # what waits for the device, or reads from it, cannot be recorded
            raise RequestError(
                f"capturing a CUDA graph: this model's step cannot be recorded ({str(error).splitlines()[0]}); set"
                " disable_cuda_graph, or lower cuda_graph_max_bs where smaller steps can be"
            ) from error
        current.wait_stream(self._stream)
        return CudaGraph(graph)

    def free_bytes(self) -> int:
        """See `GraphFactory.free_bytes`; what torch keeps for itself without using it is given back before."""
        torch.cuda.synchronize(self._device)
        torch.cuda.empty_cache()
        return torch.cuda.mem_get_info(self._device)[0]
