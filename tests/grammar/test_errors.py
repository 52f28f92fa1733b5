from __future__ import annotations

from sglang_lite.grammar.errors import GrammarError, InvalidGrammarError, shorten


def test_a_grammar_error_names_source_and_position() -> None:
    error = InvalidGrammarError("the group is open", source="a(b", position=1)
    assert str(error) == "the group is open, at position 1 of 'a(b'"
    assert (error.source, error.position) == ("a(b", 1)


def test_every_grammar_error_is_a_value_error() -> None:
    assert issubclass(GrammarError, ValueError)


def test_long_sources_are_cut_in_the_middle() -> None:
    assert shorten("x" * 50) == repr("x" * 50)
    assert len(shorten("x" * 5000)) < 120
    assert "5000 characters" in shorten("x" * 5000)
