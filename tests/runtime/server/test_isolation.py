"""`--cache-isolation key`: prefixes are shared under one API key, and not between two; programs, too."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sglang_lite.errors import RequestError
from sglang_lite.runtime.server.config import ServerConfig
from tests.support.live_server import LiveServer, live_server
from tests.support.split_engine import split_engine
from tests.support.talking_engine import talking_engine

PROMPT = "a prompt that is long enough for several pages of the cache, whoever sends it."


@pytest.fixture(params=["key", "none"])
def isolation(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def server(isolation: str) -> Iterator[LiveServer]:
    """Two keys; the engine behind the messages of its own process."""
    with (
        talking_engine() as (engine, _),
        split_engine(engine) as client,
        live_server(client, api_keys=("one", "two"), cache_isolation=isolation) as made,
    ):
        yield made


def cached(server: LiveServer, key: str, path: str = "/generate", **more: object) -> int:
    field = {"text": PROMPT, "sampling_params": {"max_new_tokens": 1}} if path == "/generate" else {"prompt": PROMPT}
    reply = server.http.post(path, json={**field, **more}, headers={"Authorization": f"Bearer {key}"}).json()
    if path == "/generate":
        return reply["meta_info"]["cached_tokens"]
    return reply["usage"]["prompt_tokens_details"]["cached_tokens"]


def test_a_key_finds_its_own_prefixes_only(server: LiveServer, isolation: str) -> None:
    assert cached(server, "one") == 0
    assert cached(server, "one") >= 64
    assert (cached(server, "two") == 0) == (isolation == "key")
    assert cached(server, "two") >= 64
    assert cached(server, "one", "/v1/completions", cache_salt="mine") == 0
    assert cached(server, "one", "/v1/completions", cache_salt="mine") >= 64
    assert (cached(server, "two", "/v1/completions", cache_salt="mine") == 0) == (isolation == "key")


def test_programs_are_apart_as_well(server: LiveServer, isolation: str) -> None:
    gen = {"op": "gen", "id": 1, "branch": 0, "name": None, "params": {"max_new_tokens": 1}}
    ops = [{"op": "text", "id": 0, "branch": 0, "text": PROMPT}, gen]

    def run(key: str) -> int:
        body = {"ops": ops, "close": True, "stream": True}
        text = server.http.post("/v1/programs", json=body, headers={"Authorization": f"Bearer {key}"}).text
        return int(text.partition('"cached_tokens":')[2].partition(",")[0])

    assert run("one") == 0
    assert run("one") >= 64
    assert (run("two") == 0) == (isolation == "key")


def test_an_unknown_isolation_is_refused() -> None:
    with pytest.raises(RequestError, match="expected none, or key"):
        ServerConfig(cache_isolation="user")
