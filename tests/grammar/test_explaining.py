from __future__ import annotations

import pytest

from sglang_lite.grammar.explaining import explain_schema, first_failure
from sglang_lite.grammar.json_schema import SchemaOptions
from tests.grammar.toy import regex


@pytest.mark.parametrize(
    ("text", "offset", "expected", "may_end"),
    [
        ("catx", 3, ((ord("e"), ord("e")), (ord("s"), ord("s"))), True),
        ("ca", 2, ((ord("t"), ord("t")),), False),
        ("", 0, ((ord("c"), ord("d")),), False),
    ],
)
def test_the_place_where_a_text_leaves_the_grammar(
    text: str, offset: int, expected: tuple[tuple[int, int], ...], may_end: bool
) -> None:
    failure = first_failure(regex("(cat|category|dog)s?"), text)
    assert failure is not None
    assert (failure.offset, failure.expected, failure.may_end) == (offset, expected, may_end)


def test_a_text_of_the_grammar_has_no_failure() -> None:
    assert first_failure(regex("猫+"), "猫猫") is None
    failure = first_failure(regex("猫+"), "猫狗")
    assert failure is not None
    assert failure.offset == 4  # the two characters share their first byte


def test_every_keyword_is_told_of() -> None:
    schema = {
        "title": "T",
        "properties": {"a": {"type": "number", "multipleOf": 0.3}, "b": {"format": "made-up", "x-mine": 1}},
        "anyOf": [{"required": ["a"]}],
    }
    found = {one.pointer: one.effect for one in explain_schema(schema, SchemaOptions(strict=False))}
    assert found["/title"] == "annotation"
    assert found["/properties/b/format"] == "annotation"
    assert found["/properties/b/x-mine"] == "ignored"
    assert found["/anyOf/0/required"] == "exact"
    assert "/properties/a/multipleOf" in found


def test_a_refusal_is_told_of() -> None:
    last = explain_schema({"type": "string", "pattern": "(?=a)b"}, SchemaOptions())[-1]
    assert last.effect == "refused"
    assert "pattern" in last.detail
