"""Spans of requests, over a stand-in for the optional package that keeps what it is given."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from sglang_lite.errors import RequestError
from sglang_lite.runtime.server.app import create_app
from sglang_lite.runtime.server.config import ServerConfig
from sglang_lite.runtime.server.tracing import OtlpSpans, spans_of
from tests.runtime.server.test_access import call
from tests.support.talking_engine import talking_engine

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class FakeSpan:
    def __init__(self, name: str, **given: Any) -> None:
        self.name = name
        self.given = given
        self.attributes: dict[str, Any] = {}
        self.is_failed = False
        self.end_ns = 0

    def set_attribute(self, name: str, value: Any) -> None:
        self.attributes[name] = value

    def set_status(self, status: Any) -> None:
        self.is_failed = status == "failed"

    def end(self, end_time: int) -> None:
        self.end_ns = end_time


@pytest.fixture
def exported(monkeypatch: pytest.MonkeyPatch) -> list[FakeSpan]:
    """The spans that were started; the modules have the names that are imported from the real package."""
    spans: list[FakeSpan] = []

    class Provider:
        def __init__(self, resource: Any) -> None:
            self.processors: list[Any] = []

        def add_span_processor(self, processor: Any) -> None:
            self.processors.append(processor)

        def get_tracer(self, name: str) -> Any:
            def start_span(name: str, **given: Any) -> FakeSpan:
                spans.append(FakeSpan(name, **given))
                return spans[-1]

            return SimpleNamespace(start_span=start_span)

    content: dict[str, dict[str, Any]] = {
        "opentelemetry.exporter.otlp.proto.http.trace_exporter": {"OTLPSpanExporter": lambda endpoint: endpoint},
        "opentelemetry.sdk.resources": {"Resource": SimpleNamespace(create=lambda values: values)},
        "opentelemetry.sdk.trace": {"TracerProvider": Provider},
        "opentelemetry.sdk.trace.export": {"BatchSpanProcessor": lambda exporter: exporter},
        "opentelemetry.trace": {
            "SpanKind": SimpleNamespace(SERVER="server"),
            "Status": lambda code: code,
            "StatusCode": SimpleNamespace(ERROR="failed"),
        },
        "opentelemetry.trace.propagation.tracecontext": {
            "TraceContextTextMapPropagator": lambda: SimpleNamespace(extract=lambda carrier: carrier)
        },
    }
    for name in content:
        parts = name.split(".")
        for end in range(1, len(parts) + 1):
            monkeypatch.setitem(
                sys.modules, ".".join(parts[:end]), sys.modules.get(".".join(parts[:end])) or ModuleType("x")
            )
    for name, values in content.items():
        module = ModuleType(name)
        module.__dict__.update(values, __path__=[])
        monkeypatch.setitem(sys.modules, name, module)
    return spans


def test_a_request_is_a_span_below_its_parent(exported: list[FakeSpan]) -> None:
    with talking_engine() as (engine, _):
        app = create_app(engine, ServerConfig(), spans=OtlpSpans("http://collector:4318/v1/traces"))
        call(app, "/livez", [(b"traceparent", PARENT.encode()), (b"x-request-id", b"mine")])
        call(app, "/nowhere")
    first, second = exported
    assert first.name == "GET /livez"
    assert first.given["context"] == {"traceparent": PARENT}
    assert first.given["kind"] == "server"
    assert first.attributes == {"http.response.status_code": 200, "sglang_lite.id": "mine"}
    assert first.end_ns >= first.given["start_time"] > 0
    assert not first.is_failed
    assert second.attributes["http.response.status_code"] == 404


def test_a_fault_of_ours_is_a_failed_span(exported: list[FakeSpan]) -> None:
    OtlpSpans("http://collector").record("POST /x", {}, 1, 2, 500, {"list": [1]})
    assert exported[0].is_failed
    assert exported[0].attributes["sglang_lite.list"] == "[1]"


def test_without_the_package_the_setting_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    assert spans_of(None) is None
    with pytest.raises(RequestError, match="pip install opentelemetry-sdk"):
        spans_of("http://collector")
