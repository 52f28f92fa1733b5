"""One talking engine, and one server over it, for all tests of this folder that need no settings of their own.

The server reaches the engine by the messages that a scheduler process would get.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sglang_lite.runtime.engine.engine import Engine
from tests.support.live_server import LiveServer, live_server
from tests.support.split_engine import split_engine
from tests.support.talking_engine import TalkingRunner, talking_engine


@pytest.fixture(scope="session")
def talking() -> Iterator[tuple[Engine, TalkingRunner]]:
    with talking_engine() as both:
        yield both


@pytest.fixture(scope="session")
def shared_server(talking: tuple[Engine, TalkingRunner]) -> Iterator[LiveServer]:
    with split_engine(talking[0]) as client, live_server(client) as server:
        yield server


@pytest.fixture
def server(shared_server: LiveServer, talking: tuple[Engine, TalkingRunner]) -> LiveServer:
    """The shared server, its engine without replies of another test."""
    talking[1].replies.clear()
    talking[1].prompts.clear()
    return shared_server


@pytest.fixture
def runner(server: LiveServer, talking: tuple[Engine, TalkingRunner]) -> TalkingRunner:
    """What the shared server's engine says."""
    return talking[1]
