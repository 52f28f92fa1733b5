from __future__ import annotations

from sglang_lite.grammar.charset import ANY
from sglang_lite.grammar.syntax import (
    EMPTY,
    Alternate,
    Bytes,
    Chars,
    Choices,
    Concat,
    Repeat,
    TextEdge,
    alternate,
    choices,
    concat,
    may_be_empty,
    repeat,
    shared_length,
)


def test_neighbouring_bytes_join_and_empty_parts_vanish() -> None:
    assert concat([Bytes(b"a"), EMPTY, concat([Bytes(b"b"), Chars(ANY)])]) == Concat((Bytes(b"ab"), Chars(ANY)))
    assert concat([]) == EMPTY


def test_repeats_take_their_smallest_form() -> None:
    item = Bytes(b"a")
    assert repeat(item, 0, 0) == EMPTY
    assert repeat(EMPTY, 3, 900) == EMPTY
    assert repeat(item, 1, 1) == item
    assert repeat(Repeat(item, 0, 1), 5, 9) == Repeat(Repeat(item, 0, 1), 0, 9)


def test_what_may_be_empty() -> None:
    assert may_be_empty(alternate([Bytes(b"a"), EMPTY]))
    assert may_be_empty(Repeat(Chars(ANY), 0, None))
    assert not may_be_empty(Concat((Repeat(Chars(ANY), 0, 1), Bytes(b"a"))))


def test_a_position_test_is_not_taken_for_the_empty_text() -> None:
    """It may fail, so its repeats must not become optional."""
    assert not may_be_empty(TextEdge(end=False))
    assert repeat(TextEdge(end=False), 2, 3) == Repeat(TextEdge(end=False), 2, 3)


def test_an_alternation_of_literals_is_a_sorted_choice() -> None:
    assert alternate([Bytes(b"b"), Bytes(b"a"), EMPTY, Bytes(b"a")]) == Choices((b"", b"a", b"b"))
    assert may_be_empty(choices([b"a", b""]))
    assert not may_be_empty(choices([b"a", b"b"]))
    assert choices([b"a", b"a"]) == Bytes(b"a")
    assert alternate([Bytes(b"a"), Chars(ANY)]) == Alternate((Bytes(b"a"), Chars(ANY)))


def test_common_beginnings() -> None:
    assert shared_length(b"alpha", b"alps") == 3
    assert shared_length(b"", b"a") == 0
