"""`/v1/programs` as a client without this package would use it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.live_server import LiveServer, live_server, wait_until
from tests.support.talking_engine import TalkingRunner, talking_engine

OPS = [
    {"op": "text", "id": 0, "branch": 0, "text": "Hi"},
    {"op": "gen", "id": 1, "branch": 0, "name": "a", "params": {"temperature": 0}},
    {"op": "fork", "id": 2, "branch": 0, "children": [1]},
    {"op": "text", "id": 3, "branch": 1, "text": "yes"},
]


def events(text: str) -> list[tuple[int, dict[str, Any]]]:
    """(id, data) of all events of a stream that has its end."""
    blocks = [block for block in text.split("\n\n") if block]
    assert blocks.pop() == "data: [DONE]"
    found = []
    for block in blocks:
        first, second = block.split("\n")
        found.append((int(first.removeprefix("id: ")), json.loads(second.removeprefix("data: "))))
    return found


def read(server: LiveServer, name: str, **headers: str) -> list[tuple[int, dict[str, Any]]]:
    return events(server.http.get(f"/v1/programs/{name}/events", headers=headers).text)


def test_a_known_tree_is_one_request(server: LiveServer) -> None:
    response = server.post("/v1/programs", {"version": 1, "ops": OPS, "close": True, "stream": True})
    assert response.headers["x-program-id"].startswith("prog_")
    got = events(response.text)
    assert [number for number, _ in got] == [1, 2, 3, 4]
    done = {data["op"]: data for _, data in got}
    assert {data["event"] for data in done.values()} == {"done"}
    assert done[1]["value"] == "Hello there."
    assert done[1]["ids"] == list(b"Hello there.")
    assert done[1]["meta"]["finish_reason"]["type"] == "stop"
    assert done[3]["text"] == "yes"


def test_step_by_step_with_repeats_and_resume(server: LiveServer) -> None:
    opened = server.post("/v1/programs", {"seed": 7})
    assert opened.status_code == 201
    name = opened.json()["id"]
    for _ in range(2):  # a request that is sent again adds nothing
        status = server.post(f"/v1/programs/{name}/ops", {"ops": OPS[:2], "start": 0}).json()
        assert status["ops"] == 2
    assert server.post(f"/v1/programs/{name}/ops", {"ops": OPS[1:], "start": 1, "close": True}).json()["ops"] == 4
    assert server.post(f"/v1/programs/{name}/ops", {"ops": [], "start": 9}).status_code == 409
    late = {"op": "end", "id": 9, "branch": 0}
    assert server.post(f"/v1/programs/{name}/ops", {"ops": [late]}).status_code == 409
    whole = read(server, name)
    assert read(server, name, **{"last-event-id": "2"}) == whole[2:]
    assert events(server.http.get(f"/v1/programs/{name}/events?after=4").text) == []
    assert server.http.get(f"/v1/programs/{name}").json()["over"] is True
    assert server.http.delete(f"/v1/programs/{name}").json() == {"id": name, "deleted": True}
    assert server.http.get(f"/v1/programs/{name}").status_code == 404
    assert server.http.get(f"/v1/programs/{name}/events").json()["error"]["code"] == "program_not_found"


def test_cancel_fails_what_is_open(server: LiveServer) -> None:
    select = {"op": "select", "id": 1, "branch": 0, "name": "c", "choices": ["a", "b"], "method": "client"}
    name = server.post("/v1/programs", {"ops": [OPS[0], select]}).json()["id"]
    wait_until(lambda: server.http.get(f"/v1/programs/{name}").json()["events"] == 2)
    assert server.post(f"/v1/programs/{name}/cancel", {}).status_code == 200
    server.post(f"/v1/programs/{name}/ops", {"close": True})
    last = read(server, name)[-1][1]
    assert (last["event"], last["error"]["type"]) == ("failed", "CancelledError")


def test_a_decision_is_an_op(server: LiveServer) -> None:
    select = {"op": "select", "id": 1, "branch": 0, "name": "c", "choices": ["a", "b"], "method": "client"}
    name = server.post("/v1/programs", {"ops": [OPS[0], select]}).json()["id"]
    wait_until(lambda: server.http.get(f"/v1/programs/{name}").json()["events"] == 2)
    decide = {"op": "decide", "id": 2, "branch": 0, "select": 1, "index": 1}
    server.post(f"/v1/programs/{name}/ops", {"ops": [decide], "close": True})
    got = read(server, name)
    assert [data["event"] for _, data in got] == ["done", "scored", "done", "done"]
    assert got[-1][1]["value"] == "b"


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"version": 2}, "version 2"),
        ({"seed": -1}, "seed"),
        ({"ops": [{"op": "odd", "id": 0, "branch": 0}]}, "'op' is one of"),
        ({"ops": [{"op": "text", "id": 0, "branch": 0}]}, "no ['text']"),
        ({"ops": [{"op": "text", "id": 0, "branch": 0, "text": "a", "more": 1}]}, "unknown ['more']"),
        ({"ops": [{"op": "text", "id": "0", "branch": 0, "text": "a"}]}, "id='0'"),
        ({"ops": [{"op": "gen", "id": 0, "branch": 0, "name": None, "params": {"top_p": 7}}]}, "top_p=7"),
        ({"ops": [5]}, "ops.0"),
    ],
)
def test_wrong_programs_are_refused_whole(server: LiveServer, body: dict[str, Any], words: str) -> None:
    before = len(server.app.programs)
    response = server.post("/v1/programs", body)
    assert response.status_code == 400
    assert words in response.json()["error"]["message"]
    assert len(server.app.programs) == before


def test_a_broken_rule_of_the_tree_fails_the_op(server: LiveServer) -> None:
    ops = [{"op": "role_end", "id": 0, "branch": 0}]
    ((_, failed),) = events(server.post("/v1/programs", {"ops": ops, "close": True, "stream": True}).text)
    assert failed["error"]["type"] == "ProgramError"
    assert "no role is open" in failed["error"]["message"]


def test_a_program_that_nobody_reads_ends() -> None:
    """It is freed with all it holds; one that is read lives on."""
    with talking_engine() as (engine, _), live_server(engine, program_ttl_s=0.05) as server:
        server.post("/v1/programs", {"ops": OPS[:2]})
        wait_until(lambda: len(server.app.programs) == 0)
        wait_until(lambda: engine.get_server_info()["programs"] == 0)


def test_there_is_a_limit_to_programs_and_ops() -> None:
    with talking_engine() as (engine, _), live_server(engine, max_programs=2, max_ops=3) as server:
        names = [server.post("/v1/programs", {}).json()["id"] for _ in range(2)]
        refused = server.post("/v1/programs", {})
        assert refused.status_code == 503
        assert refused.headers["retry-after"] == "1"
        assert refused.json()["error"]["code"] == "too_many_programs"
        assert server.post(f"/v1/programs/{names[0]}/ops", {"ops": OPS}).status_code == 400
        server.http.delete(f"/v1/programs/{names[0]}")
        assert server.post("/v1/programs", {}).status_code == 201


def test_seeds_make_runs_equal(runner: TalkingRunner, server: LiveServer) -> None:
    body = {"seed": 3, "ops": OPS, "close": True, "stream": True}
    first, second = (events(server.post("/v1/programs", body).text) for _ in range(2))
    assert [data["text"] for _, data in first if "text" in data] == [
        data["text"] for _, data in second if "text" in data
    ]
    assert runner.prompts
