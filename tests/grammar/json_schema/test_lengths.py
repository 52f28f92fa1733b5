"""Languages with a bound on the length."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sglang_lite.grammar.json_schema.formats import format_language
from sglang_lite.grammar.json_schema.languages import lengths, matches
from sglang_lite.grammar.json_schema.lengths import bounded, length_language
from sglang_lite.grammar.json_schema.patterns import pattern_language
from sglang_lite.grammar.syntax import Both

PATTERNS = ["", "^a+$", "^ab*c$", "^(ab)*$", "a", "^a{2,4}b$", "^abc$"]


@given(st.sampled_from(PATTERNS), st.integers(0, 4), st.none() | st.integers(2, 5), st.text("abc", max_size=6))
def test_bounded_texts_are_those_of_the_right_length(pattern: str, low: int, high: int | None, text: str) -> None:
    node = pattern_language(pattern)
    fits = low <= len(text) and (high is None or len(text) <= high)
    assert matches(bounded(node, low, high), text) == (fits and matches(node, text))
    assert matches(length_language(low, high), text) == fits


def test_one_repeat_takes_the_bound_without_a_product() -> None:
    assert not isinstance(bounded(pattern_language(r"^\S.*\S$"), 2, 2000), Both)
    assert isinstance(bounded(pattern_language("^(ab)*$"), 2, 5), Both)


def test_a_large_product_is_avoided_by_shorter_repeats() -> None:
    found = format_language("uri")
    assert found is not None
    thin = bounded(found.language, 1, 2083, exact=False)
    most = lengths(thin)[1]
    assert most is not None
    assert 1000 < most <= 2083
    assert matches(thin, "https://example.com/a/b?c=d#e")
