from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sglang_lite.cli.main import main
from sglang_lite.cli.openai_batch import local_model, run_batch
from sglang_lite.errors import RequestError
from tests.support.live_server import LiveServer, live_server
from tests.support.talking_engine import TalkingRunner, talking_engine


@pytest.fixture(scope="module")
def both() -> Iterator[tuple[LiveServer, TalkingRunner]]:
    with talking_engine() as (engine, runner), live_server(engine) as server:
        yield server, runner


def line(name: str, **body: Any) -> str:
    messages = [{"role": "user", "content": name}]
    request = {"custom_id": name, "method": "POST", "url": "/v1/chat/completions"}
    return json.dumps(request | {"body": {"model": "m", "messages": messages, "max_tokens": 20, **body}})


def answers(path: Path) -> dict[str, Any]:
    found = [json.loads(text) for text in path.read_text().splitlines()]
    assert len({answer["custom_id"] for answer in found}) == len(found)
    return {answer["custom_id"]: answer for answer in found}


def test_every_line_has_its_answer_or_its_error(
    both: tuple[LiveServer, TalkingRunner], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server, runner = both
    runner.replies |= {f"q{i}.": f"reply {i}" for i in range(40)}
    source, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text("\n".join([*(line(f"q{i}.") for i in range(40)), line("bad", temperature=-1), ""]))
    code = main(["run", "--openai-batch", str(source), "--out", str(out), "--backend", server.url])
    assert code == 1
    got = answers(out)
    assert len(got) == 41
    for i in range(40):
        assert got[f"q{i}."]["response"]["body"]["choices"][0]["message"]["content"] == f"reply {i}"
        assert got[f"q{i}."]["error"] is None
        assert got[f"q{i}."]["response"]["request_id"]
    assert got["bad"]["response"]["status_code"] == 400
    assert "temperature" in got["bad"]["response"]["body"]["error"]["message"]
    shown = capsys.readouterr().err
    assert "41/41" in shown
    assert "41 answers written, 1 with errors, 0 there already" in shown


def test_an_interrupted_batch_goes_on(both: tuple[LiveServer, TalkingRunner], tmp_path: Path) -> None:
    """Whole lines stay; a line that was cut, and one that found no server, are asked again."""
    server, _ = both
    source, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text("\n".join(line(name) for name in "abcd"))
    assert run_batch(source, out, server.url) == (4, 0, 0)
    whole = {name: json.loads(text) for name, text in zip("abcd", sorted(out.read_text().splitlines()), strict=True)}
    lost = {"custom_id": "c", "id": "x", "response": None, "error": {"code": "connection", "message": "gone"}}
    kept = [answer for answer in whole.values() if answer["custom_id"] in "ab"]
    out.write_text("".join(json.dumps(one) + "\n" for one in [*kept, lost]) + '{"custom_id": "d", "resp')
    assert run_batch(source, out, server.url) == (2, 0, 2)
    got = answers(out)
    assert sorted(got) == list("abcd")
    assert [got[answer["custom_id"]] for answer in kept] == kept
    assert run_batch(source, out, server.url) == (0, 0, 4)


def test_without_a_server_each_line_says_so(tmp_path: Path) -> None:
    source, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text(line("a"))
    assert run_batch(source, out, "http://127.0.0.1:9") == (1, 1, 0)
    assert answers(out)["a"]["error"]["code"] == "connection"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[]", "line 1"),
        ("no", "line 1"),
        (line("a") + "\n" + line("a"), "line 2: custom_id"),
        (json.dumps({"custom_id": "a", "url": "/v1/embeddings", "body": {}}), "/v1/embeddings"),
        (json.dumps({"custom_id": "a", "url": "/v1/responses"}), "body"),
        (None, "reading"),
    ],
)
def test_a_file_that_is_no_batch_is_refused_at_once(tmp_path: Path, text: str | None, words: str) -> None:
    source = tmp_path / "in.jsonl"
    if text is not None:
        source.write_text(text)
    with pytest.raises(RequestError, match=words):
        run_batch(source, tmp_path / "out.jsonl", "http://127.0.0.1:9")
    assert not (tmp_path / "out.jsonl").exists()


def test_what_backend_may_name() -> None:
    assert local_model("local") is None
    assert local_model("local:m.gguf") == "m.gguf"
    with pytest.raises(RequestError, match="scripted"):
        local_model("scripted")


@pytest.mark.model
def test_a_server_is_started_where_none_is_named(tmp_path: Path) -> None:
    source, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text(line("Hi", temperature=0, max_tokens=3))
    assert main(["run", "--openai-batch", str(source), "--out", str(out)]) == 0
    assert answers(out)["Hi"]["response"]["body"]["usage"]["completion_tokens"] == 3
