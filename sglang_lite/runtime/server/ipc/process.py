"""The scheduler process's life: started, watched, ended, started again; knows no route."""

from __future__ import annotations

import logging
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sglang_lite.errors import EngineStoppedError, SglangLiteError
from sglang_lite.op_json import error_from_json
from sglang_lite.runtime.engine.cache_folder import cache_folder
from sglang_lite.runtime.model.gguf_file import GgufFile
from sglang_lite.runtime.server.ipc import messages as ipc
from sglang_lite.runtime.server.ipc.channel import Channel
from sglang_lite.runtime.server.ipc.client import EngineClient
from sglang_lite.runtime.text.tokenizer import Tokenizer
from sglang_lite.runtime.text.tokenizer_cache import load_tokenizer

logger = logging.getLogger("sglang_lite.server")

_STOP_S = 10.0
"""How long a scheduler that was told to stop may take before it is killed."""


@dataclass(frozen=True, slots=True)
class Pulse:
    """What the scheduler last said of itself. `stands_s`: seconds since its last step, with work to do; else 0."""

    steps: int
    has_work: bool
    stands_s: float


class SchedulerProcess:
    """One scheduler process and the client of it.

    A reading thread takes its messages; when the process ends, by itself or not, everything open fails at once and
    `on_exit` is called with its exit code (on that thread).
    """

    def __init__(
        self,
        model_path: str | None,
        settings: dict[str, Any],
        *,
        say: Callable[[str], None],
        on_ready: Callable[[], None],
        on_exit: Callable[[int], None],
        command: tuple[str, ...] = (sys.executable, "-m", "sglang_lite.runtime.server.ipc.worker"),
        load: Callable[[str], Tokenizer] | None = None,
    ) -> None:
        """Start it; returns at once. `load` gives the tokenizer of a model's path."""
        self.client: EngineClient | None = None
        self.info: dict[str, Any] = {}
        self.error: SglangLiteError | None = None
        self._say = say
        self._on_ready = on_ready
        self._on_exit = on_exit
        self._load = load or load_model_tokenizer
        self._beat = ipc.Beat(0, has_work=False)
        self._moved_s = time.monotonic()
        self.folder = Path(tempfile.mkdtemp(prefix="sglang-lite-"))  # readable by this user only
        self._channel: Channel[ipc.FromScheduler] = Channel(self.folder, "http", ipc.FromScheduler)
        self._channel.send(ipc.Start(ipc.VERSION, model_path, settings))
        # Its standard input is how it learns that this process is gone.
        self._process = subprocess.Popen([*command, str(self.folder)], stdin=subprocess.PIPE, start_new_session=True)
        self._reader = threading.Thread(target=self._read, name="scheduler-reader", daemon=True)
        self._watcher = threading.Thread(target=self._watch, name="scheduler-watch", daemon=True)
        self._reader.start()
        self._watcher.start()

    @property
    def pid(self) -> int:
        """Of the scheduler process."""
        return self._process.pid

    @property
    def pulse(self) -> Pulse:
        """Whether it moves."""
        beat = self._beat
        return Pulse(beat.steps, beat.has_work, time.monotonic() - self._moved_s if beat.has_work else 0.0)

    def stop(self) -> None:
        """Tell it to end, and see that it does; waits. One that still loads hears nothing and is killed."""
        if self.client is None:
            self.kill()
        self._channel.send(ipc.Stop())
        try:
            self._process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self.kill()
        self._watcher.join()

    def kill(self) -> None:
        """End it now."""
        self._process.kill()

    def _read(self) -> None:
        try:
            while (message := self._channel.receive()) is not None:
                self._take(message)
        except Exception:
            logger.exception("reading from the scheduler process failed; it is ended")
            self.kill()
        finally:
            self._channel.release()

    def _take(self, message: ipc.FromScheduler) -> None:
        match message:
            case ipc.Progress(line=line):
                self._say(line)
            case ipc.Failed(error=error):
                self.error = error_from_json(error)
            case ipc.Ready():
                self.info = message.info
                self.client = EngineClient(self._channel.send, message, self._load(str(message.info["model_path"])))
                self._on_ready()
            case ipc.Beat():
                if message.steps != self._beat.steps or not message.has_work or not self._beat.has_work:
                    self._moved_s = time.monotonic()
                self._beat = message
                if self.client is not None:
                    self.client.take(message)
            case _:
                if self.client is not None:
                    self.client.take(message)

    def _watch(self) -> None:
        code = self._process.wait()
        self._channel.close()
        self._reader.join()
        if self._process.stdin is not None:
            self._process.stdin.close()
        shutil.rmtree(self.folder, ignore_errors=True)
        if self.client is not None:
            how = f"signal {-code}" if code < 0 else f"exit code {code}"
            self.client.die(EngineStoppedError(f"the scheduler process ended ({how}); send the request again"))
        self._on_exit(code)


def load_model_tokenizer(path: str) -> Tokenizer:
    """The tokenizer of a model that a scheduler has loaded. The scheduler has prepared it on disk, so that this reads one file; else it is made from the model again."""
    return load_tokenizer(Path(path), cache_folder(), lambda model: GgufFile(model).metadata)
