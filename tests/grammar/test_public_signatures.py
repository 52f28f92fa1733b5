"""The public interface as it is documented: every name, with its parameters."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

import sglang_lite.grammar as grammar
from tests.grammar.toy import regex, toy_compiler

SIGNATURES = [
    ("GrammarCompiler.compile_regex", ["pattern"], []),
    ("GrammarCompiler.compile_json_schema", ["schema"], ["strict", "whitespace", "formats", "max_integer_digits"]),
    ("GrammarCompiler.compile_ebnf", ["text"], ["root"]),
    ("GrammarCompiler.compile_lark", ["text"], []),
    ("GrammarCompiler.compile_structural_tag", ["spec"], ["strict", "whitespace", "formats"]),
    ("GrammarCompiler.compile_choices", ["choices"], []),
    ("TokenVocab.from_tokenizer", ["tokenizer"], ["encode", "cache_dir"]),
    ("CompiledGrammar.accepts", ["text"], []),
    ("CompiledGrammar.describe", [], []),
    ("GrammarMatcher.fill_bitmask", ["bitmask", "index"], []),
    ("GrammarMatcher.accept_token", ["token_id"], []),
    ("GrammarMatcher.accept_tokens", ["token_ids"], []),
    ("GrammarMatcher.rollback", ["count"], []),
    ("GrammarMatcher.fork", [], []),
    ("GrammarMatcher.jump_forward", ["before"], []),
    ("allocate_token_bitmask", ["batch_size", "vocab_size"], []),
    ("apply_token_bitmask_inplace", ["logits", "bitmask"], ["indices"]),
]


@pytest.mark.parametrize(
    ("name", "plain", "named"), SIGNATURES, ids=lambda value: value if isinstance(value, str) else ""
)
def test_the_documented_parameters_are_there(name: str, plain: list[str], named: list[str]) -> None:
    found: object = grammar
    for part in name.split("."):
        found = getattr(found, part)
    parameters = list(inspect.signature(found).parameters.values())  # pyright: ignore[reportArgumentType]
    given = [one.name for one in parameters if one.kind is not one.KEYWORD_ONLY and one.name != "self"]
    assert given[: len(plain)] == plain
    assert {one.name for one in parameters} >= {*named}


def test_returns_are_of_the_documented_kinds() -> None:
    matcher = grammar.GrammarMatcher(regex("ab?"))
    bitmask = grammar.allocate_token_bitmask(2, 70)
    assert (bitmask.dtype, bitmask.shape) == (np.int32, (2, 3))
    assert matcher.accept_token(0) is False
    assert matcher.accept_tokens([0]) == 0
    assert matcher.jump_forward() == []
    assert (matcher.is_accepting, matcher.is_terminated) == (False, False)
    assert isinstance(matcher.fork(), grammar.GrammarMatcher)
    assert toy_compiler().compile_json_schema('{"type": "null"}').accepts("null")
    assert issubclass(grammar.UnsupportedGrammarError, grammar.GrammarError)
