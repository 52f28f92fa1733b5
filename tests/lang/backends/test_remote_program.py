"""What happens to programs when servers vanish, forget them, come back or share an address: they go on with the same values."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

import sglang_lite as sgl
from sglang_lite.errors import ExecutionError
from sglang_lite.request_tree import ArgOp, GenOp, OpDone, RequestTree, SamplingParams, TextOp, TreeRow
from sglang_lite.runtime.engine.engine import Engine
from tests.support.live_server import PATIENCE_S, LiveServer, live_server, wait_until
from tests.support.proxy import Proxy, proxy
from tests.support.talking_engine import TalkingRunner, talking_engine

# These tests cut connections on purpose; a server that ends right after may leave one to the garbage collector, which says so.
pytestmark = pytest.mark.filterwarnings(
    "ignore:unclosed:ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)

Pair = tuple[Proxy, list[LiveServer], list[TalkingRunner]]


engine_of: dict[str, Engine] = {}
"""The engines of the servers, by address."""


@pytest.fixture
def pair() -> Iterator[Pair]:
    """Two servers with an engine each, behind one address; at first only the first one is reached."""
    with ExitStack() as stack:
        stack.callback(gc.collect)  # what was cut is collected here, not in a test of another file
        servers: list[LiveServer] = []
        runners: list[TalkingRunner] = []
        for _ in range(2):
            engine, runner = stack.enter_context(talking_engine())
            servers.append(stack.enter_context(live_server(engine)))
            engine_of[servers[-1].url] = engine
            runners.append(runner)
        with proxy(servers[0].url) as made:
            yield made, servers, runners
        for server in servers:  # once it answers, it has taken all connections of before, and can close them
            wait_until(
                lambda server=server: server.http.get("/livez").status_code > 0 and server.app.log.in_flight == 0
            )


def endpoint(made: Proxy, **settings: Any) -> sgl.RuntimeEndpoint:
    return sgl.RuntimeEndpoint(made.url, **settings)


def test_a_server_that_was_killed_and_comes_back_goes_on_with_the_same_values(pair: Pair) -> None:
    """What was done goes to the new one as tokens: it draws only what is open, under the seed that the first one had."""
    made, servers, (first, second) = pair
    first.replies |= {"one": "first", "two": "never"}
    second.replies |= {"one": "another", "two": "second", "three": "third"}
    first.gate = threading.Semaphore(7)
    backend = endpoint(made)

    @sgl.function
    def program(s: Any) -> None:
        s += "one " + sgl.gen("a", max_tokens=20, temperature=0)
        assert s["a"] == "first"
        s += " two " + sgl.gen("b", max_tokens=20, temperature=0)
        made.cut()
        made.cut(servers[1].url)
        assert s["b"] == "second"
        forks = s.fork(2)
        forks += " three " + sgl.gen("c", max_tokens=20, temperature=0)
        forks.join()
        s += " end"

    state = program.run(backend=backend)
    assert state.text() == "one first two second end"
    assert state["c"] == ["third", "third"]
    assert second.prompts[0] == b"one first two "
    backend.shutdown()


def test_two_servers_behind_a_round_robin_balancer(pair: Pair, caplog: pytest.LogCaptureFixture) -> None:
    """Ops, rewinds and cancels reach the server that has the program, whichever the balancer gives a connection to."""
    made, servers, runners = pair
    made.urls = [server.url for server in servers]
    caplog.set_level("INFO", "sglang_lite.server.access")
    for runner in runners:
        runner.replies |= {f"n{i}.": f"reply {i}" for i in range(6)}
    backend = endpoint(made)

    @sgl.function
    def program(s: Any, start: int) -> None:
        for i in range(start, start + 3):
            mark = s.mark()
            s += f"n{i}." + sgl.gen("v", max_tokens=20, temperature=0)
            assert s["v"] == f"reply {i}"
            if i % 2:
                s.rewind(mark)
        forks = s.fork(2)
        forks += " n5." + sgl.gen("f", max_tokens=20, temperature=0)
        forks.join()

    states = program.run_batch([{"start": i % 4} for i in range(8)], backend=backend, num_threads=4)
    assert [state["f"] for state in states] == [["reply 5", "reply 5"]] * 8
    assert states[0].text() == "n0.reply 0n2.reply 2"
    assert set(made.counts) == {server.url for server in servers}

    def num_opened() -> int:
        return sum("POST /v1/programs status" in line for line in caplog.messages)

    wait_until(lambda: num_opened() >= 8)  # a line is written after its answer was read
    assert num_opened() < 12  # again only where the balancer keeps a program from its server for long
    wait_until(lambda: not any(server.app.service.engine.get_server_info()["programs"] for server in servers))
    backend.shutdown()


def test_a_held_gen_and_a_decided_race_survive_the_loss_of_the_server(pair: Pair) -> None:
    made, servers, runners = pair
    for runner in runners:
        runner.replies |= {"ask": "12", "vote": "yes", "last": "."}
    backend = endpoint(made)

    @sgl.function
    def program(s: Any) -> Any:
        forks = s.fork(3)
        forks += " vote " + sgl.gen("v", max_tokens=8, temperature=0)
        value = forks.join(vote="v").value
        made.cut(servers[1].url)
        s += "ask " + sgl.gen("n", max_tokens=4, temperature=0, regex="12", check=lambda text: text == "12")
        number = s["n"]
        made.cut(servers[0].url)
        s += " last" + sgl.gen("z", max_tokens=4, temperature=0)
        assert s["z"] == "."
        return value, number

    state = program.run(backend=backend)
    assert state.ret_value == ("yes", "12")
    assert state.text() == "ask 12 last."
    backend.shutdown()


def test_a_stream_goes_on_where_it_was_when_its_connection_breaks(pair: Pair) -> None:
    """The server is still there: the same program, its events from the last one on."""
    made, servers, (first, _) = pair
    first.default = "abcdefghijkl"
    first.gate = threading.Semaphore(5)
    backend = endpoint(made)

    @sgl.function
    def stream(s: Any) -> None:
        s += "x" + sgl.gen("a", max_tokens=60, temperature=0)

    state = stream.run(stream=True, backend=backend)
    texts = state.text_iter("a")
    got = next(texts)
    made.cut(servers[0].url)
    first.gate.release(100)
    assert got + "".join(texts) == "abcdefghijkl"
    assert len(first.prompts) == 1
    backend.shutdown()


def test_a_cancel_that_did_not_arrive_is_told_again(pair: Pair) -> None:
    made, servers, (first, second) = pair
    first.gate, second.gate = threading.Semaphore(5), threading.Semaphore(0)
    backend = endpoint(made)

    @sgl.function
    def endless(s: Any) -> None:
        forks = s.fork(2)
        forks += "x" + sgl.gen("a", max_tokens=400, ignore_eos=True)

    state = endless.run(stream=True, backend=backend)
    wait_until(lambda: len(first.prompts) == 2)
    made.cut()
    state.cancel()
    made.cut(servers[1].url)
    wait_until(lambda: servers[1].app.log.num_requests > 0)  # the cancel: the program's own stream goes on
    second.gate.release(1000)
    wait_until(
        lambda: len(servers[1].app.programs) == 0 and not servers[1].app.service.engine.get_server_info()["programs"]
    )
    assert second.num_steps < 400
    first.gate.release(1000)
    backend.shutdown()


def test_a_server_that_stays_away_is_given_up_with_a_clear_error(pair: Pair) -> None:
    made, _, (first, _) = pair
    first.gate = threading.Semaphore(2)
    backend = endpoint(made, reconnect_s=0.25)

    @sgl.function
    def endless(s: Any) -> None:
        s += "x" + sgl.gen("a", max_tokens=40)

    state = endless.run(stream=True, backend=backend)
    wait_until(lambda: len(first.prompts) == 1)
    made.cut()
    with pytest.raises(ExecutionError, match=rf"{made.url}.*is a server running there.*tried \d+ times.*given up"):
        _ = state["a"]
    first.gate.release(1000)
    backend.shutdown()


def test_an_engine_that_died_under_its_server_is_a_lost_server(pair: Pair) -> None:
    """The program's ops fail there with the engine's end; the client gives the program to the next engine."""
    made, servers, (first, second) = pair
    engines = [engine_of[server.url] for server in servers]
    first.replies["Q"] = second.replies["Q"] = "one"
    first.gate = threading.Semaphore(1)
    backend = endpoint(made)

    @sgl.function
    def program(s: Any) -> None:
        s += "Q" + sgl.gen("a", max_tokens=20, temperature=0)

    state = program.run(stream=True, backend=backend)
    wait_until(lambda: len(first.prompts) == 1)
    made.urls = [servers[1].url]
    stopping = threading.Thread(target=engines[0].shutdown)
    stopping.start()
    first.gate.release(1000)
    assert state["a"] == "one"
    stopping.join(60)
    backend.shutdown()


PARAMS = SamplingParams(max_new_tokens=20, temperature=0.0)


def test_rows_go_on_from_what_is_done_when_their_server_is_lost(pair: Pair) -> None:
    """The first gen of a row is not drawn again; the others are, on the new server."""
    made, servers, (first, second) = pair
    first.replies |= {"Q": "one"}
    second.replies |= {"Q": "uno", "then": "two"}
    tree = RequestTree()
    for op in (
        TextOp(0, 0, "Q "),
        ArgOp(1, 0, "q"),
        GenOp(2, 0, "x", PARAMS),
        TextOp(3, 0, " then "),
        GenOp(4, 0, "y", PARAMS),
    ):
        tree.add(op)
    first.gate = threading.Semaphore(4)  # "one" and its end, then the second gen waits
    backend = endpoint(made)
    events: list[list[Any]] = [[] for _ in range(2)]
    backend.open_rows(tree, [TreeRow({"q": f"row {i}"}, events[i].append, i) for i in range(2)])
    wait_until(lambda: all(any(e.op == 2 for e in one) for one in events))
    made.cut(servers[1].url)
    wait_until(lambda: all(any(e.op == 4 for e in one) for one in events))
    assert [[(e.op, e.text) for e in one if isinstance(e, OpDone)][2:] for one in events] == [
        [(2, "one"), (3, " then "), (4, "two")]
    ] * 2
    assert set(second.prompts) == {b"Q row 0one then ", b"Q row 1one then "}
    first.gate.release(1000)
    backend.shutdown()


def test_a_stream_that_says_nothing_for_long_is_taken_up_again(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that vanished sends no end of a connection: silence beyond the server's comments is taken for it."""
    from sglang_lite.lang.backends import remote_program

    monkeypatch.setattr(remote_program, "SILENCE_S", 0.05)
    made, servers, (first, _) = pair
    first.gate = threading.Semaphore(2)
    backend = endpoint(made)

    @sgl.function
    def program(s: Any) -> None:
        s += "x" + sgl.gen("a", max_tokens=20, temperature=0)

    state = program.run(stream=True, backend=backend)
    wait_until(lambda: servers[0].app.log.num_requests >= 3)
    first.gate.release(1000)
    assert state["a"] == "Hello there."
    assert len(first.prompts) == 1
    backend.shutdown()


def test_a_program_without_a_reader_lives_for_its_time_to_live(pair: Pair) -> None:
    """`ttl_s` after its last reader it is gone, and told so by 404; DELETE ends it at once."""
    _made, servers, (first, _) = pair
    first.gate = threading.Semaphore(1)
    server = servers[0]
    body = {"ops": [{"op": "text", "id": 0, "branch": 0, "text": "x"}], "ttl_s": 0.05}
    name = server.post("/v1/programs", body).json()["id"]
    wait_until(lambda: server.http.get(f"/v1/programs/{name}").status_code == 404)
    name = server.post("/v1/programs", body | {"ttl_s": 1000}).json()["id"]
    assert server.http.get(f"/v1/programs/{name}").json()["ttl_s"] == PATIENCE_S, "the server's own limit"
    assert server.http.delete(f"/v1/programs/{name}").json() == {"id": name, "deleted": True}
    assert server.http.get(f"/v1/programs/{name}").status_code == 404
