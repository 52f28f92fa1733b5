"""The two forms of the log."""

from __future__ import annotations

import json
import logging
import sys

from sglang_lite.runtime.server.log_lines import FACTS, formatter


def record(message: str, **more: object) -> logging.LogRecord:
    made = logging.LogRecord("sglang_lite.server", logging.INFO, "", 0, message, (), None)
    made.__dict__ |= more
    return made


def test_text_is_the_message() -> None:
    assert formatter("text").format(record("id=1 done", **{FACTS: {"id": "1"}})).endswith("INFO id=1 done")


def test_json_has_the_facts_by_name_or_the_message() -> None:
    line = json.loads(formatter("json").format(record("id=1 done", **{FACTS: {"id": "1", "status": 200}})))
    assert (line["id"], line["status"], line["level"], line["logger"]) == ("1", 200, "info", "sglang_lite.server")
    assert line["time"].endswith("+00:00")
    assert "message" not in line
    assert json.loads(formatter("json").format(record("two\nlines")))["message"] == "two\nlines"


def test_an_exception_is_on_the_same_line() -> None:
    try:
        raise ValueError("oh")
    except ValueError:
        text = formatter("json").format(record("failed", exc_info=sys.exc_info()))
    assert "ValueError: oh" in json.loads(text)["exception"]
    assert "\n" not in text
