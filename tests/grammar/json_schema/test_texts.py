"""Sets of strings: their algebra against membership."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglang_lite.grammar import UnsupportedGrammarError
from sglang_lite.grammar.json_schema.languages import matches
from sglang_lite.grammar.json_schema.patterns import pattern_language
from sglang_lite.grammar.json_schema.texts import TextSet, complement_texts, meet_texts

LANGUAGES = st.frozensets(st.sampled_from([pattern_language(one) for one in ("^a", "b", "^[ab]*$")]), max_size=2)
TEXTS = st.text("abc", max_size=4)
SETS = st.builds(
    TextSet,
    low=st.integers(0, 2),
    high=st.none() | st.integers(1, 3),
    within=LANGUAGES,
    outside=LANGUAGES,
    excluded=st.frozensets(TEXTS, max_size=2),
) | st.builds(TextSet, values=st.frozensets(TEXTS, min_size=1, max_size=3))


@given(SETS, SETS, TEXTS)
def test_the_algebra_follows_membership(left: TextSet, right: TextSet, text: str) -> None:
    met = meet_texts(left, right)
    assert (met is not None and text in met) == (text in left and text in right)
    assert any(text in part for part in complement_texts(left)) == (text not in left)
    assert matches(left.language(), text) == (text in left)
    assert not (left.is_empty and text in left)


def test_what_is_offered_in_part_proves_nothing() -> None:
    part = TextSet(offered=frozenset([pattern_language("^x$")]))
    met = meet_texts(part, TextSet(values=frozenset(["y", "x"])))
    assert met is not None
    assert met.listed() == {"x"}
    only = meet_texts(part, TextSet(values=frozenset(["y"])))
    assert only is not None
    assert not only.is_empty
    assert only.listed() == frozenset()
    with pytest.raises(UnsupportedGrammarError):
        complement_texts(part)
