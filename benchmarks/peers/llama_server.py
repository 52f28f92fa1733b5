"""One llama-server process: its start, its requests over HTTP, its end."""

from __future__ import annotations

import http.client
import json
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.workload import Completion, PeerError, Request

_TOKENS_A_SLOT = 2048
_START_S = 60.0
_LONG_S = 3600.0
_LAST_LINES = 5


@dataclass(frozen=True)
class ServerSettings:
    """How a server is started. `parallel`: its slots, which share one KV buffer of 2,048 tokens each."""

    binary: Path
    model: Path
    parallel: int
    threads: int

    def command(self, port: int) -> list[str]:
        """The command line."""
        return [
            *(str(self.binary), "--model", str(self.model), "--host", "127.0.0.1", "--port", str(port)),
            *("--threads", str(self.threads), "--threads-batch", str(self.threads)),
            *("--parallel", str(self.parallel), "--kv-unified", "--ctx-size", str(_TOKENS_A_SLOT * self.parallel)),
            *("--threads-http", str(2 * self.parallel + 4), "--cache-ram", "1024", "--no-webui"),
        ]


class LlamaServer:
    """A `CompletionServer`. Requests that are not answered by `deadline` (`time.monotonic`) fail."""

    def __init__(self, settings: ServerSettings) -> None:
        self.settings = settings
        self.deadline = float("inf")
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the server
        self._port = _free_port()
        self._places = threading.Semaphore(2 * settings.parallel)  # a request waits at each slot, so that none is idle
        command = settings.command(self._port)
        try:
            self._process = subprocess.Popen(command, stdout=self._log, stderr=self._log, stdin=subprocess.DEVNULL)
        except OSError as error:
            self._log.close()
            raise PeerError(f"starting {settings.binary}: {error}") from error
        try:
            self._wait_until_ready()
        except BaseException:
            self.stop()
            raise

    @property
    def parallel(self) -> int:
        """Slots."""
        return self.settings.parallel

    def complete(self, request: Request) -> Completion:
        """Greedy. A token list is taken as it is; a text is tokenised by the server."""
        reply = self._post("/completion", _body(request))
        timings = reply["timings"]
        return Completion(
            text=reply["content"],
            tokens=int(timings["predicted_n"]),
            prompt_tokens_computed=int(timings["prompt_n"]),
            decode_s=float(timings["predicted_ms"]) / 1e3,
        )

    def complete_all(self, requests: Sequence[Request]) -> list[Completion]:
        """In order, twice as many under way as there are slots."""
        with ThreadPoolExecutor(2 * self.parallel) as threads:
            return list(threads.map(self.complete, requests))

    def stop(self) -> None:
        """End the process. Idempotent."""
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(10)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        if not self._log.closed:
            self._log.close()

    def _post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        is_placed = self._places.acquire(timeout=max(min(self.deadline - time.monotonic(), _LONG_S), 0.0))
        left = min(self.deadline - time.monotonic(), _LONG_S)
        if not is_placed or left <= 0:
            if is_placed:
                self._places.release()
            raise PeerError("asking llama-server: the time for this run is over")
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=left)
        try:
            connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
            response = connection.getresponse()
            text = response.read()
        except (OSError, http.client.HTTPException) as error:
            late = " (the time for this run is over)" if time.monotonic() >= self.deadline else ""
            raise PeerError(f"asking llama-server: {error!r}{late}; {self._state()}") from error
        finally:
            connection.close()
            self._places.release()
        if response.status != http.HTTPStatus.OK:
            raise PeerError(f"asking llama-server: status {response.status}, {text[:200]!r}")
        return json.loads(text)

    def _wait_until_ready(self) -> None:
        end = time.monotonic() + _START_S
        while time.monotonic() < end:
            if self._process.poll() is not None:
                raise PeerError(f"starting {self.settings.binary.name}: {self._state()}")
            connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=2)
            try:
                connection.request("GET", "/health")
                if connection.getresponse().status == http.HTTPStatus.OK:
                    return
            except OSError:
                pass
            finally:
                connection.close()
            time.sleep(0.1)
        raise PeerError(f"starting {self.settings.binary.name}: not ready after {_START_S:.0f} s; {self._state()}")

    def _state(self) -> str:
        code = self._process.poll()
        if code is None:
            return "the process runs"
        self._log.seek(0)
        lines = self._log.read().decode(errors="replace").strip().splitlines()[-_LAST_LINES:]
        return f"it ended with status {code}: {' | '.join(lines)}"


def _body(request: Request) -> dict[str, Any]:
    """Greedy with the least of samplers, so that the server spends no time on what is not asked."""
    prompt = request.prompt if isinstance(request.prompt, str) else list(request.prompt)
    body: dict[str, Any] = {
        "prompt": prompt,
        "n_predict": request.max_tokens,
        "samplers": ["top_k"],
        "top_k": 1,
        "ignore_eos": request.ignore_eos,
        "cache_prompt": True,
    }
    if request.choices is not None:
        body["grammar"] = "root ::= " + " | ".join(map(json.dumps, request.choices))
    if request.schema is not None:
        body["json_schema"] = json.loads(request.schema)
    return body


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
