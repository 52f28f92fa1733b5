from __future__ import annotations

import re

import pytest

from sglang_lite.grammar.charset import MAX_CODE_POINT, CharSet
from sglang_lite.grammar.errors import InvalidGrammarError, UnsupportedGrammarError
from sglang_lite.grammar.regex_classes import Flags, read_class, read_escape
from sglang_lite.grammar.scanner import Scanner


def class_of(text: str, flags: Flags = Flags()) -> CharSet:  # noqa: B008 (immutable)
    scanner = Scanner(text)
    scanner.next()
    found = read_class(scanner, flags)
    assert scanner.at_end
    return found


def escape(text: str, *, in_class: bool = False) -> int | CharSet:
    scanner = Scanner(text)
    scanner.next()
    found = read_escape(scanner, Flags(), in_class=in_class)
    assert scanner.at_end
    return found


@pytest.mark.parametrize(
    "text",
    ["[]a]", "[^]a]", "[a-c]", "[-a]", "[a-]", "[a-c-e]", r"[\w-]", r"[\]\\^]", r"[\b]", r"[\1\18]", r"[\x41-\u0043]", "[.*+?(){}|$]", r"[\s\S]", "[^a-zà]", r"[\d_-]"],
)  # fmt: skip
def test_classes_hold_what_re_says(text: str) -> None:
    oracle = re.compile(text)
    charset = class_of(text)
    codes = [*range(0x400), 0x2028, 0x1F600]
    assert [code for code in codes if code in charset] == [code for code in codes if oracle.fullmatch(chr(code))]


@pytest.mark.parametrize("text", ["[^a]", "[k]", "[^k-s]", r"[^\W]"])
def test_classes_without_case_hold_what_re_says(text: str) -> None:
    oracle = re.compile(text, re.IGNORECASE)
    charset = class_of(text, Flags(ignore_case=True))
    codes = [*range(0x400), 0x212A, 0x1E9E]
    assert [code for code in codes if code in charset] == [code for code in codes if oracle.fullmatch(chr(code))]


@pytest.mark.parametrize(
    ("text", "code"),
    [(r"\x41", 0x41), (r"\u00e9", 0xE9), (r"\U0001F600", 0x1F600), (r"\u{1F600}", 0x1F600), (r"\ud83d\ude00", 0x1F600), (r"\0", 0),
     (r"\012", 10), (r"\101", 65), (r"\n", 10), (r"\/", 47), (r"\-", 45), (r"\é", 0xE9)],
)  # fmt: skip
def test_escapes_name_one_code_point(text: str, code: int) -> None:
    assert escape(text) == code


def test_a_backspace_escape_is_a_character_in_a_class_only() -> None:
    assert escape(r"\b", in_class=True) == 8
    with pytest.raises(UnsupportedGrammarError, match="word boundary"):
        escape(r"\b")


def test_a_lone_high_surrogate_does_not_swallow_the_next_escape() -> None:
    scanner = Scanner(r"\ud83d\u0041")
    scanner.next()
    assert read_escape(scanner, Flags(), in_class=False) == 0xD83D
    assert scanner.position == 6


@pytest.mark.parametrize("text", [r"\p{Lu}", r"\p{L}", r"\pL", r"\P{Lu}"])
def test_general_categories_are_sets(text: str) -> None:
    found = escape(text)
    assert isinstance(found, CharSet)
    assert (ord("A") in found) == (text != r"\P{Lu}")
    assert (ord("1") in found) == (text == r"\P{Lu}")


@pytest.mark.parametrize(
    ("text", "word"),
    [(r"\1", "back-reference"), (r"\k", "back-reference"), (r"\B", "word boundary"), (r"\N", "named character"), (r"\p{Greek}", "Greek"), (r"\cA", "control")],
)  # fmt: skip
def test_escapes_that_are_not_offered_are_refused_by_name(text: str, word: str) -> None:
    with pytest.raises(UnsupportedGrammarError, match=word):
        escape(text)


@pytest.mark.parametrize(
    "text", ["\\", r"\q", r"\x4", r"\u12", r"\u{}", r"\u{41", r"\u{110000}", r"\777", r"\p", r"\p{", r"\p{}"]
)
def test_malformed_escapes_are_invalid(text: str) -> None:
    with pytest.raises(InvalidGrammarError):
        escape(text)


@pytest.mark.parametrize("text", ["[", "[]", "[^]", "[a", "[z-a]", r"[\d-z]", r"[a-\d]", r"[\8]", "[a-"])
def test_malformed_classes_are_invalid(text: str) -> None:
    with pytest.raises(InvalidGrammarError):
        class_of(text)


def test_a_full_class_and_its_negation() -> None:
    assert len(class_of(r"[\s\S]")) == MAX_CODE_POINT + 1
    assert len(class_of(r"[^\x00-\U0010FFFF]")) == 0
