"""How lines of the log look: as text or as one JSON object each; it knows not what they say."""

from __future__ import annotations

import json
import logging
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

FACTS = "sglang_lite_facts"
"""The attribute of a log record that holds what its line says by name."""


@dataclass(frozen=True, slots=True)
class RequestIds:
    """By what a request is found again: its id, and the `traceparent` that it brought."""

    id: str
    traceparent: str | None = None

    def __str__(self) -> str:
        trace = "" if self.traceparent is None else f" trace={self.traceparent.split('-')[1]}"
        return f"id={self.id}{trace}"

    def to_dict(self) -> dict[str, str]:
        """For a line of JSON."""
        return {"id": self.id} | ({} if self.traceparent is None else {"trace": self.traceparent.split("-")[1]})

    def headers(self) -> list[tuple[bytes, bytes]]:
        """For the response."""
        echoed = [(b"x-request-id", self.id.encode())]
        return echoed if self.traceparent is None else [*echoed, (b"traceparent", self.traceparent.encode())]


REQUEST: ContextVar[tuple[RequestIds, dict[str, Any]] | None] = ContextVar("sglang_lite_request", default=None)
"""The request that this task serves, and what will stand on its line."""


def formatter(form: str) -> logging.Formatter:
    """The formatter of `--log-format`: `text` or `json`."""
    return JsonLines() if form == "json" else TextLines("%(asctime)s %(levelname)s %(message)s")


class TextLines(logging.Formatter):
    """Text; a line that is written while a request is served, and is not its own, begins with the request's id."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        """One line."""
        served = REQUEST.get()
        if served is not None and record.__dict__.get(FACTS) is None:
            record.message = f"{served[0]} {record.message}"
        return super().formatMessage(record)


class JsonLines(logging.Formatter):
    """`time`, `level`, `logger`, and the record's facts by name, or its `message` where it has none."""

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line: dict[str, Any] = {"time": time, "level": record.levelname.lower(), "logger": record.name}
        facts: dict[str, Any] | None = record.__dict__.get(FACTS)
        if facts is None:
            served = REQUEST.get()
            facts = {"message": record.getMessage()} | ({} if served is None else served[0].to_dict())
        line |= facts
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)
