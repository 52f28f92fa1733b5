from __future__ import annotations

import json
import random
import threading
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sglang_lite.grammar import GrammarCompiler, GrammarMatcher, TokenVocab, compiled, kernels
from sglang_lite.grammar.bitmask import words_to_flags
from sglang_lite.grammar.compiled import CompiledGrammar
from tests.grammar.patterns import patterns
from tests.grammar.toy import CONTROL, EOS, SECOND_EOS, VOCAB_SIZE, brute_force_ids, random_walk, regex, toy_vocab

# Reduced public reports: pattern, text, whether the text belongs to the language.
REPORTS = [
    pytest.param("[^\\u0000-\\U0010FFFF]", "é", False, id="mlc-ai/xgrammar#904"),
    pytest.param("[\x00-\u2e7f]+", "abc é", True, id="vllm-project/vllm#15210"),
    pytest.param("[😀-🙏]+", "😨😨", True, id="dottxt-ai/outlines#725"),
    pytest.param("a(xb)?", "axb", True, id="optional suffix"),
    pytest.param("(cat|category)", "category", True, id="choice prefix"),
    pytest.param("\\d{1,3}(, \\d{1,3}){0,19}", "1, 22", True, id="comma separated"),
    pytest.param(".{0,5}", "a\nb", False, id="line feed"),
]
# Characters of several tokens (dottxt-ai/outlines#725 and kin): pattern, members, others.
MANY_TOKEN_CHARACTERS = [
    ("[😀-🙏]{3}", ["😀😨🙏", "😨😨😨"], ["😀😨", "😀😨🚀", "😀😨\U0001f650", "abc"]),
    ("[😨]{1,4}", ["😨", "😨😨😨😨"], ["", "😨😨😨😨😨", "😩"]),
    ("(猫|狗)", ["猫", "狗"], ["狐", "猫狗", ""]),
    (r"\u6b6a", ["歪"], ["正", "u6b6a"]),
]


@pytest.mark.parametrize(("pattern", "text", "accept"), REPORTS)
def test_reported_patterns_accept_and_reject_rightly(pattern: str, text: str, accept: bool) -> None:
    assert regex(pattern).accepts(text) is accept


@pytest.mark.parametrize(("pattern", "members", "others"), MANY_TOKEN_CHARACTERS)
def test_characters_of_several_tokens_are_exact(pattern: str, members: list[str], others: list[str]) -> None:
    grammar = regex(pattern)
    assert all(map(grammar.accepts, members))
    assert not any(map(grammar.accepts, others))


def test_lead_bytes_are_allowed_only_where_a_character_of_the_set_begins_with_them() -> None:
    vocab = toy_vocab()
    allowed = {vocab.token_text(i) for i in GrammarMatcher(regex("[😀-🙏]{3}")).allowed_ids()}
    assert {b"\xf0", b"\xf0\x9f", b"\xf0\x9f\x98", "😨".encode(), "😨😨".encode()} <= allowed
    assert all(text[0] == 0xF0 for text in allowed)
    grammar = regex("(猫|狗)")
    assert not grammar.accepts("狐".encode()[:2] + "猫".encode()[2:])


@settings(max_examples=60)
@given(patterns, st.integers(0, 1000))
def test_masks_equal_brute_force_in_random_states(pattern: str, seed: int) -> None:
    rng = random.Random(seed)
    matcher = GrammarMatcher(regex(pattern))
    for _ in range(4):
        assert matcher.allowed_ids() == brute_force_ids(matcher)
        if not random_walk(matcher, rng, 1):
            break


def test_a_mask_counts_its_tokens_and_leaves_padding_out() -> None:
    grammar = regex(r"[\s\S]*")
    mask = grammar.mask(grammar.start_state)
    flags = words_to_flags(mask.words, mask.words.size * 32)
    assert mask.num_allowed == flags.sum()
    assert not flags[VOCAB_SIZE:].any()
    assert not flags[[CONTROL, 3, 4]].any()
    assert flags[[EOS, SECOND_EOS]].all()


def test_masks_cannot_be_written_by_their_readers() -> None:
    grammar = regex("ab")
    with pytest.raises(ValueError, match="read-only"):
        grammar.mask(grammar.start_state).words[0] = 1


