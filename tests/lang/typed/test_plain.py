from __future__ import annotations

import json

from sglang_lite.lang.typed.plain import as_plain
from tests.lang.typed.types_used import Colour, Model, Pet, Point, Toy


def test_values_of_types_are_written_as_their_members() -> None:
    value = {"pet": Pet("Rex", toys=[Toy("b", Colour.RED)]), "model": Model(number=1), "set": {1}, "point": Point(1)}
    assert json.loads(json.dumps(value, default=as_plain)) == {
        "pet": {"name": "Rex", "age": 0, "toys": [{"name": "b", "colour": "red"}], "weight": None},
        "model": {"number": 1, "inner": [], "called": ""},
        "set": [1],
        "point": [1, 1.5],
    }


def test_other_things_are_shown() -> None:
    assert as_plain(Pet).startswith("<class")
    assert as_plain(1j) == "1j"
