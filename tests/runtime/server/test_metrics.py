"""Every line of `/metrics` is what Prometheus reads: names, types, labels, histograms that add up."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest

from sglang_lite.runtime.engine.request_metrics import RequestMetrics
from sglang_lite.runtime.scheduler.messages import AddReq, FinishReason, ReqOutput, Usage
from sglang_lite.runtime.server.metrics import Sample, metrics_text
from tests.support.live_server import LiveServer, wait_until
from tests.support.scheduler_harness import Harness, config, greedy

DOCS = Path(__file__).resolve().parents[3] / "docs"
LINE = re.compile(r'([a-zA-Z_:][\w:]*)\{((?:[a-zA-Z_]\w*="(?:[^"\\\n]|\\[\\"n])*",?)*)\} (-?[0-9.e+-]+|\+Inf|NaN)')


def read(text: str) -> dict[str, dict[str, float]]:
    """Values by name and labels; fails where `promtool check metrics` would.

    Of each family: help, then type, then its samples, all together and once; counters end in `_total`; buckets grow up to
    +Inf, which is the count.
    """
    assert text.endswith("\n")
    kinds: dict[str, str] = {}
    values: dict[str, dict[str, float]] = {}
    family = ""
    for line in text.splitlines():
        if line.startswith("# HELP "):
            family = line.split()[2]
            assert family not in kinds, f"{family} comes twice"
            assert len(line.split(maxsplit=3)) == 4, f"{family} has no help"
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split()
            assert name == family
            kinds[name] = kind
        else:
            found = LINE.fullmatch(line)
            assert found is not None, line
            name, labels, value = found.groups()
            base = re.sub("_(bucket|sum|count)$", "", name) if kinds[family] == "histogram" else name
            assert base == family
            assert labels not in values.setdefault(name, {}), f"{line} comes twice"
            values[name][labels] = float(value)
    for name, kind in kinds.items():
        assert kind in ("gauge", "counter", "histogram")
        assert (kind == "counter") == name.endswith("_total")
        if kind == "histogram":
            buckets = list(values[f"{name}_bucket"].items())
            assert [count for _, count in buckets] == sorted(count for _, count in buckets)
            bounds = [float(re.search(r'le="([^"]+)"', labels).group(1)) for labels, _ in buckets]  # type: ignore[union-attr]
            assert bounds == sorted(set(bounds))
            assert bounds[-1] == math.inf
            assert buckets[-1][1] == next(iter(values[f"{name}_count"].values()))
    return values


def total(values: dict[str, dict[str, float]], name: str) -> float:
    return sum(values[name].values())


def test_a_server_counts_what_it_did(server: LiveServer) -> None:
    before = read(server.http.get("/metrics").text)
    server.post("/generate", {"text": "Hi", "sampling_params": {"max_new_tokens": 5, "ignore_eos": True}})

    def now() -> dict[str, dict[str, float]]:
        return read(server.http.get("/metrics").text)

    finished = 'model_name="talking",reason="length"'
    name = "sglang_lite:requests_finished_total"
    wait_until(lambda: now()[name][finished] > before[name][finished])
    after = now()
    for name in ("time_to_first_token_seconds", "e2e_request_latency_seconds", "queue_time_seconds"):
        assert total(after, f"sglang:{name}_count") >= 1
    assert total(after, "sglang:generation_tokens_total") >= 5
    assert total(after, "sglang:inter_token_latency_seconds_count") >= 4
    assert total(after, "sglang_lite:http_requests_in_flight") == 1


def test_without_an_engine_there_are_still_metrics() -> None:
    text = metrics_text([Sample("sglang_lite:x", "gauge", "X", 1.5)], {}, {"model_name": 'a "b"\\\n'})
    assert read(text)["sglang_lite:x"] == {'model_name="a \\"b\\"\\\\\\n"': 1.5}


def test_guesses_that_stood_have_sglangs_names() -> None:
    harness = Harness(config(num_draft_tokens=4), share_right=0.7)
    before = read(metrics_text([], harness.scheduler.statistics().to_dict(), {"a": "b"}))
    assert total(before, "sglang:spec_accept_length") == total(before, "sglang:spec_accept_rate") == 0
    harness.drain(AddReq("r", (2, 3, 4), greedy(50)))
    numbers = harness.scheduler.statistics()
    after = read(metrics_text([], numbers.to_dict(), {"a": "b"}))
    rows, kept, missed = numbers.speculated_rows, numbers.speculated_tokens, numbers.missed_tokens
    assert total(after, "sglang:spec_accept_length") == pytest.approx((rows + kept) / rows)
    assert total(after, "sglang:spec_accept_rate") == pytest.approx(kept / (kept + missed))


def test_times_fall_into_their_buckets() -> None:
    metrics = RequestMetrics()
    metrics.came("a", 10.0)
    metrics.took(ReqOutput("a", new_ids=(1,)), 10.2)
    metrics.took(ReqOutput("a", new_ids=(2, 3)), 10.3)
    end = ReqOutput("a", finished=FinishReason("stop"), usage=Usage(7, 4, 3, 3), queue_s=0.05)
    metrics.took(end, 11.0)
    snapshot: dict[str, Any] = {"requests": metrics.to_dict()}
    values = read(metrics_text([], snapshot, {}))
    assert values["sglang:time_to_first_token_seconds_bucket"]['le="0.1"'] == 0
    assert values["sglang:time_to_first_token_seconds_bucket"]['le="0.25"'] == 1
    assert values["sglang:inter_token_latency_seconds_bucket"]['le="0.06"'] == 2
    assert values["sglang:inter_token_latency_seconds_sum"][""] == pytest.approx(0.1)
    assert values["sglang:e2e_request_latency_seconds_sum"][""] == pytest.approx(1.0)
    assert metrics.to_dict()["tokens"] == {"prompt_tokens": 7, "cached_tokens": 4, "generation_tokens": 3}


def test_a_request_that_never_ran_counts_by_its_end_only() -> None:
    metrics = RequestMetrics()
    metrics.took(ReqOutput("x", finished=FinishReason("abort"), usage=Usage(0, 0, 0, 0)), 1.0)
    found = metrics.to_dict()
    assert found["finished"] == {"abort": 1}
    assert sum(found["histograms"]["e2e_request_latency_seconds"]["counts"]) == 0


def test_the_dashboard_asks_for_metrics_that_exist(server: LiveServer) -> None:
    """Each query of docs/grafana.json names metrics of this server, and each panel has its place."""
    board = json.loads((DOCS / "grafana.json").read_text(encoding="utf-8"))
    known = set(read(server.http.get("/metrics").text))
    queries = [target["expr"] for panel in board["panels"] for target in panel.get("targets", [])]
    assert len(queries) >= 10
    for query in queries:
        names = set(re.findall(r"sglang(?:_lite)?:\w+", query))
        assert names, query
        assert names <= known, f"{query}: {names - known}"
    ids = [panel["id"] for panel in board["panels"]]
    assert len(ids) == len(set(ids))
