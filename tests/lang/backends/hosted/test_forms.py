"""Constraints as JSON for an API, and back; whole values are checked in `test_json_check`."""

from __future__ import annotations

import json

import pytest

from sglang_lite.lang.backends.hosted.forms import Form, InvalidReplyError, choice_form, form_of
from sglang_lite.lang.ir import REGEX_FLOAT, REGEX_INT
from sglang_lite.request_tree import SamplingParams


def test_an_object_goes_as_it_is_and_anything_else_in_a_wrapper() -> None:
    schema = {"type": "object", "properties": {"b": {}, "a": {}}}
    form = form_of(SamplingParams(json_schema=json.dumps(schema)))
    assert form == Form(schema)
    text = '{"b": 1,\n "a": 2}'
    assert form is not None
    assert form.text_of(text) == text, "the text is the model's own"
    listed = form_of(
        SamplingParams(
            json_schema='{"type": "array", "items": {"$ref": "#/$defs/n"}, "$defs": {"n": {"type": "integer"}}}'
        )
    )
    assert listed is not None
    assert listed.schema["$defs"] == {"n": {"type": "integer"}}
    assert listed.text_of('{"value": [1]}') == "[1]"
    with pytest.raises(InvalidReplyError, match=r"value\[0\] is \"x\", expected integer"):
        listed.text_of('{"value": ["x"]}')


def test_only_regexes_of_dtypes_have_a_form() -> None:
    assert form_of(SamplingParams(regex="[a-z]+")) is None
    assert form_of(SamplingParams()) is None
    number = form_of(SamplingParams(regex=REGEX_FLOAT))
    assert number is not None
    assert number.text_of('{"value": 2}') == "2"
    with pytest.raises(InvalidReplyError, match="does not match"):
        number.text_of('{"value": 1e30}')
    whole = form_of(SamplingParams(regex=REGEX_INT))
    assert whole is not None
    for bad in ('{"value": 1.5}', '{"value": true}', "{}", "[1]", "7"):
        with pytest.raises(InvalidReplyError):
            whole.text_of(bad)


def test_choices_are_an_enum() -> None:
    form = choice_form(("a", "", "a"))
    assert form.schema["properties"]["value"]["enum"] == ["a", ""]
    assert form.text_of('{"value": ""}') == ""
    assert form_of(SamplingParams(choices=("a", "", "a"))) == form
    with pytest.raises(InvalidReplyError):
        form.text_of('{"value": "b"}')


@pytest.mark.parametrize(
    ("schema", "is_strict"),
    [
        ({"type": "object", "properties": {"a": {}}, "required": ["a"], "additionalProperties": False}, True),
        ({"type": "object", "properties": {"a": {}}, "required": [], "additionalProperties": False}, False),
        ({"type": "object", "properties": {"a": {}}, "required": ["a"]}, False),
        (
            {
                "type": "object",
                "properties": {"a": {"type": "array", "items": {"type": "object"}}},
                "required": ["a"],
                "additionalProperties": False,
            },
            False,
        ),
    ],
)
def test_strict_is_said_where_the_schema_is(schema: dict[str, object], is_strict: bool) -> None:
    assert Form(schema).is_strict is is_strict
