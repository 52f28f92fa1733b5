"""transformers in float32 as a peer."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.peers.worker_process import WorkerProcess
from benchmarks.workload import BatchTimes

_START_S = 120.0


class HfPeer(WorkerProcess):
    """A `BatchPeer`."""

    def __init__(self, model: Path, threads: int, command: Sequence[str] | None = None) -> None:
        """Start. `command`: in place of the worker."""
        worker = [sys.executable, "-m", "benchmarks.peers.hf_worker", str(model), str(threads)]
        super().__init__("transformers", command or worker, threads, _START_S)

    def generate(self, prompts: Sequence[Sequence[int]], out: int) -> BatchTimes:
        """Greedy."""
        reply = self.ask({"prompts": [list(ids) for ids in prompts], "out": out})
        return BatchTimes(reply["prefill_s"], reply["decode_s"])
