from __future__ import annotations

import pytest

from sglang_lite.lang.typed.forms import MismatchError
from sglang_lite.lang.typed.objects import ObjectForm
from sglang_lite.lang.typed.of_type import form_of
from tests.lang.typed.types_used import Inner, Model, OtherInner, Tree


def test_a_model_brings_its_own_schema() -> None:
    assert form_of(Model).root_schema() == Model.model_json_schema()


def test_the_definitions_of_models_inside_a_type_stand_at_its_root() -> None:
    schema = form_of(tuple[Model, Inner]).root_schema()
    assert set(schema["$defs"]) == {"Model", "Inner"}
    assert schema["$defs"]["Model"]["properties"]["inner"]["items"] == {"$ref": "#/$defs/Inner"}
    assert "$defs" not in schema["$defs"]["Model"]


def test_classes_of_one_name_keep_their_own_schema() -> None:
    OtherInner.__name__ = "Inner"
    schema = form_of(list[Model | OtherInner]).root_schema()
    names = [option["$ref"].rsplit("/", 1)[1] for option in schema["items"]["anyOf"]]
    assert schema["$defs"][names[1]]["properties"] == {"text": {"title": "Text", "type": "string"}}
    inner = schema["$defs"][names[0]]["properties"]["inner"]["items"]["$ref"].rsplit("/", 1)[1]
    assert "kind" in schema["$defs"][inner]["properties"]


def test_a_model_that_contains_itself_refers_to_itself() -> None:
    schema = form_of(list[Tree]).root_schema()
    assert schema["items"] == {"$ref": "#/$defs/Tree"}
    assert schema["$defs"]["Tree"]["properties"]["children"]["items"] == {"$ref": "#/$defs/Tree"}


def test_fields_of_a_model_are_found_by_name_and_alias() -> None:
    form = form_of(Model)
    for key in ("called", "calledAs"):
        part = form.part(key)
        assert part is not None
        assert part.build("x", ()) == "x"
    assert form.part("nothing") is None


def test_an_error_of_the_class_itself_that_is_no_value_error_is_not_swallowed() -> None:
    def make() -> None:
        raise KeyError("a bug")

    with pytest.raises(KeyError):
        ObjectForm("X", make, may_refuse=True).build({}, ())


def test_no_object_is_told_by_the_class() -> None:
    with pytest.raises(MismatchError, match=r"expected a JSON object \(X\)"):
        ObjectForm("X", dict, may_refuse=False).build([], ())
