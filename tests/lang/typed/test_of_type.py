from __future__ import annotations

import datetime
from dataclasses import dataclass
from typing import Any, NewType, TypeVar

import pytest

from sglang_lite.errors import RequestError, UnsupportedError
from sglang_lite.lang.typed.of_type import form_of
from tests.lang.typed.types_used import Colour, Film, Loose, Pet, Point, Toy

UserId = NewType("UserId", int)


def test_a_dataclass_is_an_object_of_its_fields_with_their_defaults() -> None:
    assert form_of(Pet).root_schema() == {
        "type": "object",
        "description": "A pet.",
        "properties": {
            "name": {"type": "string"},
            "age": {"type": "integer", "default": 0},
            "toys": {"type": "array", "items": {"$ref": "#/$defs/Toy"}},
            "weight": {"anyOf": [{"type": "number"}, {"type": "null"}], "default": None},
        },
        "required": ["name"],
        "additionalProperties": False,
        "$defs": {
            "Toy": {
                "type": "object",
                "properties": {
                    "name": {"type": "string", "description": "how it is called", "maxLength": 8},
                    "colour": {"anyOf": [{"enum": ["red", "blue"]}, {"type": "null"}], "default": None},
                },
                "required": ["name"],
                "additionalProperties": False,
            }
        },
    }


@pytest.mark.parametrize(("kind", "required"), [(Film, ["title"]), (Loose, ["title"]), (Point, ["x"]), (Toy, ["name"])])
def test_what_may_be_left_out_is_not_required(kind: Any, required: list[str]) -> None:
    assert form_of(kind).root_schema()["required"] == required


@pytest.mark.parametrize(
    ("annotation", "schema"),
    [
        (UserId, {"type": "integer"}),
        (list, {"type": "array", "items": {}}),
        (dict, {"type": "object", "additionalProperties": {}}),
        (tuple, {"type": "array", "items": {}}),
        (tuple[()], {"type": "array", "prefixItems": [], "items": False, "minItems": 0, "maxItems": 0}),
        (Colour, {"enum": ["red", "blue"]}),
        (None, {"type": "null"}),
        (object, {}),
    ],
)
def test_other_types_have_their_schema(annotation: Any, schema: dict[str, Any]) -> None:
    assert form_of(annotation).root_schema() == schema


@dataclass
class WithDate:
    day: datetime.date


@dataclass
class Lost:
    other: NotThere  # type: ignore[name-defined] # noqa: F821


def test_a_type_without_a_form_is_named_with_its_place() -> None:
    with pytest.raises(UnsupportedError, match=r"type date \(WithDate.day\)"):
        form_of(list[WithDate])
    with pytest.raises(UnsupportedError, match="names of str"):
        form_of(dict[int, str])
    with pytest.raises(UnsupportedError, match="type T:"):
        form_of(TypeVar("T"))


def test_an_annotation_that_cannot_be_resolved_says_what_to_do() -> None:
    with pytest.raises(RequestError, match=r"NotThere.*top of a module"):
        form_of(Lost)
