"""Formats, against known texts."""

from __future__ import annotations

import pytest

from sglang_lite.grammar.json_schema.formats import format_language
from sglang_lite.grammar.json_schema.languages import matches

TABLE: dict[str, tuple[list[str], list[str]]] = {
    "date": (
        ["2024-02-29", "2000-02-29", "1999-12-31"],
        ["2023-02-29", "1900-02-29", "2024-04-31", "2024-1-01", "x2024-01-01"],
    ),
    "time": (["12:00:00Z", "23:59:59.123+05:30"], ["24:00:00Z", "12:00:00", "12:60:00Z"]),
    "date-time": (["2024-02-29T12:00:00Z"], ["2024-02-30T12:00:00Z", "2024-02-29 12:00:00Z", "2024-02-29T12:00:00"]),
    "duration": (["P1Y2M3DT4H5M6S", "PT5M", "P2W"], ["P", "PT", "P1Y1W", "5M"]),
    "email": (["a@b.co", "first.last+tag@sub.example.org"], ["a", "@b.co", "a@", "a b@c.d", "a..b@c.d"]),
    "hostname": (["a", "www.example.com", "xn-a"], ["-a", "a-", "a..b", "a_b", ""]),
    "ipv4": (["0.0.0.0", "255.255.255.255"], ["256.0.0.0", "01.0.0.0", "1.2.3"]),
    "ipv6": (
        ["::", "::1", "1:2:3:4:5:6:7:8", "fe80::1:2", "::ffff:1.2.3.4", "1::8"],
        ["1:2:3:4:5:6:7", "1::2::3", ":::", "12345::"],
    ),
    "uri": (
        ["http://a.b/c?d=e#f", "urn:isbn:1", "mailto:a@b.c", "http://[::1]:80/"],
        ["/a", "a b", "http://a b", "//a"],
    ),
    "uri-reference": (["/a", "", "#x", "http://a", "a/b?c"], ["a b", "\\a"]),
    "uuid": (
        ["123e4567-e89b-12d3-a456-426614174000"],
        ["123e4567e89b12d3a456426614174000", "g23e4567-e89b-12d3-a456-426614174000"],
    ),
    "json-pointer": (["", "/a~0b/~1", "/é"], ["a", "/~2"]),
    "relative-json-pointer": (["0", "1/a", "2#"], ["01", "/a", "-1"]),
    "uri-template": (["http://a/{id}"], ["http://a/{id", "a b"]),
    "regex": (["abc"], ["("]),
    "iri": (["http://a"], ["a b"]),
    "iri-reference": (["/a"], ["a b"]),
    "idn-email": (["a@b.co"], ["a"]),
    "idn-hostname": (["a.b"], ["-a"]),
}


@pytest.mark.parametrize("name", TABLE)
def test_a_format_accepts_and_rejects(name: str) -> None:
    found = format_language(name)
    assert found is not None
    valid, invalid = TABLE[name]
    assert [text for text in valid if not matches(found.language, text)] == []
    assert [text for text in invalid if matches(found.language, text)] == []


def test_an_unknown_format_is_none() -> None:
    assert format_language("color") is None
