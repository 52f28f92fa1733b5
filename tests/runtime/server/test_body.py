from __future__ import annotations

import pytest

from sglang_lite.errors import RequestError
from sglang_lite.runtime.server.body import parse_json


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"", "empty"),
        (b"  \n", "empty"),
        (b"{:", "at character 1"),
        (b'{"a": NaN}', "NaN"),
        (b'{"a": -Infinity}', "-Infinity"),
        (b'{"a": "\xff"}', "byte 7 is not UTF-8"),
        (b"[" * 100 + b"]" * 100, "deeper than 64"),
        (b"[" * 100_000 + b"]" * 100_000, "deeper than 64"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(raw: bytes, words: str) -> None:
    with pytest.raises(RequestError, match=words):
        parse_json(raw)


def test_json_is_json() -> None:
    assert parse_json(b'{"a": [1, 2.5, null, {"b": "\xc3\xa9"}]}') == {"a": [1, 2.5, None, {"b": "é"}]}
