"""`sglang-lite bench` against a live server, and its arithmetic."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from sglang_lite.cli import load_data
from sglang_lite.cli.load import Measured, percentile, summary
from sglang_lite.cli.main import main
from sglang_lite.errors import RequestError
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
    for name in ("ttft_ms", "inter_token_ms", "end_to_end_ms"):
        values = [report["summary"][name][f"p{percent}"] for percent in (50, 95, 99)]
        assert values == sorted(values)
        assert values[0] > 0
    assert len(report["requests"]) == 6
    assert all(len(one["arrivals_s"]) >= 1 for one in report["requests"])


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


def test_numbers_of_a_run() -> None:
    """By hand: two good requests and one that failed; a piece of two tokens counts as two."""
    measured = [
        Measured(0.0, 2.0, [1.0, 1.5, 2.0], prompt_tokens=10, completion_tokens=3, cached_tokens=4),
        Measured(1.0, 4.0, [3.0, 4.0], prompt_tokens=10, completion_tokens=4),
        Measured(0.5, 0.6, [], error="HTTP 503"),
    ]
    result = summary(measured)
    assert result["errors"] == {"HTTP 503": 1}
    assert result["wall_s"] == 4.0
    assert result["requests_per_s"] == 0.5
    assert result["output_tokens_per_s"] == 7 / 4
    assert result["ttft_ms"] == {"p50": 1000.0, "p95": 2000.0, "p99": 2000.0}
    assert result["inter_token_ms"] == {"p50": 500.0, "p95": 500.0, "p99": 500.0}
    assert result["end_to_end_ms"]["p50"] == 2000.0
    assert percentile([3.0, 1.0, 2.0, 4.0], 50) == 2.0
    assert percentile(list(range(1, 101)), 99) == 99


@pytest.mark.parametrize("name", sorted(load_data.DATASETS))
def test_data_sets_are_the_same_for_the_same_seed(name: str) -> None:
    assert load_data.load(name, 20, 8, 1) == load_data.load(name, 20, 8, 1)
    assert load_data.load(name, 20, 8, 1) != load_data.load(name, 20, 8, 2)
    assert len(load_data.load(name, 20, 8, 1)) == 20


def test_groups_share_their_beginning() -> None:
    bodies = load_data.shared_prefix(16, 4, random.Random(0))
    assert len({body["prompt"].split("\n")[0] for body in bodies}) == 2


def test_a_file_of_bodies_and_what_is_wrong_with_one(tmp_path: Path) -> None:
    data = tmp_path / "data.jsonl"
    data.write_text('"a text"\n{"messages": [], "model": "x", "max_tokens": 3}\n', encoding="utf-8")
    assert load_data.load(str(data), 3, 8, 0) == [
        {"max_tokens": 8, "prompt": "a text"},
        {"max_tokens": 3, "messages": []},
        {"max_tokens": 8, "prompt": "a text"},
    ]
    for text, why in (("{", "line 1"), ("7", "expected a text"), ("", "it is empty")):
        data.write_text(text, encoding="utf-8")
        with pytest.raises(RequestError, match=why):
            load_data.load(str(data), 3, 8, 0)
    with pytest.raises(RequestError, match="expected one of"):
        load_data.load(str(tmp_path / "absent"), 3, 8, 0)


def test_wrong_numbers_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "http://127.0.0.1:9", "--num", "0"]) == 1
    assert "--num 0: expected more than 0" in capsys.readouterr().err
