"""transformers in float32 as a peer, in a process of its own so that its threads do not disturb the others."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.workload import BatchTimes, PeerError

_START_S = 120.0


class HfPeer:
    """A `BatchPeer`. What is not answered by `deadline` (`time.monotonic`) fails, and the process ends."""

    def __init__(self, model: Path, threads: int, command: Sequence[str] | None = None) -> None:
        """Start. `command`: in place of the worker."""
        worker = [sys.executable, "-m", "benchmarks.peers.hf_worker", str(model), str(threads)]
        self.deadline = float("inf")
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        root = str(Path(__file__).parents[2])
        paths = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
        self._process = subprocess.Popen(
            list(command or worker),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env=os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": str(threads)},
        )
        try:
            self._read(_START_S)
        except BaseException:
            self.stop()
            raise

    def generate(self, prompts: Sequence[Sequence[int]], out: int) -> BatchTimes:
        """Greedy."""
        assert self._process.stdin is not None, "started with a pipe"
        try:
            self._process.stdin.write(json.dumps({"prompts": [list(ids) for ids in prompts], "out": out}) + "\n")
            self._process.stdin.flush()
        except OSError as error:
            raise PeerError(f"asking transformers: {error!r}") from error
        reply = self._read(max(min(self.deadline - time.monotonic(), 3600.0), 0.1))
        return BatchTimes(reply["prefill_s"], reply["decode_s"])

    def stop(self) -> None:
        """End the process. Idempotent."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        if not self._log.closed:
            self._log.close()

    def _read(self, seconds: float) -> dict[str, Any]:
        """The next reply; a process that is late is ended, which ends the wait."""
        assert self._process.stdout is not None, "started with a pipe"
        is_late = threading.Event()

        def end() -> None:
            is_late.set()
            self._process.kill()

        timer = threading.Timer(seconds, end)
        timer.start()
        try:
            line = self._process.stdout.readline()
        finally:
            timer.cancel()
        if is_late.is_set():
            raise PeerError(f"waiting for transformers: no answer within {seconds:.0f} s")
        if not line:
            self._log.seek(0)
            last = self._log.read().decode(errors="replace").strip().splitlines()[-1:]
            raise PeerError(f"waiting for transformers: the process ended: {' '.join(last)}")
        reply = json.loads(line)
        if "error" in reply:
            raise PeerError(f"transformers failed: {reply['error']}")
        return reply
