"""The server as people start it: two processes, on the real model; what happens when one of them is killed."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pytest

from sglang_lite.errors import ModelLoadError, RequestError
from sglang_lite.runtime.server.config import ServerConfig
from sglang_lite.runtime.server.launch import launch
from tests.support.live_server import wait_until

TIMEOUT_S = 100
BODY = {"text": "The capital of France is", "sampling_params": {"max_new_tokens": 4, "temperature": 0}}


class Started:
    """A server's process, the lines it has written, a client of it."""

    def __init__(self, running: subprocess.Popen[str]) -> None:
        self.running = running
        self.lines: list[str] = []
        address = self.wait_for("listening at ").split("listening at ")[1].split(",")[0]
        self.http = httpx.Client(base_url=address, timeout=TIMEOUT_S, trust_env=False)

    def wait_for(self, text: str) -> str:
        assert self.running.stderr is not None
        while line := self.running.stderr.readline():
            self.lines.append(line)
            if text in line:
                return line
        raise AssertionError(f"{text!r} never came: {self.lines}")

    def scheduler_pid(self) -> int:
        children = Path(f"/proc/{self.running.pid}/task/{self.running.pid}/children").read_text().split()
        return next(int(pid) for pid in children if b"ipc.worker" in Path(f"/proc/{pid}/cmdline").read_bytes())


@contextmanager
def serving(*flags: str) -> Iterator[Started]:
    command = [sys.executable, "-m", "sglang_lite.launch_server", "--port", "0", "--max-total-tokens", "4096", *flags]
    running = subprocess.Popen(command, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)
    with ExitStack() as last:
        last.callback(running.communicate, timeout=TIMEOUT_S)
        last.callback(running.kill)
        server = Started(running)
        last.enter_context(server.http)
        yield server


@pytest.mark.model
def test_a_killed_scheduler_comes_back_and_the_server_ends_well() -> None:
    """While it loads, the server lives and is not ready; a kill fails what ran; afterwards the answers are the same."""
    with serving("--restart") as server:
        assert server.http.get("/livez").status_code == 200
        assert server.http.get("/readyz").status_code == 503
        server.wait_for("ready at")
        assert server.http.get("/readyz").status_code == 200
        before = server.http.post("/generate", json=BODY).json()["text"]
        first = server.scheduler_pid()
        endless = BODY | {"stream": True, "sampling_params": {"max_new_tokens": 3000, "ignore_eos": True}}
        with server.http.stream("POST", "/generate", json=endless) as response:
            parts = response.iter_text()
            next(parts)
            subprocess.run(["kill", "-9", str(first)], check=True)
            assert "the scheduler process ended" in "".join(parts)
        assert server.http.get("/livez").status_code == 200
        server.wait_for("ready at")
        assert server.scheduler_pid() != first
        assert server.http.post("/generate", json=BODY).json()["text"] == before
        assert server.http.get("/get_server_info").json()["restarts"] == 1
        server.running.send_signal(signal.SIGTERM)
        assert server.running.wait(TIMEOUT_S) == 0


@pytest.mark.model
def test_without_restart_the_server_ends_with_its_scheduler() -> None:
    with serving() as server:
        server.wait_for("ready at")
        pid = server.scheduler_pid()
        subprocess.run(["kill", "-9", str(pid)], check=True)
        assert server.running.wait(TIMEOUT_S) == 1
        wait_until(lambda: not Path(f"/proc/{pid}").exists())


def test_a_model_that_is_not_there_is_the_launchers_error() -> None:
    said: list[str] = []
    with pytest.raises((ModelLoadError, RequestError), match="no-such-model"):
        launch("no-such-model.gguf", {}, ServerConfig(port=0), said.append)
    assert not any("ready at" in line for line in said)


def test_the_http_process_does_not_load_torch() -> None:
    code = "import sys, sglang_lite.runtime.server.launch; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
