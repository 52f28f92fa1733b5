"""What is found in a tree before it runs; the grammars are the real ones, the tokenizer has bytes for tokens."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import sglang_lite as sgl
from sglang_lite.grammar import TokenVocab
from sglang_lite.request_tree import (
    ArgOp,
    Finding,
    ForkOp,
    GenOp,
    Op,
    RequestTree,
    SamplingParams,
    SelectOp,
    TextOp,
    TreeChecker,
)
from sglang_lite.runtime.engine.engine import Engine
from sglang_lite.runtime.engine.requests import Limits
from sglang_lite.runtime.engine.tree_check import check_tree
from sglang_lite.runtime.execution.grammar_backend import NativeBackend
from sglang_lite.runtime.execution.grammar_manager import GrammarManager
from tests.support.toy_text import END, VOCAB_SIZE, toy_text

TEXT = toy_text()


@pytest.fixture(scope="module")
def grammars() -> Iterator[GrammarManager]:
    vocab = TokenVocab([bytes([i]) for i in range(256)] + [b""] * 3, eos_ids=[END])
    manager = GrammarManager(lambda: NativeBackend.of_vocab(vocab))
    yield manager
    manager.shutdown()


def findings(grammars: GrammarManager, *ops: Op, context: int = 100, pool: int = 1000) -> list[Finding]:
    tree = RequestTree()
    for op in ops:
        tree.add(op)
    return check_tree(tree, TEXT, Limits(VOCAB_SIZE, context, pool), grammars.submit, 1024.0)


def gen(number: int = 1, **params: object) -> GenOp:
    return GenOp(number, 0, "x", SamplingParams(**{"max_new_tokens": 8, **params}))  # type: ignore[arg-type]


def test_a_tree_without_faults_has_its_bounds(grammars: GrammarManager) -> None:
    (bounds,) = findings(grammars, TextOp(0, 0, "abc"), gen(), SelectOp(2, 0, "s", ("yes", "no")))
    assert (bounds.op, bounds.severity) == (None, "info")
    assert "at most 8 tokens generated, 14 on the longest branch, KV of 16 tokens (0.0 MiB)" in bounds.message


def test_a_prompt_longer_than_the_context_is_an_error_with_the_numbers(grammars: GrammarManager) -> None:
    found = findings(grammars, TextOp(0, 0, "a" * 98), gen())
    assert (found[0].op, found[0].severity) == (1, "error")
    assert (
        "gen 'x' (op 1, branch 0): its prompt has at least 98 tokens and 8 must follow, the context holds 100"
        in found[0].message
    )
    assert len(findings(grammars, TextOp(0, 0, "a" * 92), gen())) == 1


def test_the_pool_can_be_smaller_than_the_context(grammars: GrammarManager) -> None:
    (found, _) = findings(grammars, TextOp(0, 0, "a" * 40), gen(), pool=32)
    assert "the KV pool has 32" in found.message


def test_what_may_get_too_long_is_a_warning(grammars: GrammarManager) -> None:
    found = findings(grammars, TextOp(0, 0, "a" * 60), gen(1, max_new_tokens=30), gen(2, max_new_tokens=30))
    assert [(f.op, f.severity) for f in found] == [(2, "warning"), (None, "info")]
    assert "up to 90 tokens of prompt and 30 after them" in found[0].message


def test_an_empty_branch_cannot_generate(grammars: GrammarManager) -> None:
    assert "empty branch" in findings(grammars, gen())[0].message


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"regex": "[0-9"}, "compiling the regex"),
        ({"regex": r"[^\s\S]"}, "no text matches its regex"),
        ({"json_schema": "{"}, "compiling the json_schema"),
        ({"json_schema": '{"type": "integer", "minimum": 5, "maximum": 2}'}, "json_schema"),
        ({"ebnf": "root ::= root"}, "ebnf"),
    ],
)
def test_a_constraint_that_gives_no_text_is_an_error(
    grammars: GrammarManager, params: dict[str, str], message: str
) -> None:
    found = findings(grammars, TextOp(0, 0, "a"), gen(**params))
    assert (found[0].op, found[0].severity) == (1, "error")
    assert message in found[0].message


STOPS = [
    ({"regex": "[0-9]+"}, "x", True),
    ({"regex": "[0-9]+x?"}, "x", False),
    ({"regex": "a(bc)*"}, "cb", False),
    ({"regex": "a(bc)*"}, "ba", True),
    ({"choices": ("red", "green")}, "ee", False),
    ({"choices": ("red", "green")}, "blue", True),
    ({"json_schema": '{"type": "boolean"}'}, "]", True),
    ({"json_schema": '{"type": "boolean"}'}, "als", False),
    ({"json_schema": '{"type": "string"}'}, "]", False),
    ({}, "x", False),
]


@pytest.mark.parametrize(("params", "stop", "is_unreachable"), STOPS)
def test_a_stop_that_never_comes_is_a_warning(
    grammars: GrammarManager, params: dict[str, str], stop: str, is_unreachable: bool
) -> None:
    found = findings(grammars, TextOp(0, 0, "a"), gen(**params, stop=(stop,)))
    assert [f.severity for f in found] == (["warning", "info"] if is_unreachable else ["info"])
    assert not is_unreachable or f"the stop {stop!r} never comes" in found[0].message


def test_findings_come_in_the_order_of_the_ops(grammars: GrammarManager) -> None:
    found = findings(grammars, TextOp(0, 0, "a"), gen(5, regex="["), gen(9, regex="("), gen(2, max_new_tokens=200))
    assert [f.op for f in found] == [5, 9, 2, None]


def test_arguments_are_named_and_what_branches_share_counts_once(grammars: GrammarManager) -> None:
    ops = [TextOp(0, 0, "abcd"), ArgOp(1, 0, "q"), ForkOp(2, 0, (1, 2)), TextOp(3, 1, "x"), TextOp(4, 2, "yz")]
    (bounds,) = findings(grammars, *ops)
    assert "KV of 7 tokens" in bounds.message
    assert "the arguments ['q'] not counted" in bounds.message


@pytest.mark.model
def test_the_engine_checks_the_trees_of_programs(engine: Engine) -> None:
    """Against the model's own tokenizer, template and context."""

    @sgl.function
    def quiz(s: sgl.ProgramState, question: str) -> None:
        s += sgl.user(question)
        s += sgl.assistant(sgl.gen("n", regex="[0-9]{1,3}", stop="k", max_tokens=4))
        s += sgl.user("word " * 9000)
        s += sgl.assistant(sgl.gen("more", max_tokens=4))

    assert isinstance(engine, TreeChecker)
    found = engine.check(quiz.trace().tree)
    assert [f.severity for f in found] == ["warning", "error", "info"]
    assert "the stop 'k' never comes" in found[0].message
    assert "gen 'more'" in found[1].message
