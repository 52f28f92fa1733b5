"""What a type checker knows of typed values; `test_programs.py` has pyright read it."""

from __future__ import annotations

from typing import Any, assert_type

import sglang_lite as sgl
from tests.lang.typed.types_used import Colour, Pet


def values(s: sgl.ProgramState) -> None:
    pet = sgl.gen("pet", type=Pet)
    s += "A pet: " + pet
    assert_type(s[pet], Pet)
    number = sgl.gen("number", 16, temperature=0.5, type=int, retries=2)
    s += number
    assert_type(s[number] + 1, int)
    assert_type(s[sgl.gen("colours", type=list[Colour])], list[Colour])
    assert_type(s["pet"], Any)
    sgl.gen("checked", type=int, check=lambda value: value.bit_length())


async def awaited(s: sgl.ProgramState) -> None:
    pet = sgl.gen("pet", type=Pet)
    assert_type(await s.get(pet), Pet)
    assert_type(await s.get("pet"), Any)


def wrong(s: sgl.ProgramState) -> None:
    sgl.gen("x", type=Pet, retries="2")  # ERROR: retries is a number
    _ = s[sgl.gen("x", type=Pet)].nme  # ERROR: a Pet has no such member
