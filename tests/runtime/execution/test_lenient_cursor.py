"""What a schema that is not strict says at the end."""

from __future__ import annotations

import json

import pytest

from sglang_lite.grammar import GrammarCompiler, GrammarMatcher, TokenVocab, UnsupportedGrammarError
from sglang_lite.runtime.execution.grammar_backend import Constraint, NativeBackend
from sglang_lite.runtime.execution.lenient_cursor import LenientMatcher
from sglang_lite.runtime.scheduler.messages import LenientCursor

VOCAB = TokenVocab([bytes([i]) for i in range(256)] + [b""], eos_ids=[256])
BACKEND = NativeBackend(GrammarCompiler(VOCAB), GrammarMatcher)
HARD = {"type": "array", "items": {"type": "integer"}, "uniqueItems": True, "minItems": 2}


def cursor(schema: object, *, strict: bool = False) -> object:
    return BACKEND.make_cursor(BACKEND.compile(Constraint("json_schema", json.dumps(schema), strict=strict)))


def feed(held: object, text: str) -> tuple[str, ...]:
    assert isinstance(held, LenientMatcher)
    for byte in text.encode():
        assert held.accept_token(byte)
    return held.notes_on(text.encode())


def test_a_keyword_that_is_left_out_is_named_with_the_verdict_on_the_value() -> None:
    with pytest.raises(UnsupportedGrammarError, match="uniqueItems"):
        cursor(HARD, strict=True)
    (good,) = feed(cursor(HARD), "[1,2]")
    assert good.startswith("uniqueItems at /uniqueItems was not enforced (")
    assert good.endswith("; the value holds it")
    (bad,) = feed(cursor(HARD), "[1,1]")
    assert bad.endswith("; the value breaks it: the value has equal items")


def test_a_fork_has_its_own_place_and_the_same_notes() -> None:
    held = cursor(HARD)
    assert isinstance(held, LenientMatcher)
    assert held.accept_token(ord("["))
    twin = held.fork()
    feed(twin, "3,4]")
    assert twin.notes_on(b"[3,4]")[0].endswith("the value holds it")
    assert not twin.accept_token(ord("3"))
    assert held.accept_token(ord("3"))


def test_what_is_cut_short_is_not_judged() -> None:
    assert feed(cursor(HARD), "[1,")[0].endswith("the text is not whole JSON, so it was not checked")


def test_a_schema_that_is_enforced_has_no_notes() -> None:
    plain = cursor({"type": "integer"})
    assert isinstance(plain, GrammarMatcher)
    assert not isinstance(plain, LenientCursor)
