"""The client against a server that answers byte for byte what the test says."""

from __future__ import annotations

import socket
import threading
from collections.abc import Coroutine, Iterator
from typing import Any

import pytest

from sglang_lite.errors import ExecutionError, RequestError
from sglang_lite.lang.backends.http_client import HEADERS_ID, HttpClient, RefusedError, UnreachableError, shared_loop

TIMEOUT_S = 30.0


class RawServer:
    """Takes connections one after the other; each gets its list of answers, one a request, then is closed."""

    def __init__(self, connections: list[list[bytes]]) -> None:
        self.requests: list[bytes] = []
        self._connections = connections
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._listening.settimeout(TIMEOUT_S)
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        for answers in self._connections:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            connection.settimeout(TIMEOUT_S)
            with connection:
                for answer in answers:
                    self.requests.append(self._read(connection))
                    connection.sendall(answer)

    @staticmethod
    def _read(connection: socket.socket) -> bytes:
        data = b""
        while b"\r\n\r\n" not in data:
            part = connection.recv(65536)
            if not part:
                return data
            data += part
        head, _, body = data.partition(b"\r\n\r\n")
        length = next(
            (int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length")), 0
        )
        while len(body) < length:
            body += connection.recv(65536)
        return head + b"\r\n\r\n" + body

    def close(self) -> None:
        self._listening.close()


@pytest.fixture
def serve() -> Iterator[Any]:
    made: list[RawServer] = []

    def start(*connections: list[bytes]) -> RawServer:
        made.append(RawServer(list(connections)))
        return made[-1]

    yield start
    for server in made:
        server.close()


def wait(work: Coroutine[Any, Any, Any]) -> Any:
    return shared_loop.start(work).result(TIMEOUT_S)


async def collect(client: HttpClient) -> list[tuple[str | None, str]]:
    return [item async for item in client.events("POST", "/e", {"a": 1}, {})]


def plain(body: bytes, more: bytes = b"") -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n%s\r\n%s" % (len(body), more, body)


def test_a_connection_is_used_again(serve: Any) -> None:
    server = serve([plain(b'{"n":1}'), plain(b'{"n":2}')])
    client = HttpClient(server.url, "key")
    assert wait(client.request("POST", "/x", {"é": 1})).json() == {"n": 1}
    assert wait(client.request("GET", "/y")).json() == {"n": 2}
    first, second = server.requests
    assert first.startswith(b"POST /x HTTP/1.1\r\n")
    assert b"Authorization: Bearer key\r\n" in first
    assert first.endswith('\r\n\r\n{"é": 1}'.encode())
    assert b"Content-Length" not in second


def test_chunks_and_announcements_are_understood(serve: Any) -> None:
    head = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 404 Not Found\r\nTransfer-Encoding: chunked\r\n\r\n"
    server = serve([head + b"3\r\n[1,\r\n2;x=y\r\n2]\r\n0\r\nTrailer: t\r\n\r\n", plain(b"{}")])
    client = HttpClient(server.url)
    answer = wait(client.request("GET", "/"))
    assert (answer.status, answer.json()) == (404, [1, 2])
    assert wait(client.request("GET", "/")).status == 200


def test_an_idle_connection_that_was_closed_is_replaced(serve: Any) -> None:
    server = serve([plain(b"1")], [plain(b"2")])
    client = HttpClient(server.url)
    assert wait(client.request("GET", "/")).body == b"1"
    assert wait(client.request("GET", "/")).body == b"2"


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort", b"nonsense\r\n\r\n"])
def test_half_an_answer_is_none(serve: Any, answer: bytes) -> None:
    client = HttpClient(serve([answer]).url)
    with pytest.raises(UnreachableError, match="is a server running"):
        wait(client.request("GET", "/"))


def test_events_come_with_their_ids_and_comments_do_not(serve: Any) -> None:
    stream = b': still here\n\nid: 7\ndata: {"a":1}\n\ndata: [DONE]\n\n'
    server = serve([b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nX-Mine: yes\r\n\r\n" + stream])
    events = wait(collect(HttpClient(server.url)))
    assert events[0][0] == HEADERS_ID
    assert '"x-mine": "yes"' in events[0][1]
    assert events[1:] == [("7", '{"a":1}'), ("7", "[DONE]")]


def test_another_answer_than_a_stream_is_refused_whole(serve: Any) -> None:
    server = serve([b"HTTP/1.1 400 Bad\r\nContent-Length: 3\r\n\r\nwhy"])
    with pytest.raises(RefusedError, match="400: why") as refused:
        wait(collect(HttpClient(server.url)))
    assert refused.value.answer.status == 400


def test_what_is_no_json_says_so(serve: Any) -> None:
    answer = wait(HttpClient(serve([plain(b"<html>")]).url).request("GET", "/"))
    with pytest.raises(ExecutionError, match="no JSON, but b'<html>'"):
        answer.json()


def test_wrong_addresses_and_keys_are_refused() -> None:
    with pytest.raises(RequestError, match="expected a URL"):
        HttpClient("ftp://host")
    with pytest.raises(RequestError, match="no header can carry"):
        HttpClient("http://host", "a\nb")
