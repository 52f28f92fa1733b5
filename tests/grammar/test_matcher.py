from __future__ import annotations

import random
import re
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sglang_lite.grammar import GrammarCompiler, TokenVocab
from sglang_lite.grammar.bitmask import allocate_token_bitmask, apply_token_bitmask_inplace, words_to_flags
from sglang_lite.grammar.errors import InvalidBitmaskError, InvalidRollbackError
from sglang_lite.grammar.matcher import GrammarMatcher
from tests.grammar.patterns import patterns
from tests.grammar.toy import (
    CONTROL,
    EOS,
    SECOND_EOS,
    VOCAB_SIZE,
    brute_force_ids,
    random_tokens,
    random_walk,
    regex,
    toy_compiler,
    toy_vocab,
)

TEXTS = [
    (r"(\w+ ){1,5}end", "cat abc 猫狗 end"),
    (r"[😀-🙏]{3}", "😨😨😀"),
    (r"(cat|category)", "category"),
    (r"Thought: [^\n]+\nAction: \w+\n", "Thought: the 12 cats\nAction: aaab\n"),
    (r'\{"a": -?\d+(\.\d+)?\}', '{"a": -12.5}'),
]


def sampled(matcher: GrammarMatcher, rng: np.random.Generator, limit: int = 40) -> bytes:
    """Tokens drawn from random logits under the mask, until the end or the limit."""
    vocab = matcher.compiled.vocab
    bitmask, text = allocate_token_bitmask(1, vocab.vocab_size), b""
    for _ in range(limit):
        matcher.fill_bitmask(bitmask)
        logits = rng.gumbel(size=(1, vocab.vocab_size)).astype(np.float32)
        apply_token_bitmask_inplace(logits, bitmask)
        token_id = int(logits[0].argmax())
        assert np.isfinite(logits[0, token_id])
        assert matcher.accept_token(token_id)
        if matcher.is_terminated:
            break
        text += vocab.token_text(token_id)
    return text


@pytest.mark.parametrize(("pattern", "text"), TEXTS)
def test_every_tokenisation_of_a_legal_text_is_legal(pattern: str, text: str) -> None:
    grammar = regex(pattern)
    for seed in range(30):
        matcher = GrammarMatcher(grammar)
        for token_id in random_tokens(text.encode(), random.Random(seed)):
            assert matcher.is_allowed(token_id)
            assert token_id in matcher.allowed_ids()
            assert matcher.accept_token(token_id)
        assert matcher.is_accepting
        assert matcher.accept_token(EOS)


@pytest.mark.parametrize(
    "pattern", ["[😀-🙏]{3}", "[😨]{1,4}", "(猫|狗)", r"\u6b6a", "a(xb)?", "[a-c]{2}|Yes|No|-?[0-9]{1,3}"]
)
def test_text_sampled_under_the_mask_matches_the_pattern(pattern: str) -> None:
    for seed in range(20):
        matcher = GrammarMatcher(regex(pattern))
        text = sampled(matcher, np.random.default_rng(seed)).decode()
        assert matcher.is_terminated
        assert re.fullmatch(pattern, text)


def test_sampled_choices_are_byte_equal_to_one_of_them() -> None:
    choices = ["Dr. Smith", "a+b", "C:\\dir", "(x|y)", "[1]", 'say "hi"', ""]
    found = Counter(
        sampled(GrammarMatcher(toy_compiler().compile_choices(choices)), np.random.default_rng(seed)).decode()
        for seed in range(200)
    )
    assert set(found) == set(choices)


def test_sampling_under_a_mask_follows_the_renormalised_distribution() -> None:
    """Chi-square over the first token of `[a-c]+`, with the 0.1 % quantile of its degrees of freedom as the bound."""
    grammar = regex("[a-c]+")
    allowed = GrammarMatcher(grammar).allowed_ids()
    rng = np.random.default_rng(0)
    logits = rng.normal(size=VOCAB_SIZE).astype(np.float32)
    masked = logits[None].copy()
    apply_token_bitmask_inplace(masked, grammar.mask(grammar.start_state).words[None])
    weights = np.exp(masked[0])
    counts = np.bincount(rng.choice(VOCAB_SIZE, 4000, p=weights / weights.sum()), minlength=VOCAB_SIZE)
    expected = np.exp(logits[allowed]) / np.exp(logits[allowed]).sum() * 4000
    assert counts.sum() == counts[allowed].sum()
    chi_square = float(((counts[allowed] - expected) ** 2 / expected).sum())
    freedom = len(allowed) - 1
    assert chi_square < freedom * (1 - 2 / (9 * freedom) + 3.09 * (2 / (9 * freedom)) ** 0.5) ** 3


