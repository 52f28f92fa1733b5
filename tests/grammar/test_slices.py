from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglang_lite.grammar.bitmask import words_to_flags
from sglang_lite.grammar.compiled import CompiledGrammar
from sglang_lite.grammar.compiler import GrammarCompiler
from sglang_lite.grammar.matcher import GrammarMatcher
from sglang_lite.grammar.slice_sets import slice_sets
from sglang_lite.grammar.trie_kernels import MAX_LEVEL
from sglang_lite.grammar.vocab import TokenVocab
from tests.grammar.patterns import patterns
from tests.grammar.recursive import STRING, compiled_json
from tests.grammar.toy import random_walk, regex, toy_vocab

LARGE = [
    r"\w*", r"(\w+ ){2,4}end", r"[^\n]*", r".{0,5}", r".{0,40}", r"(?s:.*)", r"(?s:.{3,20})", STRING, r'"[^"\\]{0,20}"', r"[ -~]*x",
    r"(- .{1,9}\n)+", r"[a-z0-9]{2,30}", r"(?a:\w)+|\w{0,3}", r"Dr\. [A-Z][a-z]*|.{2,6}", r" ?\w* ", r"[^猫]*", r"([^a]|a[^b])*",
]  # fmt: skip


def unsliced(compiled: CompiledGrammar, state: int) -> list[int]:
    """Every token tried on the whole trie."""
    words = np.zeros(len(compiled.vocab.eos_words), np.int32)
    compiled._tables.walk(state, compiled.vocab.trie, words)
    if compiled.is_accepting(state):
        words |= compiled.vocab.eos_words
    return np.flatnonzero(words_to_flags(words, compiled.vocab.vocab_size)).tolist()


def check_walk(compiled: CompiledGrammar, seed: int, steps: int) -> None:
    rng = random.Random(seed)
    matcher = GrammarMatcher(compiled)
    for _ in range(steps):
        ids = matcher.allowed_ids()
        assert ids == unsliced(compiled, matcher._state)
        assert compiled.mask(matcher._state).num_allowed == len(ids)
        if not random_walk(matcher, rng, 1):
            break


@pytest.mark.parametrize("pattern", LARGE)
@given(st.integers(0, 1000))
def test_masks_with_slices_are_those_without(pattern: str, seed: int) -> None:
    check_walk(regex(pattern), seed, 12)


@given(patterns, st.integers(0, 1000))
def test_masks_of_any_pattern_are_those_without_slices(pattern: str, seed: int) -> None:
    check_walk(regex(pattern), seed, 6)


@given(st.integers(0, 1000))
def test_masks_of_a_recursive_grammar_are_those_without_slices(seed: int) -> None:
    check_walk(compiled_json(), seed, 12)


def test_tokens_longer_than_the_levels_are_walked() -> None:
    """A bounded number of characters is certain, the long tokens lie on both sides of it."""
    pieces = [b"", *(b"x" * n for n in range(1, 40)), *(b" " + b"y" * n for n in range(40)), "é".encode() * 18]
    compiler = GrammarCompiler(TokenVocab(pieces, eos_ids=[0]))
    for bound in (1, MAX_LEVEL - 1, MAX_LEVEL, MAX_LEVEL + 1, 25, 60):
        compiled = compiler.compile_regex(f".{{0,{bound}}}")
        state = compiled.start_state
        assert GrammarMatcher(compiled).allowed_ids() == unsliced(compiled, state)
        assert compiled.mask(state).num_allowed == len(unsliced(compiled, state))


def test_each_part_of_a_slice_holds_every_token_once() -> None:
    vocab = toy_vocab()
    slices = vocab.slices
    sets = slice_sets()
    with_text = {i for i in range(vocab.vocab_size) if vocab.token_text(i)}
    for part, spaced in ((0, False), (1, True)):
        members = {i for i in with_text if vocab.token_text(i).startswith(b" ") == spaced}
        assert tokens_in(slices.ranges[part, 0]) == members
        for index, charset in enumerate(sets):
            inside = {i for i in members if consists_of(vocab.token_text(i)[part:], charset)}
            assert set(np.flatnonzero(words_to_flags(slices.upto[part, index, -1], vocab.vocab_size))) == inside
            assert slices.counts[part, index, -1] == len(inside)
            assert tokens_in(slices.ranges[part, 2 * index + 2]) == members - inside


def consists_of(text: bytes, charset: object) -> bool:
    try:
        return all(ord(char) in charset for char in text.decode())  # pyright: ignore[reportOperatorIssue]
    except UnicodeDecodeError:
        return False


def tokens_in(span: np.ndarray) -> set[int]:
    trie = toy_vocab().slices.trie
    found: set[int] = set()
    for first in trie.token[span[0] : span[1]].tolist():
        token = first
        while token >= 0:
            assert token not in found
            found.add(token)
            token = int(trie.next_same[token])
    return found


def test_large_classes_are_answered_by_slices() -> None:
    """The walk of the rest needs few states; a walk of the whole trie would find one for each character of each token."""
    compiled = GrammarCompiler(toy_vocab()).compile_regex(r"(\w+ ){3,200}end")  # one that no other test has filled
    compiled.mask(compiled.start_state)
    assert compiled.statistics().dfa_states < 40
