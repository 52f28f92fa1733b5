from __future__ import annotations

from dataclasses import dataclass, replace

from sglang_lite.grammar.hashing import Hashed, hashed_once


class Counted:
    """A part that counts how often its hash is asked for."""

    def __init__(self) -> None:
        self.asked = 0

    def __hash__(self) -> int:
        self.asked += 1
        return 7


@hashed_once
@dataclass(frozen=True, slots=True)
class Pair(Hashed):
    left: object
    right: int


def test_the_hash_is_computed_once_and_equality_is_that_of_the_fields() -> None:
    part = Counted()
    pair = Pair(part, 1)
    assert hash(pair) == hash(pair) == hash(Pair(part, 1))
    assert part.asked == 2
    assert pair == Pair(part, 1) != Pair(part, 2)


def test_a_changed_copy_has_a_hash_of_its_own() -> None:
    pair = Pair("a", 1)
    assert hash(pair) != hash(replace(pair, right=2))
    assert {pair: "x"}[Pair("a", 1)] == "x"
    match pair:
        case Pair(left, right):
            assert (left, right) == ("a", 1)
