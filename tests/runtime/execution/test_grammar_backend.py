"""The engine of the grammar package behind the protocol: each kind of constraint and its options."""

from __future__ import annotations

import json

import numpy as np
import pytest

from sglang_lite.errors import RequestError
from sglang_lite.grammar import GrammarMatcher, TokenVocab
from sglang_lite.request_tree import SamplingParams
from sglang_lite.runtime.execution.grammar_backend import Constraint, NativeBackend, constraint_of

VOCAB = TokenVocab([bytes([i]) for i in range(256)] + [b""], eos_ids=[256])


@pytest.fixture(scope="module")
def backend() -> NativeBackend:
    return NativeBackend.of_vocab(lambda: VOCAB)


def accepts(backend: NativeBackend, params: SamplingParams, text: str) -> bool:
    cursor = backend.make_cursor(backend.compile(constraint_of(params)))
    assert isinstance(cursor, GrammarMatcher)
    return all(cursor.accept_token(byte) for byte in text.encode()) and cursor.accept_token(256)


SCHEMA = json.dumps({"type": "array", "items": {"const": 1}})
TAG = json.dumps({"type": "structural_tag", "format": {"type": "tag", "begin": "<a>", "content": {"type": "json_schema", "json_schema": {"const": [1, 2]}}, "end": "</a>"}})  # fmt: skip


@pytest.mark.parametrize(
    ("params", "good", "bad"),
    [
        ({"regex": "a+b"}, "aab", "b"),
        ({"choices": ("a", "ab")}, "ab", "b"),
        ({"json_schema": SCHEMA}, "[1,1]", "[1, 1]"),
        ({"json_schema": SCHEMA, "json_whitespace": "spaced"}, "[1, 1]", "[1,1]"),
        ({"json_schema": SCHEMA, "json_whitespace": "any"}, "[1 ,\n1]", "[2]"),
        ({"ebnf": 'root ::= "a" | "b"'}, "b", "c"),
        ({"ebnf": 'start: "a" | "b"'}, "b", "c"),
        ({"structural_tag": TAG}, "<a>[1,2]</a>", "<a>[1, 2]</a>"),
        ({"structural_tag": TAG, "json_whitespace": "spaced"}, "<a>[1, 2]</a>", "<a>[1,2]</a>"),
    ],
)
def test_each_kind_is_read_as_what_it_is(
    backend: NativeBackend, params: dict[str, object], good: str, bad: str
) -> None:
    sampling = SamplingParams.from_mapping(params)
    assert accepts(backend, sampling, good)
    assert not accepts(backend, sampling, bad)


def test_options_that_mean_nothing_make_no_other_constraint() -> None:
    assert constraint_of(SamplingParams(regex="a", json_strict=False)) == Constraint("regex", "a")
    assert constraint_of(SamplingParams(json_schema="{}", json_whitespace="compact")) == Constraint("json_schema", "{}")
    assert constraint_of(SamplingParams(json_schema="{}", json_strict=False)).strict is False
    with pytest.raises(RequestError, match="structural_tag"):
        constraint_of(SamplingParams())


def test_cursors_of_one_grammar_are_apart(backend: NativeBackend) -> None:
    compiled = backend.compile(Constraint("regex", "ab"))
    first, second = backend.make_cursor(compiled), backend.make_cursor(compiled)
    assert first.accept_token(ord("a"))
    bitmask = np.zeros((1, 9), np.int32)
    second.fill_bitmask(bitmask)
    assert bitmask[0, 3] == 1 << (ord("a") - 96)
