"""The optional engine: what it offers, what it refuses by name, and that requests cannot tell it by its protocol."""

from __future__ import annotations

import re
import sys

import numpy as np
import pytest

from sglang_lite.errors import GrammarError, UnsupportedError
from sglang_lite.request_tree import SamplingParams
from sglang_lite.runtime.execution.grammar_backend import Constraint
from sglang_lite.runtime.execution.grammar_manager import GrammarManager
from sglang_lite.runtime.execution.outlines_backend import OutlinesBackend, OutlinesCursor

TOKENS = [b"a", b"b", b"ab", b"1", b"{", b"}", b'"', b":", None, None, b"cat", b"egory"]
EOS = (8, 9)


@pytest.fixture(scope="module")
def backend() -> OutlinesBackend:
    return OutlinesBackend(TOKENS, EOS, EOS)


def cursor(backend: OutlinesBackend, kind: str, source: str | tuple[str, ...]) -> OutlinesCursor:
    return backend.make_cursor(backend.compile(Constraint(kind, source)))


def allowed(held: OutlinesCursor) -> set[int]:
    bitmask = np.full((2, 1), -1, np.int32)
    held.fill_bitmask(bitmask, 1)
    assert bitmask[0, 0] == -1
    return set(np.flatnonzero(np.unpackbits(bitmask[1].view(np.uint8), bitorder="little")).tolist())


def test_masks_steps_and_both_end_tokens(backend: OutlinesBackend) -> None:
    held = cursor(backend, "regex", "ab|a")
    assert allowed(held) == {0, 2}
    assert not held.accept_token(1)
    assert not held.accept_token(8)
    assert held.accept_token(0)
    assert allowed(held) == {1, 8, 9}
    twin = held.fork()
    assert twin.accept_token(1)
    assert twin.has_only_end
    assert not held.has_only_end
    assert held.accept_token(9)
    assert held.is_terminated
    assert allowed(held) == {8, 9}
    assert held.jump_forward() == []


def test_a_choice_that_begins_another_is_offered_with_it(backend: OutlinesBackend) -> None:
    held = cursor(backend, "choices", ("cat", "category"))
    assert held.accept_token(10)
    assert allowed(held) == {11, 8, 9}


def test_schemas_become_regexes(backend: OutlinesBackend) -> None:
    schema = '{"type": "object", "properties": {"a": {"const": 1}}, "required": ["a"], "additionalProperties": false}'
    held = cursor(backend, "json_schema", schema)
    assert all(held.accept_token(token) for token in (4, 6, 0, 6, 7, 3, 5))
    assert held.has_only_end


@pytest.mark.parametrize(
    ("params", "message"),
    [
        (
            SamplingParams(ebnf='root ::= "a"'),
            "the grammar backend 'outlines' has no ebnf, only regex, choices, json_schema",
        ),
        (SamplingParams(structural_tag="{}"), "has no structural_tag"),
        (SamplingParams(regex="a("), "compiling the regex of a request"),
        (SamplingParams(json_schema='{"not": {}}'), "compiling the json_schema of a request"),
    ],
)
def test_what_it_does_not_have_is_refused_by_name(
    backend: OutlinesBackend, params: SamplingParams, message: str
) -> None:
    manager = GrammarManager(lambda: backend)
    with pytest.raises(GrammarError, match=re.escape(message)):
        manager.submit(params).result(60)
    manager.submit(SamplingParams(regex="a")).result(60)
    manager.shutdown()


def test_without_the_package_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "outlines_core", None)
    with pytest.raises(UnsupportedError, match=r"sglang_lite\[grammars\]"):
        OutlinesBackend(TOKENS, EOS, EOS)
    monkeypatch.undo()
    with pytest.raises(UnsupportedError, match="end token"):
        OutlinesBackend(TOKENS, (), ())
