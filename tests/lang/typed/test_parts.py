from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglang_lite.lang.typed.forms import MismatchError
from sglang_lite.lang.typed.of_type import form_of
from sglang_lite.lang.typed.parts import PartScanner, TypedParts, complete_parts
from tests.lang.typed.types_used import Pet, Toy

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)
ROOTS = st.lists(JSON, max_size=4) | st.dictionaries(st.text(max_size=4), JSON, max_size=4)


@given(ROOTS, st.integers(1, 7), st.sampled_from([(",", ":"), (", ", ": "), (" ,\n", " : ")]))
def test_the_parts_of_any_json_come_in_order_whatever_the_pieces(
    value: Any, size: int, separators: tuple[str, str]
) -> None:
    text = json.dumps(value, separators=separators, ensure_ascii=False)
    scanner = PartScanner()
    found = [part for at in range(0, len(text), size) for part in scanner.feed(text[at : at + size])]
    assert found == (list(enumerate(value)) if isinstance(value, list) else list(value.items()))


def json_part_ends(value: Any, at: int) -> bool:
    """True where the first `at` characters of the JSON text end with the separator or bracket behind a part."""
    texts = (
        [json.dumps(v) for v in value]
        if isinstance(value, list)
        else [json.dumps({k: v})[1:-1] for k, v in value.items()]
    )
    ends = [1 + sum(len(text) + 2 for text in texts[:i]) + len(texts[i]) + 1 for i in range(len(texts))]
    return at in ends


@given(ROOTS, st.data())
def test_a_part_comes_with_the_character_that_completes_it_and_not_before(value: Any, data: st.DataObject) -> None:
    text = json.dumps(value)
    cut = data.draw(st.integers(0, len(text)))
    whole = list(enumerate(value)) if isinstance(value, list) else list(value.items())
    found = list(PartScanner().feed(text[:cut]))
    assert found == whole[: len(found)]
    complete = [at for at in range(cut + 1) if json_part_ends(value, at)]
    assert len(found) == len(complete)


@pytest.mark.parametrize("text", ["12", '"a"', "null", "", "  ", "[1 2]", "[}", '{"a"}', "{1:2}", "[]", "{ }", "[,1]"])
def test_what_has_no_parts_or_is_no_json_gives_none(text: str) -> None:
    assert list(PartScanner().feed(text)) == []


@pytest.mark.parametrize("text", ["[1,,2]", "[1] [2]", "[1, x, 2]", "[1"])
def test_from_a_fault_on_nothing_comes(text: str) -> None:
    assert list(PartScanner().feed(text)) == [(0, 1)] * ("]" in text)


def test_parts_are_of_their_types() -> None:
    parts = TypedParts(form_of(list[Toy]))
    assert list(parts.feed('[{"name":"ball"}, {"na')) == [Toy("ball")]
    assert list(parts.feed('me":"doll"}]')) == [Toy("doll")]
    assert list(TypedParts(form_of(Pet)).feed('{"name":"Rex","toys":[{"name":"b"}],"age":')) == [
        ("name", "Rex"),
        ("toys", [Toy("b")]),
    ]


def test_a_part_of_another_type_says_so() -> None:
    with pytest.raises(MismatchError, match=r"\$\[1\]"):
        list(TypedParts(form_of(list[int])).feed('[1,"x",2]'))


def test_of_a_text_that_was_cut_the_complete_parts_are_kept() -> None:
    assert complete_parts(form_of(list[int]), "[1, 22, 3") == [1, 22]
    assert complete_parts(form_of(list[int]), '[1, "x", 3') == [1]
    assert complete_parts(form_of(Pet), '{"name":"R') == []
