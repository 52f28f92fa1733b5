"""A peer in a process of its own that answers lines of JSON, so that its threads and its libraries do not disturb the others."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.workload import PeerError

_LONG_S = 3600.0


class WorkerProcess:
    """What is not answered by `deadline` (`time.monotonic`) fails, and the process ends. One thread asks at a time.

    Attributes:
        greeting: its first line, which says that it is ready.

    """

    def __init__(self, name: str, command: Sequence[str], threads: int, start_s: float) -> None:
        """Start it and wait until it is ready, `start_s` seconds at most. `name`: for messages."""
        self.deadline = float("inf")
        self._name = name
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        root = str(Path(__file__).parents[2])
        paths = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
        try:
            self._process = subprocess.Popen(
                list(command),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._log,
                text=True,
                env=os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": str(threads)},
            )
        except OSError as error:
            self._log.close()
            raise PeerError(f"starting {name}: {error}") from error
        try:
            self.greeting = self._read(start_s)
        except BaseException:
            self.stop()
            raise

    def ask(self, message: dict[str, Any]) -> dict[str, Any]:
        """Its reply.

        Raises:
            PeerError: it failed, ended, or is late.
        """
        assert self._process.stdin is not None, "started with a pipe"
        try:
            self._process.stdin.write(json.dumps(message) + "\n")
            self._process.stdin.flush()
        except OSError as error:
            raise PeerError(f"asking {self._name}: {error!r}") from error
        return self._read(max(min(self.deadline - time.monotonic(), _LONG_S), 0.1))

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
            raise PeerError(f"waiting for {self._name}: no answer within {seconds:.0f} s")
        if not line:
            self._log.seek(0)
            last = self._log.read().decode(errors="replace").strip().splitlines()[-1:]
            raise PeerError(f"waiting for {self._name}: the process ended: {' '.join(last)}")
        reply = json.loads(line)
        if "error" in reply:
            raise PeerError(f"{self._name} failed: {reply['error']}")
        return reply
