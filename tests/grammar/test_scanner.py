from __future__ import annotations

from sglang_lite.grammar.errors import InvalidGrammarError, UnsupportedGrammarError
from sglang_lite.grammar.scanner import Scanner


def test_reading_moves_only_over_what_was_taken() -> None:
    scanner = Scanner("12ab)c")
    assert scanner.take_while("0123456789") == "12"
    assert not scanner.take("b")
    assert scanner.take("a")
    assert scanner.peek() == "b"
    assert scanner.take_until(")") == "b"
    assert scanner.take_until(")") is None
    assert scanner.next() == "c"
    assert scanner.at_end
    assert scanner.peek() == ""


def test_a_limit_bounds_a_run() -> None:
    scanner = Scanner("0000")
    assert scanner.take_while("0", limit=3) == "000"
    assert scanner.position == 3


def test_errors_carry_the_place() -> None:
    scanner = Scanner("abc")
    scanner.next()
    assert isinstance(scanner.invalid("bad"), InvalidGrammarError)
    assert scanner.invalid("bad").position == 1
    assert isinstance(scanner.unsupported("no", 0), UnsupportedGrammarError)
    assert scanner.unsupported("no", 0).position == 0
