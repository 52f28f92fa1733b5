"""A scheduler process for real: ready, killed, told to stop, left alone."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from sglang_lite.errors import EngineStoppedError
from sglang_lite.runtime.server.ipc.process import SchedulerProcess
from tests.support.live_server import wait_until
from tests.support.split_engine import COMMAND
from tests.support.toy_text import toy_tokenizer

TIMEOUT_S = 60


class Seen:
    """A process and what it reported."""

    def __init__(self, command: tuple[str, ...] = COMMAND, **settings: Any) -> None:
        self.ready = threading.Event()
        self.ended = threading.Event()
        self.code: int | None = None
        self.process = SchedulerProcess(
            None,
            settings,
            say=lambda line: None,
            on_ready=self.ready.set,
            on_exit=self._exited,
            command=command,
            load=lambda path: toy_tokenizer(),
        )

    def _exited(self, code: int) -> None:
        self.code = code
        self.ended.set()


async def generate(seen: Seen) -> Any:
    assert seen.process.client is not None
    return await seen.process.client.async_generate("hi", {"max_new_tokens": 40, "ignore_eos": True})


def test_it_serves_and_stops_when_told() -> None:
    seen = Seen(default="As told.")
    assert seen.ready.wait(TIMEOUT_S)
    assert asyncio.run(generate(seen))["text"].startswith("As told.")
    wait_until(lambda: seen.process.pulse.steps > 0)
    seen.process.stop()
    assert seen.ended.wait(TIMEOUT_S)
    assert seen.code == 0


def test_killed_in_mid_request_it_fails_at_once() -> None:
    seen = Seen(is_slow=True)
    assert seen.ready.wait(TIMEOUT_S)

    async def kill_midway() -> Any:
        waiting = asyncio.ensure_future(generate(seen))
        await asyncio.sleep(0)
        seen.process.kill()
        return await asyncio.wait_for(waiting, TIMEOUT_S)

    with pytest.raises(EngineStoppedError, match=f"signal {signal.SIGKILL}"):
        asyncio.run(kill_midway())
    assert seen.ended.wait(TIMEOUT_S)
    assert seen.code == -signal.SIGKILL


def test_a_scheduler_that_stands_with_work_is_seen() -> None:
    """Its steps do not go on, so the time since the last one grows; without work there is nothing to stand still."""
    seen = Seen(is_slow=True)
    assert seen.ready.wait(TIMEOUT_S)
    assert seen.process.pulse.stands_s == 0

    async def look() -> None:
        waiting = asyncio.ensure_future(generate(seen))
        await asyncio.to_thread(wait_until, lambda: seen.process.pulse.stands_s > 0.5)
        seen.process.kill()
        with pytest.raises(EngineStoppedError):
            await waiting

    asyncio.run(look())
    assert seen.ended.wait(TIMEOUT_S)


def test_one_that_cannot_start_says_why() -> None:
    seen = Seen((sys.executable, "-c", "import sys; sys.exit(3)"))
    assert seen.ended.wait(TIMEOUT_S)
    assert seen.code == 3
    assert seen.process.client is None


def test_its_sockets_are_private_and_gone_at_the_end() -> None:
    seen = Seen()
    assert seen.ready.wait(TIMEOUT_S)
    folder = seen.process.folder
    assert folder.stat().st_mode & 0o777 == 0o700
    seen.process.stop()
    assert not folder.exists()


def test_it_ends_with_the_process_that_started_it() -> None:
    code = """
import sys, threading
from tests.runtime.server.ipc.test_process import Seen
seen = Seen()
assert seen.ready.wait(60)
print(seen.process.pid, flush=True)
sys.stdin.read()
"""
    parent = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    parent.kill()
    parent.communicate()
    wait_until(lambda: not _is_alive(pid))


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False
