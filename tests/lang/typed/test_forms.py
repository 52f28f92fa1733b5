from __future__ import annotations

import pytest

from sglang_lite.lang.typed.forms import (
    AnyForm,
    Definitions,
    DictForm,
    ListForm,
    MismatchError,
    ScalarForm,
    TupleForm,
    UnionForm,
    build_all,
    path_text,
)


def test_a_path_is_written_with_names_and_positions() -> None:
    assert path_text(("people", 0, "name")) == "$.people[0].name"
    assert path_text(()) == "$"


def test_definitions_of_one_name_are_kept_apart() -> None:
    defs = Definitions()
    first, second = AnyForm(), AnyForm()
    assert defs.ref(first, "A", lambda: {"a": 1}) == {"$ref": "#/$defs/A"}
    assert defs.ref(second, "A", lambda: {"b": 1}) == {"$ref": "#/$defs/A2"}
    assert defs.ref(first, "A", lambda: {"never": 1}) == {"$ref": "#/$defs/A"}
    assert defs.schemas == {"A": {"a": 1}, "A2": {"b": 1}}


def test_a_bool_is_no_number() -> None:
    for kind in (int, float):
        with pytest.raises(MismatchError, match="got True"):
            ScalarForm(kind).build(True, ())


def test_the_parts_of_a_container_have_their_forms() -> None:
    whole, text = ScalarForm(int), ScalarForm(str)
    assert ListForm(whole).part(7) is whole
    assert DictForm(text).part("x") is text
    assert TupleForm([whole, text]).part(1) is text
    assert TupleForm([whole, text]).part(2) is None
    assert UnionForm([ScalarForm(type(None)), ListForm(whole)]).part(0) is whole
    assert UnionForm([ListForm(text), ListForm(whole)]).part(0) is None


def test_a_union_tells_what_its_closest_type_misses() -> None:
    form = UnionForm([ScalarForm(type(None)), ListForm(ScalarForm(int))])
    with pytest.raises(MismatchError, match=r"\$\[1\]"):
        form.build([1, "x"], ())


def test_all_failures_are_collected() -> None:
    with pytest.raises(MismatchError) as caught:
        build_all([(ScalarForm(int), "a", ("x",)), (ScalarForm(int), 1, ("y",)), (ScalarForm(int), None, ("z",))])
    assert [path for path, _ in caught.value.failures] == [("x",), ("z",)]
