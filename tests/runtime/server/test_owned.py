"""The two pipes between a server and the process that owns it."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest

from sglang_lite.errors import ModelLoadError, RequestError
from sglang_lite.runtime.server.owned import Owner

TIMEOUT_S = 30


class Pipes:
    """Both pipes, and the owner's ends of them."""

    def __init__(self) -> None:
        there, self.to_server = (os.fdopen(fd, mode) for fd, mode in zip(os.pipe(), ("rb", "wb"), strict=True))
        self.from_server, here = (os.fdopen(fd, mode) for fd, mode in zip(os.pipe(), ("rb", "wb"), strict=True))
        self._server_ends = (there, here)
        self.owner = Owner(there, here)

    def close(self) -> None:
        for file in (*self._server_ends, self.from_server, self.to_server):
            with suppress(BrokenPipeError):
                file.close()


@pytest.fixture
def pipes() -> Iterator[Pipes]:
    made = Pipes()
    yield made
    made.close()


def test_settings_come_and_what_becomes_of_the_server_goes(pipes: Pipes) -> None:
    pipes.to_server.write(b'{"port": 0}\n')
    pipes.to_server.flush()
    assert pipes.owner.settings() == {"port": 0}
    pipes.owner.ready("http://x")
    pipes.owner.failed(ModelLoadError("no such file"))
    assert json.loads(pipes.from_server.readline()) == {"ready": "http://x", "pid": os.getpid()}
    assert json.loads(pipes.from_server.readline()) == {"error": {"type": "ModelLoadError", "message": "no such file"}}


@pytest.mark.parametrize("line", [b"[1]\n", b"no json\n", b"\n"])
def test_other_first_lines_are_refused(pipes: Pipes, line: bytes) -> None:
    pipes.to_server.write(line)
    pipes.to_server.flush()
    with pytest.raises(RequestError, match="expected a JSON object"):
        pipes.owner.settings()


def test_the_end_of_the_owner_is_noticed_and_told_once(pipes: Pipes) -> None:
    gone = threading.Event()
    pipes.owner.watch(gone.set, patience_s=3600)
    pipes.to_server.write(b"more")
    pipes.to_server.flush()
    assert not gone.is_set()
    pipes.to_server.close()
    assert gone.wait(TIMEOUT_S)


def test_an_owner_that_has_gone_hears_nothing(pipes: Pipes) -> None:
    pipes.from_server.close()
    pipes.owner.ready("http://x")
