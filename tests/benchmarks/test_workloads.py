"""Each workload in its tiny form: on the real model, and on a server that is made up."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import pytest

from benchmarks.peers.program_client import ProgramClient
from benchmarks.workload import BatchTimes, Completion, PeerError, Request
from benchmarks.workloads.all import GROUPS, WORKLOADS
from sglang_lite import Engine


@dataclass
class FakeServer:
    """Says as many words as it may, the second of the choices, or one document."""

    parallel: int = 2
    requests: list[Request] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def complete(self, request: Request) -> Completion:
        with self._lock:
            self.requests.append(request)
        if request.choices is not None:
            text = request.choices[1]
        elif request.schema is not None:
            text = json.dumps(dict.fromkeys(json.loads(request.schema)["properties"], 1))
        else:
            text = " word" * request.max_tokens
        return Completion(text, request.max_tokens, len(request.prompt), 0.5)

    def complete_all(self, requests: Sequence[Request]) -> list[Completion]:
        with ThreadPoolExecutor(self.parallel) as threads:
            return list(threads.map(self.complete, requests))


class FakeBatches:
    def generate(self, prompts: Sequence[Sequence[int]], out: int) -> BatchTimes:
        assert len({len(ids) for ids in prompts}) == 1, "rows of a batch have equal lengths"
        return BatchTimes(0.25, 0.5)


@pytest.mark.model
@pytest.mark.parametrize("code", WORKLOADS)
def test_each_workload_runs_on_the_engine(code: str, engine: Engine) -> None:
    measured = WORKLOADS[code]().tiny().on_engine(engine, seed=1)
    assert measured.amount > 0
    assert measured.seconds > 0


@pytest.mark.parametrize("code", WORKLOADS)
def test_each_workload_runs_on_a_server_with_equal_prompts_for_equal_seeds(code: str) -> None:
    def prompts(seed: int) -> set[str]:
        server = FakeServer()
        measured = WORKLOADS[code]().tiny().on_server(server, seed)
        assert measured.rate > 0
        return {str(request.prompt) for request in server.requests}

    assert prompts(1) == prompts(1)
    assert not prompts(1) & prompts(2), "a round's prompts must be cold"


@pytest.mark.parametrize(("code", "rate"), [("W1", 2.0), ("W2", 16 / 3), ("W3", 96.0), ("W4", 4 / 3)])
def test_rates_of_batches_count_what_was_made(code: str, rate: float) -> None:
    """W1: one token after the first in 0.5 s; W2: 2 x 2 tokens in 0.75 s; W3: 48 tokens in 0.5 s; W4: one request."""
    assert WORKLOADS[code]().tiny().on_batches(FakeBatches(), 0).rate == pytest.approx(rate)


def test_a_workload_that_is_none_for_batches_says_so() -> None:
    with pytest.raises(PeerError, match="W6 is not run on batches"):
        WORKLOADS["W6"]().on_batches(FakeBatches(), 0)


def test_the_tree_has_84_nodes_and_each_one_goes_on_from_its_parent() -> None:
    tree = WORKLOADS["W6"]()
    server = FakeServer()
    measured = tree.on_server(server, 0)
    assert measured.amount == len(server.requests) == 84
    depths = sorted(str(request.prompt).count("thought:") for request in server.requests)
    assert depths == [1] * 4 + [2] * 16 + [3] * 64
    assert all(request.max_tokens == 24 and request.ignore_eos for request in server.requests)


def test_shared_prompts_differ_right_after_the_part_that_is_shared() -> None:
    """Else more would be shared than the workload says, and its optimum would be wrong."""
    shared = WORKLOADS["W4"]()
    server = FakeServer()
    measured = shared.on_server(server, 0)
    prompts = [list(request.prompt) for request in server.requests]
    assert {tuple(prompt[:800]) for prompt in prompts} == {tuple(prompts[0][:800])}
    assert len({prompt[800] for prompt in prompts}) == 32
    assert measured.details["optimum"] == 800 + 32 * 32


def test_a_select_on_a_server_is_one_request_under_a_list_of_choices() -> None:
    server = FakeServer()
    client = ProgramClient(server)
    try:
        assert client.choose("About:", (" a", " b")) == " b"
    finally:
        client.shutdown()
    (request,) = server.requests
    assert request.choices == (" a", " b")
    assert client.requests == 1


def test_documents_that_are_not_whole_do_not_count() -> None:
    class Cutting(FakeServer):
        def complete(self, request: Request) -> Completion:
            done = super().complete(request)
            return Completion(done.text[: 20 if len(self.requests) > 1 else None], done.tokens, 0, 0.5)

    documents = WORKLOADS["W7"]()
    assert documents.on_server(Cutting(parallel=1), 0).amount == 1


def test_groups_name_known_workloads() -> None:
    assert [code for codes in GROUPS.values() for code in codes] == list(WORKLOADS)