def test_end_tokens_are_legal_exactly_when_accepting() -> None:
    matcher = GrammarMatcher(regex("ab?"))
    assert not matcher.is_accepting
    assert not {EOS, SECOND_EOS} & set(matcher.allowed_ids())
    assert not matcher.accept_token(EOS)
    assert not matcher.accept_token(SECOND_EOS)
    assert matcher.accept_token(5 + ord("a"))
    assert matcher.is_accepting
    assert {EOS, SECOND_EOS} <= set(matcher.allowed_ids())
    for end in (EOS, SECOND_EOS):
        assert matcher.fork().accept_token(end)


def test_after_the_end_only_end_tokens_are_legal() -> None:
    """A step planned before the end was known still finds a legal token."""
    matcher = GrammarMatcher(regex("a*"))
    assert matcher.accept_token(SECOND_EOS)
    assert matcher.is_terminated
    assert matcher.is_accepting
    assert matcher.has_only_end
    assert not matcher.has_no_token
    assert matcher.allowed_ids() == [EOS, SECOND_EOS] == brute_force_ids(matcher)
    assert not matcher.accept_token(5 + ord("a"))
    assert matcher.forced_bytes() == b""
    matcher.rollback(1)
    assert not matcher.is_terminated
    assert matcher.accept_token(5 + ord("a"))


def test_when_nothing_can_follow_only_the_end_is_left() -> None:
    matcher = GrammarMatcher(regex("ab"))
    assert not matcher.has_only_end
    matcher.accept_tokens(random_tokens(b"ab", random.Random(0)))
    assert matcher.has_only_end
    assert matcher.allowed_ids() == [EOS, SECOND_EOS]


def test_a_text_that_no_token_can_lengthen_has_only_its_end() -> None:
    """The language goes on, the vocabulary does not."""
    vocab = TokenVocab([b"a", None], eos_ids=[1])
    matcher = GrammarMatcher(GrammarCompiler(vocab).compile_regex("a(b)?"))
    assert matcher.accept_token(0)
    assert matcher.has_only_end


def test_special_tokens_are_never_reached_by_their_bytes() -> None:
    """mlc-ai/xgrammar#737: the control token's name is legal text, the control token is not."""
    grammar = toy_compiler().compile_choices(["<|end|>"])
    matcher = GrammarMatcher(grammar)
    spelled = {toy_vocab().token_text(token_id) for token_id in matcher.allowed_ids()}
    assert b"<|end|>" in spelled
    assert not {EOS, SECOND_EOS, CONTROL} & set(matcher.allowed_ids())
    assert not matcher.accept_token(CONTROL)
    assert not matcher.accept_token(EOS)


@pytest.mark.parametrize("token_id", [-1, 3, 4, VOCAB_SIZE - 1, VOCAB_SIZE, 10**9])
def test_ids_without_bytes_or_beyond_the_vocabulary_are_refused(token_id: int) -> None:
    matcher = GrammarMatcher(regex(r"[\s\S]*"))
    assert not matcher.is_allowed(token_id)
    assert not matcher.accept_token(token_id)
    assert matcher.num_accepted == 0


def test_a_dead_end_is_told() -> None:
    vocab = TokenVocab([b"a", None, b"cc"], eos_ids=[1])
    matcher = GrammarMatcher(GrammarCompiler(vocab).compile_regex("ab|acd"))
    assert not matcher.has_no_token
    assert matcher.accept_token(0)
    assert matcher.has_no_token
    assert not matcher.has_only_end
    assert matcher.allowed_ids() == []


def test_an_empty_language_is_a_dead_end_from_the_start() -> None:
    matcher = GrammarMatcher(regex("a^"))
    assert matcher.has_no_token
    assert matcher.forced_bytes() == b""
    assert not matcher.accept_token(5 + ord("a"))


