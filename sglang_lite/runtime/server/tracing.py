"""Spans of requests for OpenTelemetry, an optional package; it knows no route."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from sglang_lite.errors import RequestError


class Spans(Protocol):
    """Where spans go."""

    def record(
        self, name: str, parent: Mapping[str, str], start_ns: int, end_ns: int, status: int, facts: Mapping[str, Any]
    ) -> None:
        """One ended HTTP request; `parent`: its `traceparent` and `tracestate`, where it had them; times since the epoch."""
        ...


class OtlpSpans:
    """Sends spans to a collector, in batches, on a thread of the package's own."""

    def __init__(self, endpoint: str) -> None:
        """`endpoint`: such as `http://collector:4318/v1/traces`.

        Raises:
            RequestError: the packages are not installed.
        """
        try:  # optional packages
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # pyright: ignore[reportMissingImports]
            from opentelemetry.sdk.resources import Resource  # pyright: ignore[reportMissingImports]
            from opentelemetry.sdk.trace import TracerProvider  # pyright: ignore[reportMissingImports]
            from opentelemetry.sdk.trace.export import BatchSpanProcessor  # pyright: ignore[reportMissingImports]
            from opentelemetry.trace import SpanKind, Status, StatusCode  # pyright: ignore[reportMissingImports]
            from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator  # pyright: ignore[reportMissingImports]
        except ImportError as error:
            raise RequestError(
                f"sending spans to {endpoint}: {error.name} is not installed; pip install opentelemetry-sdk "
                "opentelemetry-exporter-otlp-proto-http, or leave --otlp-endpoint out"
            ) from error
        provider = TracerProvider(resource=Resource.create({"service.name": "sglang_lite"}))
        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=endpoint)))
        self._tracer: Any = provider.get_tracer("sglang_lite")
        self._propagator: Any = TraceContextTextMapPropagator()
        self._kind: Any = SpanKind.SERVER
        self._failed: Any = Status(StatusCode.ERROR)

    def record(
        self, name: str, parent: Mapping[str, str], start_ns: int, end_ns: int, status: int, facts: Mapping[str, Any]
    ) -> None:
        """See `Spans`."""
        context = self._propagator.extract(dict(parent))
        span = self._tracer.start_span(name, context=context, kind=self._kind, start_time=start_ns)
        span.set_attribute("http.response.status_code", status)
        for key, value in facts.items():
            span.set_attribute(
                f"sglang_lite.{key}", value if isinstance(value, str | int | float | bool) else str(value)
            )
        if status >= 500:
            span.set_status(self._failed)
        span.end(end_time=end_ns)


def spans_of(endpoint: str | None) -> Spans | None:
    """Where spans go by the settings; None: nowhere.

    Raises:
        RequestError: as `OtlpSpans`.
    """
    return None if endpoint is None else OtlpSpans(endpoint)
