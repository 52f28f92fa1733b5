"""The error tree drawn in the module's docstring is the one that is built."""

from __future__ import annotations

import inspect
import re

import pytest

from sglang_lite import errors

CLASSES = [
    value for value in vars(errors).values() if inspect.isclass(value) and issubclass(value, errors.SglangLiteError)
]


def drawn_depths() -> dict[str, int]:
    """Each name in the drawing with its depth in the tree: four columns a level."""
    assert errors.__doc__ is not None
    lines = [re.match(r"([\s│├└─]*)(\w+Error)\b", line) for line in errors.__doc__.splitlines()]
    return {found[2]: len(found[1]) // 4 for found in lines if found}


def test_the_drawing_names_every_error_at_its_depth() -> None:
    own = set(CLASSES)
    assert drawn_depths() == {c.__name__: len(own.intersection(c.__mro__)) for c in CLASSES}


@pytest.mark.parametrize(
    ("error", "builtin"),
    [
        (errors.RequestError, ValueError),
        (errors.ProgramError, RuntimeError),
        (errors.ModelLoadError, RuntimeError),
        (errors.ExecutionError, RuntimeError),
    ],
)
def test_each_branch_is_caught_by_its_builtin_too(error: type[Exception], builtin: type[Exception]) -> None:
    assert issubclass(error, builtin)
