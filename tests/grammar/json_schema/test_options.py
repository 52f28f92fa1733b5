"""Choices of a caller."""

from __future__ import annotations

import pytest

from sglang_lite.grammar import InvalidGrammarError
from sglang_lite.grammar.json_schema import SchemaOptions


@pytest.mark.parametrize(
    "options", [{"whitespace": "wide"}, {"formats": "some"}, {"max_integer_digits": 0}, {"max_whitespace": -1}]
)
def test_an_unknown_choice_is_an_error(options: dict[str, object]) -> None:
    with pytest.raises(InvalidGrammarError, match=next(iter(options))):
        SchemaOptions(**options)  # pyright: ignore[reportArgumentType]


def test_options_are_keys() -> None:
    assert len({SchemaOptions(), SchemaOptions(), SchemaOptions(strict=False)}) == 2
