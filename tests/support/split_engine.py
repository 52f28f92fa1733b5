"""An engine behind the messages of the scheduler process, both ends in this process; and a process to start for real."""

from __future__ import annotations

import shutil
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from sglang_lite.errors import EngineStoppedError, ExecutionError
from sglang_lite.runtime.engine.engine import Engine
from sglang_lite.runtime.server.engine_port import EnginePort
from sglang_lite.runtime.server.ipc import messages as ipc
from sglang_lite.runtime.server.ipc.channel import Channel
from sglang_lite.runtime.server.ipc.client import EngineClient
from sglang_lite.runtime.server.ipc.worker import Worker, end_with_parent, host
from sglang_lite.runtime.text.tokenizer import Tokenizer
from tests.support.talking_engine import talking_engine

COMMAND = (sys.executable, "-m", "tests.support.split_engine")
"""Starts a scheduler process with a talking engine, whose settings are `default` (what it says)."""


@contextmanager
def split_engine(engine: Engine, tokenizer: Tokenizer | None = None) -> Iterator[EngineClient]:
    """A client whose scheduler end is a thread of this process; the engine is not shut down at the end.

    `tokenizer`: the client's own, as the process of a server loads it; None: the engine's.
    """
    folder = Path(tempfile.mkdtemp(prefix="ipc-"))
    here: Channel[ipc.FromScheduler] = Channel(folder, "http", ipc.FromScheduler)
    there: Channel[ipc.ToScheduler] = Channel(folder, "scheduler", ipc.ToScheduler)
    limits = engine.limits
    ready = ipc.Ready(
        ipc.VERSION, engine.get_server_info(), limits.vocab_size, limits.context_length, limits.pool_tokens
    )
    client = EngineClient(here.send, ready, tokenizer or engine.tokenizer)
    worker = Worker(engine, there, ends_engine=False)

    def serve() -> None:
        worker.run()
        there.release()

    def read() -> None:
        while (message := here.receive()) is not None:
            client.take(message)
        here.release()

    threads = [threading.Thread(target=serve, name="worker"), threading.Thread(target=read, name="reader")]
    for thread in threads:
        thread.start()
    try:
        yield client
    finally:
        here.send(ipc.Stop())
        threads[0].join()
        here.close()
        threads[1].join()
        client.die(EngineStoppedError("the test is over"))
        shutil.rmtree(folder)


def until_taken(engine: EnginePort) -> None:
    """Wait until the scheduler end has taken every message sent before; it answers this one whatever step runs."""
    with pytest.raises(ExecutionError, match="nonsense"):
        engine.call("nonsense")


def main(folder: str) -> int:
    end_with_parent()
    channel: Channel[ipc.ToScheduler] = Channel(Path(folder), "scheduler", ipc.ToScheduler)
    with talking_engine() as (engine, runner):

        def make(model_path: str | None, settings: dict[str, Any]) -> Engine:
            runner.default = settings.get("default", runner.default)
            if settings.get("is_slow"):
                runner.gate = threading.Semaphore(3)
            return engine

        try:
            return host(channel, make)
        finally:
            channel.release()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
