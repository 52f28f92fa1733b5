from __future__ import annotations

from typing import Literal

import pytest

import sglang_lite as sgl
from sglang_lite.errors import RequestError, UnsupportedError
from sglang_lite.lang.typed.gens import as_typed
from tests.lang.typed.types_used import Colour, Pet

SHOWN = """\
JSON: object: A pet.
  "name": string
  "age" (optional): integer
  "toys" (optional): array
    each item: object
      "name": string, at most 8 characters: how it is called
      "colour" (optional): value
        either "red" | "blue"
        or null
  "weight" (optional): value
    either number
    or null
Example: {"name": "..."}
"""


def test_a_type_is_described_in_a_few_lines_that_are_always_the_same() -> None:
    assert sgl.describe_type(Pet) == SHOWN == sgl.describe_type(Pet)


def test_what_stands_bare_is_described_in_one_line() -> None:
    assert sgl.describe_type(Colour) == "One of: red, blue\n"
    assert sgl.describe_type(Literal["a", 2]) == "One of: a, 2\n"
    assert sgl.describe_type(int) == "A JSON integer.\n"
    assert sgl.describe_type(str) == ""


def test_the_description_stands_in_front_of_the_gen() -> None:
    @sgl.function
    def ask(s) -> None:  # type: ignore[no-untyped-def]
        s += "Q\n" + sgl.gen("x", type=Colour, describe=True)
        s += sgl.gen("y", json_schema={"type": "integer", "minimum": 3}, describe=True)

    backend = sgl.ScriptedBackend(["red", "4"])
    ask.run(backend=backend)
    assert [call.prompt for call in backend.calls] == [
        "Q\nOne of: red, blue\n",
        "Q\nOne of: red, blue\nredJSON: integer, at least 3\nExample: 3\n",
    ]


def test_a_type_beside_another_constraint_is_refused() -> None:
    with pytest.raises(RequestError, match="type=int and json_schema="):
        sgl.gen("x", json_schema="{}", type=int)
    with pytest.raises(RequestError, match="type=int and dtype="):
        sgl.gen("x", dtype=int, type=int)
    with pytest.raises(RequestError, match=r"choices and \['type'\]"):
        sgl.gen("x", choices=["a"], type=int)
    with pytest.raises(RequestError, match="nothing to check"):
        sgl.gen("x", retries=2)
    with pytest.raises(UnsupportedError, match="type bytes"):
        sgl.gen("x", type=bytes)


def test_a_schema_or_a_check_is_enough_to_try_again() -> None:
    for gen in (sgl.gen("x", json_schema="{}", retries=1), sgl.gen("x", check=print, retries=1)):
        made = as_typed(gen)  # type: ignore[arg-type]
        assert made is not None
        assert made.retries.count == 1
