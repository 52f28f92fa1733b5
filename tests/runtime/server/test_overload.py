"""More than a server can do: clients that go while they wait, full queues, readers that do not read."""

from __future__ import annotations

import json
import socket
import threading
from concurrent.futures import Future
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.support.live_server import LiveServer, live_server, wait_until
from tests.support.talking_engine import ToyGrammars, talking_engine

ENDLESS = {"max_new_tokens": 400, "ignore_eos": True}


def begin(server: LiveServer, body: object, *, receives: int | None = None) -> socket.socket:
    """A request on a connection of its own, whose receiving buffer may be small."""
    host = urlsplit(server.url)
    raw = socket.socket()
    if receives is not None:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receives)
    raw.connect((host.hostname, host.port))
    data = json.dumps(body).encode()
    raw.sendall(
        f"POST /generate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n".encode()
        + data
    )
    return raw


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_goes_while_its_grammar_is_compiled_frees_its_request(
    monkeypatch: pytest.MonkeyPatch, stream: bool
) -> None:
    """The compiling never ends here; the request ends with its client, and what others ask is done."""
    monkeypatch.setattr(ToyGrammars, "submit", lambda *_: Future[Any]())
    with talking_engine() as (engine, runner), live_server(engine) as server:
        raw = begin(server, {"text": "a", "stream": stream, "sampling_params": {"regex": "slow"}})
        wait_until(lambda: engine.get_server_info()["waiting_for_grammar"] == 1)
        steps = runner.num_steps
        raw.close()
        wait_until(lambda: server.app.log.in_flight == 0)
        info = engine.get_server_info()
        assert (info["waiting_for_grammar"], info["waiting"]) == (0, 0)
        assert runner.num_steps <= steps + 2
        assert server.post("/generate", {"text": "Hi"}).json()["text"] == "Hello there."


def test_a_full_queue_answers_503_and_says_when_to_come_again(monkeypatch: pytest.MonkeyPatch) -> None:
    with talking_engine(rows=1, max_queued=1) as (engine, runner), live_server(engine) as server:
        submit, came = engine.submit, list[object]()

        def noted(*args: Any, **kwargs: Any) -> list[str]:
            rids = submit(*args, **kwargs)
            came.append(rids)
            return rids

        monkeypatch.setattr(engine, "submit", noted)
        runner.gate = threading.Semaphore(2)
        waiting = [begin(server, {"text": "a", "sampling_params": ENDLESS})]
        wait_until(lambda: runner.num_steps == 2)  # the first one runs; its next step waits for a permit
        waiting.append(begin(server, {"text": "b", "sampling_params": ENDLESS}))
        wait_until(lambda: len(came) == 2)
        refused: list[Any] = []
        asking = threading.Thread(target=lambda: refused.append(server.post("/generate", {"text": "c"})))
        asking.start()
        wait_until(lambda: len(came) == 3)
        # both are with the engine, in this order; it looks at them after its step
        runner.gate.release(3)
        asking.join(60)
        assert refused[0].status_code == 503
        assert int(refused[0].headers["retry-after"]) >= 1
        for raw in waiting:
            raw.close()
        runner.gate.release(1000)


def test_a_reader_that_does_not_read_stops_nobody() -> None:
    """Its stream waits in buffers of the system; the server keeps the newest reply for it, others get theirs."""
    with talking_engine(context=4096, num_pages=2048) as (engine, runner), live_server(engine) as server:
        runner.default = "y" * 3000
        raw = begin(server, {"text": "a", "stream": True, "sampling_params": {"max_new_tokens": 3000}}, receives=4096)
        assert raw.recv(1, socket.MSG_PEEK)  # its answer has begun; nothing of it is read
        for number in range(3):
            reply = server.post("/generate", {"text": f"b{number}", "sampling_params": {"max_new_tokens": 20}})
            assert reply.json()["text"] == "y" * 20
        wait_until(lambda: engine.get_server_info()["running"] == 0)
        raw.close()
        wait_until(lambda: server.app.log.in_flight == 0)