def test_masks_are_kept_up_to_the_bytes_allowed() -> None:
    row = 4 * -(-VOCAB_SIZE // 32)
    grammar = GrammarCompiler(toy_vocab(), max_mask_bytes=3 * row).compile_regex("cat123")
    states = [grammar.advance_bytes(grammar.start_state, b"cat123"[:count]) for count in range(6)]
    first = [grammar.mask(state).words.tolist() for state in states]
    assert grammar.statistics().masks == 3
    assert grammar.statistics().mask_bytes == 3 * row
    grammar.mask(states[5])
    assert (grammar.statistics().mask_hits, grammar.statistics().mask_misses) == (1, 6)
    assert [grammar.mask(state).words.tolist() for state in states] == first


def test_a_recently_used_mask_outlives_an_older_one() -> None:
    grammar = GrammarCompiler(toy_vocab(), max_mask_bytes=2 * 44).compile_regex("[ab]{9}")
    states = [grammar.advance_bytes(grammar.start_state, b"a" * count) for count in range(3)]
    for state in (states[0], states[1], states[0], states[2], states[0]):
        grammar.mask(state)
    assert grammar.statistics().mask_hits == 2


def test_statistics_tell_sizes() -> None:
    grammar = GrammarCompiler(toy_vocab()).compile_regex("abc")
    before = grammar.statistics()
    assert (before.nfa_states, before.dfa_states, before.stack_cells, before.masks) == (2, 1, 1, 0)
    grammar.accepts("abc")
    assert grammar.statistics().dfa_states == 4
    assert grammar.statistics().table_bytes > 0


def test_the_source_is_kept() -> None:
    assert regex("a|b").source == compiled.GrammarSource("regex", "a|b")


def test_an_empty_language_accepts_nothing_and_is_told() -> None:
    grammar = regex("[^\\u0000-\\U0010FFFF]")
    assert grammar.is_empty
    assert grammar.start_state == kernels.DEAD
    assert not grammar.accepts("")
    assert grammar.forced(grammar.start_state).data == b""
    assert not regex("").is_empty


@pytest.mark.parametrize("pattern", [r"(\w+ ){2,30}end", "(a|b)*a(a|b){6}", '"[^"\\\\]{0,50}"'])
def test_threads_that_fill_one_grammar_get_what_one_thread_gets(pattern: str) -> None:
    def visit(grammar: CompiledGrammar, seed: int) -> list[list[int]]:
        matcher = GrammarMatcher(grammar)
        rng = random.Random(seed)
        found = [matcher.allowed_ids()]
        for _ in range(30):
            random_walk(matcher, rng, 1)
            found.append(matcher.allowed_ids())
            matcher.forced_bytes()
        return found

    shared = GrammarCompiler(toy_vocab()).compile_regex(pattern)
    results: dict[int, list[list[int]]] = {}
    threads = [
        threading.Thread(target=lambda seed=seed: results.__setitem__(seed, visit(shared, seed % 3)))
        for seed in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for seed in range(6):
        assert results[seed] == visit(GrammarCompiler(toy_vocab()).compile_regex(pattern), seed % 3)


@pytest.mark.data
def test_the_collected_patterns_are_all_right(data_dir: Path) -> None:
    """22 patterns of the kinds people use: every text is read byte by byte and as tokens."""
    cases = json.loads((data_dir / "regexes.json").read_text(encoding="utf-8"))
    wrong = []
    for case in cases:
        grammar = regex(case["regex"])
        right = all(map(grammar.accepts, case["accept"])) and not any(map(grammar.accepts, case["reject"]))
        for text in case["accept"]:
            matcher = GrammarMatcher(grammar)
            ids = [5 + byte for byte in text.encode()]
            right = right and matcher.accept_tokens([*ids, EOS]) == len(ids) + 1
        if not right:
            wrong.append(case["name"])
    assert len(cases) == 22
    assert wrong == []


@pytest.mark.model
def test_a_real_vocabulary_gives_brute_force_masks(embedded_metadata: dict) -> None:
    """The embedded model's 49,152 byte-level tokens, decoded here from the GPT-2 alphabet."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    alphabet = {chr(byte): byte for byte in printable} | {chr(256 + i): byte for i, byte in enumerate(others)}
    kinds = embedded_metadata["tokenizer.ggml.token_type"]
    pieces = [
        bytes(alphabet[char] for char in text) if kind == 1 else None
        for text, kind in zip(embedded_metadata["tokenizer.ggml.tokens"], kinds, strict=True)
    ]
    special = [i for i, kind in enumerate(kinds) if kind != 1]
    vocab = TokenVocab(pieces, [embedded_metadata["tokenizer.ggml.eos_token_id"]], special)
    grammar = GrammarCompiler(vocab).compile_regex(r'\{"name": "[\w ]{1,30}", "mood": "(😀|😨|猫)"\}')
    matcher = GrammarMatcher(grammar)
    assert matcher.forced_bytes() == b'{"name": "'
    by_text = {piece: i for i, piece in enumerate(pieces) if piece}
    for byte in '{"name": "Zoë 1", "mood": "😨"}'.encode():
        flags = words_to_flags(grammar.mask(matcher._state).words, vocab.vocab_size)
        sample = np.random.default_rng(byte).choice(vocab.vocab_size, 300)
        state = matcher._state
        assert [bool(flags[i]) for i in sample] == [
            bool(pieces[i]) and grammar.advance_bytes(state, pieces[i] or b"") >= 0 for i in sample
        ]
        assert matcher.accept_token(by_text[bytes([byte])])
    assert matcher.has_only_end
