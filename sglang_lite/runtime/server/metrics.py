"""Prometheus' text format of the server's counters: SGLang's names where the meaning is the same, ours below `sglang_lite:`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_HISTOGRAMS = {
    "time_to_first_token_seconds": "Seconds from the arrival of a request to its first token",
    "inter_token_latency_seconds": "Seconds between tokens of a request",
    "e2e_request_latency_seconds": "Seconds from the arrival of a request to its end",
    "queue_time_seconds": "Seconds from the arrival of a request to its first row",
}


@dataclass(frozen=True, slots=True)
class Sample:
    """One metric without labels of its own."""

    name: str
    kind: Literal["gauge", "counter"]
    help: str
    value: float


def metrics_text(samples: list[Sample], snapshot: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """All metrics; `snapshot`: see `Engine.snapshot`, empty while there is no engine; `labels`: of every sample."""
    lines: list[str] = []
    for sample in [*samples, *_of_engine(snapshot)]:
        lines += _head(sample.name, sample.kind, sample.help)
        lines.append(f"{sample.name}{_labels(labels)} {_number(sample.value)}")
    requests: Mapping[str, Any] = snapshot.get("requests") or {}
    name = "sglang_lite:requests_finished_total"
    lines += _head(name, "counter", "Requests that ended, by the reason of their end")
    finished = {"stop": 0, "length": 0, "abort": 0} | requests.get("finished", {})
    lines += [f"{name}{_labels({**labels, 'reason': kind})} {count}" for kind, count in sorted(finished.items())]
    for short, histogram in requests.get("histograms", {}).items():
        lines += _histogram(f"sglang:{short}", _HISTOGRAMS[short], histogram, labels)
    return "\n".join(lines) + "\n"


def _of_engine(snapshot: Mapping[str, Any]) -> Iterator[Sample]:
    if "kv" not in snapshot:
        return
    known = snapshot["cached_tokens"] + snapshot["computed_tokens"]
    kv = snapshot["kv"]
    held = kv["protected_pages"] + kv["private_pages"]
    requests: Mapping[str, Any] = snapshot.get("requests") or {}
    tokens: Mapping[str, int] = requests.get("tokens") or {}
    finished: Mapping[str, int] = requests.get("finished") or {}
    waiting = snapshot["waiting"] + snapshot["waiting_for_grammar"]
    running = snapshot["running"] + snapshot["prefilling"]
    yield from (
        Sample("sglang:num_running_reqs", "gauge", "Requests in the running batch", running),
        Sample("sglang:num_queue_reqs", "gauge", "Requests that wait", waiting),
        Sample("sglang:num_grammar_queue_reqs", "gauge", "Requests that wait for their constraint", snapshot["waiting_for_grammar"]),
        Sample("sglang:token_usage", "gauge", "Share of the KV pool that running requests hold", held / kv["total_pages"]),
        Sample("sglang:cache_hit_rate", "gauge", "Share of prompt tokens that were cached", snapshot["cached_tokens"] / known if known else 0.0),
        Sample("sglang:prompt_tokens_total", "counter", "Prompt tokens of finished requests", tokens.get("prompt_tokens", 0)),
        Sample("sglang:generation_tokens_total", "counter", "Output tokens of finished requests", tokens.get("generation_tokens", 0)),
        Sample("sglang:cached_tokens_total", "counter", "Prompt tokens of finished requests that were cached", tokens.get("cached_tokens", 0)),
        Sample("sglang:num_requests_total", "counter", "Requests that ended", sum(finished.values())),
        Sample("sglang:num_aborted_requests_total", "counter", "Requests that were aborted or failed", finished.get("abort", 0)),
        Sample("sglang_lite:retractions_total", "counter", "Running requests that gave up their memory for a while", snapshot["retractions"]),
        Sample("sglang_lite:refused_total", "counter", "Requests that the limit of the queue turned away", snapshot["refused"]),
        Sample("sglang_lite:forced_tokens_total", "counter", "Output tokens that a constraint forced", snapshot["forced_tokens"]),
        Sample("sglang_lite:computed_tokens_total", "counter", "Prompt tokens whose KV was computed", snapshot["computed_tokens"]),
        Sample("sglang_lite:evicted_pages_total", "counter", "Pages of the cache that were given up", kv["evicted_pages"]),
        Sample("sglang_lite:steps_total", "counter", "Steps of the scheduler", snapshot["step"]),
        Sample("sglang:spec_accept_length", "gauge", "Tokens of a row with guesses, the drawn one included, on average", snapshot.get("spec_accept_length", 0.0)),
        Sample("sglang:spec_accept_rate", "gauge", "Share of the guesses computed that were kept", snapshot.get("spec_accept_rate", 0.0)),
        Sample("sglang_lite:programs", "gauge", "Programs under way", snapshot.get("programs", 0)),
    )  # fmt: skip


def _histogram(name: str, text: str, histogram: Mapping[str, Any], labels: Mapping[str, str]) -> list[str]:
    lines = _head(name, "histogram", text)
    total = 0
    for bound, count in zip([*histogram["bounds"], None], histogram["counts"], strict=True):
        total += count
        le = "+Inf" if bound is None else _number(bound)
        lines.append(f"{name}_bucket{_labels({**labels, 'le': le})} {total}")
    lines.append(f"{name}_sum{_labels(labels)} {_number(histogram['sum'])}")
    lines.append(f"{name}_count{_labels(labels)} {total}")
    return lines


def _head(name: str, kind: str, text: str) -> list[str]:
    return [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.10g}"


def _labels(labels: Mapping[str, str]) -> str:
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items()) + "}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
