"""A balancer on a free port of the loopback: each new connection goes to the next of its servers; it can cut them all."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit


class Proxy:
    """`urls`: the servers, in turn; none: connections are closed at once, as by a machine where nothing listens.

    `counts`: connections that each server got.
    """

    def __init__(self, *urls: str) -> None:
        self.urls = list(urls)
        self.url = ""
        self.counts: dict[str, int] = {}
        self._turn = 0
        self._loop = asyncio.new_event_loop()
        self._writers: set[asyncio.StreamWriter] = set()

    def cut(self, *urls: str) -> None:
        """Break every connection; new ones go to `urls`."""

        async def work() -> None:
            self.urls = list(urls)
            for writer in list(self._writers):
                writer.transport.abort()

        asyncio.run_coroutine_threadsafe(work(), self._loop).result(60)

    async def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection until either side ends it."""
        if not self.urls:
            writer.transport.abort()
            return
        url = self.urls[self._turn % len(self.urls)]
        self._turn += 1
        self.counts[url] = self.counts.get(url, 0) + 1
        parts = urlsplit(url)
        try:
            there, back = await asyncio.open_connection(parts.hostname, parts.port)
        except OSError:
            writer.transport.abort()
            return
        self._writers |= {writer, back}
        if not self.urls:
            back.transport.abort()
        copies = [asyncio.create_task(_copy(reader, back)), asyncio.create_task(_copy(there, writer))]
        try:
            await asyncio.wait(copies, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._writers -= {writer, back}
            for end in (writer, back):
                end.transport.abort()
            await asyncio.gather(*copies)

    def run(self, ready: threading.Event, stop: asyncio.Event) -> None:
        """Serve until `stop`."""

        async def main() -> None:
            server = await asyncio.start_server(self.take, "127.0.0.1", 0)
            self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            ready.set()
            await stop.wait()
            server.close()
            self.urls = []
            while others := asyncio.all_tasks() - {asyncio.current_task()}:
                for writer in list(self._writers):
                    writer.transport.abort()
                await asyncio.wait(others, timeout=0.01)
            for _ in range(3):  # for what aborted transports have put off
                await asyncio.sleep(0)

        self._loop.run_until_complete(main())
        self._loop.close()

    def end(self, stop: asyncio.Event) -> None:
        """Stop serving."""
        self._loop.call_soon_threadsafe(stop.set)


@contextmanager
def proxy(*urls: str) -> Iterator[Proxy]:
    """A balancer over these servers, until the end of the block."""
    made, ready, stop = Proxy(*urls), threading.Event(), asyncio.Event()
    thread = threading.Thread(target=made.run, args=(ready, stop), name="proxy")
    thread.start()
    assert ready.wait(60), "the proxy does not start"
    try:
        yield made
    finally:
        made.end(stop)
        thread.join(60)


async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await source.read(1 << 16):
            target.write(data)
            await target.drain()
