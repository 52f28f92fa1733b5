"""Two one-way ZeroMQ sockets in a private folder: one end sends from any thread, the other reads on one."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

import msgspec
import zmq

from sglang_lite.runtime.server.ipc.messages import Message

T = TypeVar("T")

_POLL_MS = 200
"""How often a reader looks whether its channel was closed."""


class Channel(Generic[T]):
    """One process's end of a pair of sockets. Who reads binds: one that binds to send would wait for the other.

    `send` may be called from any thread and never waits: both ends read without pause, so what is queued is short.
    `receive` belongs to one thread.
    """

    def __init__(self, folder: Path, side: Literal["http", "scheduler"], receives: Any) -> None:
        """`receives`: the type of the messages that come (a union of `Message` classes)."""
        self._context = zmq.Context()
        names = ("to_scheduler", "from_scheduler")
        sends, reads = names if side == "http" else names[::-1]
        self._out = self._socket(zmq.PUSH, folder / sends)
        self._in = self._socket(zmq.PULL, folder / reads)
        self._lock = threading.Lock()
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder: msgspec.msgpack.Decoder[T] = msgspec.msgpack.Decoder(receives)
        self._is_closed = False

    def _socket(self, kind: int, path: Path) -> zmq.Socket[bytes]:
        socket = self._context.socket(kind)
        socket.set_hwm(0)  # a dropped or delayed message would be a lost reply; the other end reads at once
        socket.setsockopt(zmq.LINGER, 1000)
        if kind == zmq.PULL:
            socket.bind(f"ipc://{path}")
        else:
            socket.connect(f"ipc://{path}")
        return socket

    def send(self, message: Message) -> None:
        """Queue a message; after `close` nothing happens."""
        data = self._encoder.encode(message)
        with self._lock:
            if not self._is_closed:
                self._out.send(data, copy=len(data) < 65536)

    def receive(self) -> T | None:
        """Wait for the next message; None: the channel was closed here, and what had come before is read.

        Raises:
            msgspec.ValidationError: what came is not a message of this version.
        """
        while True:
            is_last = self._is_closed
            if self._in.poll(0 if is_last else _POLL_MS):
                return self._decoder.decode(self._in.recv())
            if is_last:
                return None

    def close(self) -> None:
        """No more is sent; the reader ends. The sockets are freed by the reader's `release`. Idempotent."""
        with self._lock:
            if not self._is_closed:
                self._is_closed = True
                self._out.close()

    def release(self) -> None:
        """Free the sockets; called by the reading thread, as its last act."""
        self.close()
        self._in.close()
        self._context.term()
