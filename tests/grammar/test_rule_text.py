from __future__ import annotations

import pytest

from sglang_lite.grammar.errors import GrammarTooLargeError, InvalidGrammarError
from sglang_lite.grammar.rule_text import MAX_NESTING, RuleText
from sglang_lite.grammar.syntax import Bytes, Ref


def test_errors_have_line_and_column() -> None:
    text = RuleText("ab\ncdé\n\nx", "rules")
    places = [
        (0, "line 1, column 1"),
        (2, "line 1, column 3"),
        (5, "line 2, column 3"),
        (7, "line 3, column 1"),
        (8, "line 4, column 1"),
    ]
    for position, place in places:
        assert f"compiling rules, {place}: odd" in str(text.invalid("odd", position))
        assert place in str(text.unsupported("odd", position))


def test_blanks_and_comments_end_where_asked() -> None:
    text = RuleText("  # one # two\n\t x", "rules")
    text.skip_blank("#", newlines=False)
    assert text.scanner.peek() == "\n"
    text.skip_blank("#")
    assert text.scanner.peek() == "x"


@pytest.mark.parametrize(
    ("source", "read"),
    [(r'a\n\t\r\"\\\/\[\]\-"', 'a\n\t\r"\\/[]-'), (r'\x41\u00e9\U0001f600\u{1F600}\ud83d\ude00"', "Aé😀😀😀")],
)
def test_escapes(source: str, read: str) -> None:
    text = RuleText('"' + source, "rules")
    text.scanner.next()
    assert text.string('"') == read


@pytest.mark.parametrize("source", ["", "a\n", "\\", r"\x4", r"\u{}", r"\u{41", r"\q", r"\U00110000", r"\ud800"])
def test_faulty_texts_are_refused(source: str) -> None:
    text = RuleText('"' + source + ('"' if source.startswith("\\") and len(source) > 1 else ""), "rules")
    text.scanner.next()
    with pytest.raises(InvalidGrammarError):
        text.string('"')


def test_the_first_reference_to_a_missing_rule_is_the_place_of_the_fault() -> None:
    text = RuleText("....", "rules")
    assert text.refer("x", 1) == Ref("x")
    text.refer("x", 3)
    text.check_references({"x": Bytes(b"")})
    with pytest.raises(InvalidGrammarError, match="column 2: the rule x is not defined"):
        text.check_references({})


def test_groups_have_a_depth() -> None:
    text = RuleText(")", "rules")
    for _ in range(MAX_NESTING):
        text.enter_group(0)
    with pytest.raises(GrammarTooLargeError, match="line 1, column 1"):
        text.enter_group(0)
    text.leave_group(")", 0)
    with pytest.raises(InvalidGrammarError, match="not closed"):
        text.leave_group(")", 0)


def test_only_a_str_is_a_text() -> None:
    with pytest.raises(TypeError, match="bytes"):
        RuleText(b"root", "rules")  # pyright: ignore[reportArgumentType]
