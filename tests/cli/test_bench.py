"""`sglang-lite bench` against a live server, and its arithmetic."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sglang_lite.cli.main import main
from tests.support.live_server import LiveServer, live_server
from tests.support.talking_engine import talking_engine


@pytest.mark.parametrize("arguments", [["--dataset", "chat"], ["--concurrency", "2", "--rate", "500"]])
def test_a_server_is_measured(arguments: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    with talking_engine(context=4096, num_pages=2048) as (engine, _), live_server(engine) as server:
        assert main(["bench", server.url, "--num", "6", "--json", str(out), *arguments]) == 0
    shown = capsys.readouterr().out
    assert "6 in" in shown
    assert "errors          none" in shown
    report = json.loads(out.read_text(encoding="utf-8"))
    assert report["summary"]["requests"] == 6
    assert report["summary"]["completion_tokens"] == 6 * 13  # twelve bytes and the end
    assert len(report["requests"]) == 6
    arrivals = [one["arrivals_s"] for one in report["requests"]]
    assert all(arrivals)
    measured = ["ttft_ms", "end_to_end_ms"]
    if any(len(one) > 1 for one in arrivals):  # a busy client may read an answer's tokens in one piece
        measured.append("inter_token_ms")
    for name in measured:
        values = [report["summary"][name][f"p{percent}"] for percent in (50, 95, 99)]
        assert values == sorted(values)
        assert values[0] > 0


@pytest.fixture
def server() -> object:
    with talking_engine() as (engine, _), live_server(engine) as made:
        yield made


def test_failed_requests_are_counted_by_their_kind(
    server: LiveServer, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Too long for the context: the server refuses each; the exit code says that none was good."""
    data = tmp_path / "data.jsonl"
    data.write_text(json.dumps("y" * 600) + "\n", encoding="utf-8")
    assert main(["bench", server.url, "--num", "3", "--dataset", str(data), "--json", "-"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert report["summary"]["errors"] == {"HTTP 400": 3}
    assert report["summary"]["ttft_ms"] == {"p50": None, "p95": None, "p99": None}


def test_wrong_numbers_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "http://127.0.0.1:9", "--num", "0"]) == 1
    assert "--num 0: expected more than 0" in capsys.readouterr().err