@pytest.mark.parametrize("count", [5, 1, 0])
def test_cut_texts_are_prefixes_of_legal_ones(count: int) -> None:
    """guidance-ai/guidance#726: stopping at a token limit leaves a live state."""
    for pattern in (r"([^\n]*\n){1,6}", '"[^"]*"'):
        matcher = GrammarMatcher(regex(pattern))
        taken = random_walk(matcher, random.Random(count), count)
        assert len(taken) == count
        assert not matcher.has_no_token
        ending = b"\n" if "n" in pattern else b'"'
        text = b"".join(map(toy_vocab().token_text, taken))
        state = matcher.compiled.advance_bytes(matcher.compiled.start_state, text)
        assert state >= 0
        while not matcher.is_accepting:
            closing = [i for i in matcher.allowed_ids() if toy_vocab().token_text(i) == ending] or matcher.allowed_ids()
            assert matcher.accept_token(closing[0])


@settings(max_examples=60)
@given(patterns, st.integers(0, 10**6), st.lists(st.integers(0, 3), max_size=8))
def test_rollback_and_fork_lead_back_to_equal_masks(pattern: str, seed: int, returns: list[int]) -> None:
    rng = random.Random(seed)
    matcher = GrammarMatcher(regex(pattern))
    taken: list[int] = []
    for back in returns:
        taken += random_walk(matcher, rng, 2)
        twin = matcher.fork()
        random_walk(twin, rng, 2)
        back = min(back, len(taken))
        matcher.rollback(back)
        taken = taken[: len(taken) - back]
        replayed = GrammarMatcher(matcher.compiled)
        assert replayed.accept_tokens(taken) == len(taken) == matcher.num_accepted
        assert matcher.allowed_ids() == replayed.allowed_ids()
        assert matcher.is_accepting == replayed.is_accepting
        assert matcher.forced_bytes() == replayed.forced_bytes()


def test_rolling_back_too_far_is_an_error_and_changes_nothing() -> None:
    matcher = GrammarMatcher(regex("abc"))
    matcher.accept_tokens(random_tokens(b"a", random.Random(0)))
    for count in (2, -1):
        with pytest.raises(InvalidRollbackError, match="1 were accepted"):
            matcher.rollback(count)
    assert matcher.num_accepted == 1


def test_accepting_stops_at_the_first_illegal_token() -> None:
    matcher = GrammarMatcher(regex("abc"))
    assert matcher.accept_tokens([5 + ord("a"), 5 + ord("x"), 5 + ord("b")]) == 1
    assert matcher.num_accepted == 1
    assert matcher.accept_tokens([5 + ord("b"), 5 + ord("c"), EOS, EOS]) == 4


def test_forced_bytes_run_to_the_next_choice() -> None:
    matcher = GrammarMatcher(regex("Thought: (cat|dog)s"))
    assert matcher.forced_bytes() == b"Thought: "
    matcher.accept_tokens(random_tokens(b"Thought: ca", random.Random(0)))
    assert matcher.forced_bytes() == b"ts"
    matcher.accept_tokens(random_tokens(b"ts", random.Random(0)))
    assert matcher.forced_bytes() == b""


def test_forced_bytes_may_begin_inside_a_character() -> None:
    assert GrammarMatcher(regex("猫!|狗!")).forced_bytes() == "猫".encode()[:1]
    matcher = GrammarMatcher(regex("猫!|狗!"))
    matcher.accept_tokens([5 + byte for byte in "猫".encode()[:2]])
    assert matcher.forced_bytes() == "猫!".encode()[2:]


def test_one_row_of_a_bitmask_is_filled_and_no_other() -> None:
    matcher = GrammarMatcher(regex("ab"))
    bitmask = allocate_token_bitmask(3, VOCAB_SIZE)
    matcher.fill_bitmask(bitmask, index=1)
    assert (bitmask[[0, 2]] == -1).all()
    assert np.flatnonzero(words_to_flags(bitmask[1], VOCAB_SIZE)).tolist() == matcher.allowed_ids()


def test_a_bitmask_of_another_shape_type_or_batch_is_refused() -> None:
    matcher = GrammarMatcher(regex("ab"))
    for bitmask, index in [
        (allocate_token_bitmask(1, VOCAB_SIZE + 32), 0),
        (allocate_token_bitmask(1, VOCAB_SIZE).astype(np.int64), 0),
        (allocate_token_bitmask(1, VOCAB_SIZE), 1),
        (allocate_token_bitmask(1, VOCAB_SIZE), -1),
        (allocate_token_bitmask(1, VOCAB_SIZE)[0], 0),
    ]:
        with pytest.raises(InvalidBitmaskError, match="int32"):
            matcher.fill_bitmask(bitmask, index)  # pyright: ignore[reportArgumentType]
