from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sglang_lite.errors import ModelLoadError
from sglang_lite.runtime.model.fields import Fields


def fields(**values: Any) -> Fields:
    return Fields({f"a.{key}": value for key, value in values.items()}, Path("file.x"), "setting", "a.")


def test_values_come_by_kind_and_null_counts_as_absent() -> None:
    found = fields(n=3, x=0.5, yes=True, nothing=None)
    assert (found.count("n"), found.number("x"), found.number("n"), found.flag("yes")) == (3, 0.5, 3.0, True)
    assert (found.count("nothing", 7), found.number("gone", 1.5), found.flag("gone", True)) == (7, 1.5, True)
    assert found.optional_count("nothing") is None
    assert found.optional_number("x") == 0.5
    assert found.states("nothing")
    assert not found.states("gone")
    found.raise_missing()


def test_what_is_missing_is_named_at_once() -> None:
    found = fields()
    assert (found.count("one"), found.number("two")) == (1, 1.0)
    with pytest.raises(ModelLoadError, match=r"file\.x: setting lacks 'a\.one', 'a\.two'"):
        found.raise_missing()


@pytest.mark.parametrize("value", [0, -3, 1.5, True, "12", [1]])
def test_a_count_is_a_whole_number_of_at_least_one(value: Any) -> None:
    with pytest.raises(ModelLoadError, match=r"file\.x: setting 'a\.n' is .*, expected a whole number of at least 1"):
        fields(n=value).count("n")


@pytest.mark.parametrize("value", [0, -0.5, float("nan"), False, "1.0"])
def test_a_number_is_positive(value: Any) -> None:
    with pytest.raises(ModelLoadError, match="expected a positive number"):
        fields(x=value).number("x")


def test_a_flag_is_true_or_false_and_long_values_are_cut() -> None:
    with pytest.raises(ModelLoadError, match=r"is 'yyy.*\.\.\., expected true or false"):
        fields(x="y" * 500).flag("x")
