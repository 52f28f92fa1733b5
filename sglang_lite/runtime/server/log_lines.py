"""How lines of the log look: as text or as one JSON object each; it knows not what they say."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from typing import Any

FACTS = "sglang_lite_facts"
"""The attribute of a log record that holds what its line says by name."""


def formatter(form: str) -> logging.Formatter:
    """The formatter of `--log-format`: `text` or `json`."""
    return JsonLines() if form == "json" else logging.Formatter("%(asctime)s %(levelname)s %(message)s")


class JsonLines(logging.Formatter):
    """`time`, `level`, `logger`, and the record's facts by name, or its `message` where it has none."""

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line: dict[str, Any] = {"time": time, "level": record.levelname.lower(), "logger": record.name}
        facts: dict[str, Any] | None = getattr(record, FACTS, None)
        line |= {"message": record.getMessage()} if facts is None else facts
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)
