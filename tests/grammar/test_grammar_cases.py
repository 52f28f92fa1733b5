"""The reduced cases of `tests/data/grammar-cases.json` on the engine: compiled, walked token by token, ended by an end token."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from sglang_lite.grammar import GrammarError, GrammarMatcher
from sglang_lite.grammar.compiled import CompiledGrammar
from tests.grammar.toy import EOS, random_tokens, toy_compiler

CASES: list[dict[str, Any]] = json.loads(
    (Path(__file__).parents[1] / "data" / "grammar-cases.json").read_text(encoding="utf-8")
)
NARROWER = {"guidance-ai/llguidance#187": "members come in the order of the schema"}
REFUSED = {  # and what the error says
    "mlc-ai/xgrammar#639": "no value is valid",
    "guidance-ai/llguidance#206": "no value is valid",
    "own:uniqueItems": "uniqueItems at #/uniqueItems",
}


def compiled(case: dict[str, Any]) -> CompiledGrammar:
    compiler = toy_compiler()
    if case["kind"] == "regex":
        return compiler.compile_regex(case["grammar"])
    return compiler.compile_json_schema(case["grammar"])


def goes_through(grammar: CompiledGrammar, token_ids: list[int]) -> bool:
    """Whether the tokens are in the masks one after the other, and an end token behind them."""
    matcher = GrammarMatcher(grammar)
    for token_id in token_ids:
        allowed = token_id in matcher.allowed_ids()
        assert matcher.accept_token(token_id) == allowed
        if not allowed:
            return False
    ends = EOS in matcher.allowed_ids()
    assert matcher.accept_token(EOS) == matcher.is_terminated == ends
    return ends


@pytest.mark.parametrize("case", CASES, ids=[case["source"] for case in CASES])
def test_a_reduced_case_is_right_or_narrower_or_refused_by_name(case: dict[str, Any]) -> None:
    """No false accept; what is narrower than right, or refused, is listed above."""
    source, right = case["source"], case["accept"]
    if source in REFUSED:
        with pytest.raises(GrammarError, match=REFUSED[source]):
            compiled(case)
        return
    grammar = compiled(case)
    text: bytes = case["text"].encode()
    verdicts = {goes_through(grammar, random_tokens(text, random.Random(seed))) for seed in range(4)}
    assert verdicts == {grammar.accepts(text)}
    if right is not None:
        assert verdicts == {right and source not in NARROWER}


def test_the_lists_stay_short_and_name_cases_of_the_file() -> None:
    assert (len(CASES), len(NARROWER) <= 3, len(REFUSED) <= 4) == (51, True, True)
    assert {*NARROWER, *REFUSED} <= {case["source"] for case in CASES}
