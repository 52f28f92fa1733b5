"""The routes of the page: what they give, to whom, and with which headers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sglang_lite.runtime.engine.engine import Engine
from tests.support.live_server import LiveServer, live_server
from tests.support.talking_engine import TalkingRunner

SECRET = "a secret of the patient"
OPS: list[dict[str, Any]] = [
    {"op": "text", "id": 0, "branch": 0, "text": SECRET},
    {"op": "fork", "id": 1, "branch": 0, "children": [1, 2]},
    {"op": "gen", "id": 2, "branch": 1, "name": "secret_one", "params": {"max_new_tokens": 4, "stop": [SECRET]}},
    {"op": "gen", "id": 3, "branch": 2, "name": "secret_two", "params": {"max_new_tokens": 4}},
    {"op": "select", "id": 4, "branch": 0, "name": "secret_pick", "choices": [SECRET, "b"]},
]


def run_program(server: LiveServer, **headers: str) -> str:
    answer = server.post("/v1/programs", {"ops": OPS, "close": True, "stream": True}, **headers)
    assert answer.status_code == 200, answer.text
    return answer.headers["x-program-id"]


def events(answer: Any) -> list[dict[str, Any]]:
    lines = [line[6:] for line in answer.text.splitlines() if line.startswith("data: ")]
    assert lines[-1] == "[DONE]"
    return [json.loads(line) for line in lines[:-1]]


def test_the_page_and_its_files_carry_a_strict_policy(server: LiveServer) -> None:
    page = server.http.get("/")
    assert page.headers["content-type"].startswith("text/html")
    names = [part.split('"')[0] for part in page.text.split('="/viewer/')[1:]]
    assert sorted(names) == ["charts.js", "page.css", "page.js", "tree.css", "tree.js"]
    for path in ("/", *(f"/viewer/{name}" for name in names)):
        answer = server.http.get(path)
        assert answer.status_code == 200
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        for pattern in ("http://", "https://", "innerHTML", "insertAdjacentHTML", "document.write", "eval("):
            found = answer.text.replace("http://www.w3.org/2000/svg", "")
            assert pattern not in found, f"{path} has {pattern}"
    for path in ("/viewer/../errors.py", "/viewer/errors.py", "/viewer/page.html"):
        assert server.http.get(path).status_code == 404


def test_the_playground_streams_tokens_with_kind_and_log_probability(server: LiveServer, runner: TalkingRunner) -> None:
    runner.replies["Hi"] = "Yes!"
    body = {"messages": [{"role": "user", "content": "Hi"}], "sampling_params": {"max_new_tokens": 16}}
    got = events(server.post("/viewer/run", body))
    assert "".join(got[0]["prompt"]).endswith("<|im_start|>assistant\n")
    tokens = [token for data in got for token in data.get("tokens", ())]
    assert "".join(token["text"] for token in tokens) == "Yes!"
    assert {token["kind"] for token in tokens} == {"sampled"}
    assert all(token["logprob"] < 0 for token in tokens)
    assert got[-1]["text"] == "Yes!"
    assert got[-1]["end"]["prompt_tokens"] == len(got[0]["prompt"])


@pytest.mark.parametrize(
    "body",
    [{}, {"text": "a", "messages": [{"role": "user", "content": "b"}]}, {"text": "a", "sampling_params": {"n": 2}}],
)
def test_a_wrong_request_of_the_playground_is_refused(server: LiveServer, body: dict[str, Any]) -> None:
    assert server.post("/viewer/run", body).status_code == 400


def test_statistics_show_requests_and_the_tree_and_change_nothing(server: LiveServer) -> None:
    server.post("/generate", {"text": SECRET * 3, "sampling_params": {"max_new_tokens": 2}})
    first = server.http.get("/viewer/statistics").json()
    nodes = first["tree"]["nodes"]
    assert any(SECRET[:10] in node["text"] for node in nodes)
    parents = {node["id"] for node in nodes}
    assert all(node["parent"] is None or node["parent"] in parents for node in nodes)
    assert sum(node["pages"] for node in nodes) == first["statistics"]["kv"]["evictable_pages"]
    second = server.http.get("/viewer/statistics").json()
    assert second["tree"] == first["tree"]


def test_a_program_has_a_record(server: LiveServer) -> None:
    name = run_program(server)
    (newest, *_) = server.http.get("/viewer/programs").json()["programs"]
    assert (newest["name"], newest["state"], newest["calls"], newest["forks"]) == (name, "done", 3, 1)
    record = server.http.get(f"/viewer/programs/{name}").json()
    assert [entry["state"] for entry in record["ops"]] == ["done"] * 5
    assert record["ops"][2]["usage"]["prompt_tokens"] > 0
    assert server.http.get("/viewer/programs/nobody").status_code == 404


def test_the_first_rows_of_a_tree_have_records(server: LiveServer) -> None:
    ops = [{"op": "arg", "id": 0, "branch": 0, "name": "q"}, {"op": "gen", "id": 1, "branch": 0, "name": "x", "params": {"max_new_tokens": 2}}]  # fmt: skip
    answer = server.post("/v1/programs", {"ops": ops, "rows": [{"q": "one"}, {"q": "two"}], "stream": True})
    name = answer.headers["x-program-id"]
    records = [server.http.get(f"/viewer/programs/{name}-{row}").json() for row in (0, 1)]
    assert [record["ops"][0]["op"]["text"] for record in records] == ["one", "two"]
    assert all(record["ops"][1]["state"] == "done" for record in records)


def test_numbers_only_gives_no_text_away(talking: tuple[Engine, TalkingRunner]) -> None:
    with live_server(talking[0], viewer="stats") as server:
        name = run_program(server)
        for path in ("/viewer/statistics", "/viewer/programs", f"/viewer/programs/{name}", "/viewer/about"):
            answer = server.http.get(path)
            assert answer.status_code == 200
            assert "secret" not in answer.text, path
        assert server.post("/viewer/run", {"text": "a"}).status_code == 404
        record = server.http.get(f"/viewer/programs/{name}").json()
        assert record["usage"]["requests"] == 3


def test_without_a_viewer_there_are_no_routes(talking: tuple[Engine, TalkingRunner]) -> None:
    with live_server(talking[0], viewer="off") as server:
        for path in ("/", "/viewer/page.js", "/viewer/about", "/viewer/statistics", "/viewer/programs"):
            assert server.http.get(path).status_code == 404, path


def test_with_keys_texts_are_for_the_admin_key(
    talking: tuple[Engine, TalkingRunner], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ADMIN_KEY", "boss")
    with live_server(talking[0], api_keys=("user",), admin_key_env=("ADMIN_KEY",)) as server:
        user, admin = {"authorization": "Bearer user"}, {"authorization": "Bearer boss"}
        assert server.http.get("/").status_code == 200
        assert server.http.get("/viewer/statistics").status_code == 401
        name = run_program(server, **user)
        path = f"/viewer/programs/{name}"
        assert SECRET not in server.http.get(path, headers=user).text
        assert SECRET in server.http.get(path, headers=admin).text
        assert SECRET[:8] not in server.http.get("/viewer/statistics", headers=user).text
        assert SECRET[:8] in server.http.get("/viewer/statistics", headers=admin).text
        shown = [server.http.get("/viewer/about", headers=headers).json()["texts"] for headers in (user, admin)]
        assert shown == [False, True]


def test_a_name_that_points_here_from_elsewhere_is_refused(server: LiveServer) -> None:
    for path in ("/viewer/statistics", "/viewer/programs", "/viewer/about"):
        answer = server.http.get(path, headers={"host": "evil.example:80"})
        assert answer.status_code == 403, path
    assert server.post("/viewer/run", {"text": "a"}, host="evil.example").status_code == 403
