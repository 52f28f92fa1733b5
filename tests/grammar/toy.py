"""A toy vocabulary and brute-force oracles for the grammar tests."""

from __future__ import annotations

import random
from functools import cache

from sglang_lite.grammar.compiled import CompiledGrammar
from sglang_lite.grammar.compiler import GrammarCompiler
from sglang_lite.grammar.matcher import GrammarMatcher
from sglang_lite.grammar.vocab import TokenVocab

EOS, SECOND_EOS, CONTROL = 0, 1, 2
VOCAB_SIZE = 352  # padded beyond the tokens, as logits often are
_PIECES = [
    "ab", "abc", "abcd", "ba", "aa", "aaa", "bb", "cat", "category", "ego", "ry", " the", "the ", "Yes", "No", '"', '",', '": ', "{", "}",
    "12", "123", "-1", ".5", "0.", "\n", "\n\n", "a\nb", "é", "éa", "猫", "猫狗", "狗", "😀", "😨", "😨😨", "Dr", "Dr.", " Smith", "Smith",
    "a+b", "C:", "\\d", "(x", "|y)", "[1]", "  ", "Thought", ": ", "- ", "yes", "YES", "ſ", "K", "_1", "x_", "PER", "ORG", "ER", "R",
]  # fmt: skip
# Tokens that begin or end inside a character, and one that spells the control token's name.
_BROKEN = [
    b"\xf0\x9f",
    b"\x98\xa8",
    b"\x9f\x98\xa8",
    b"\xf0\x9f\x98",
    "é".encode()[:1],
    b"\xa9a",
    b"<|end|>",
    b"<|",
    b"ab",
    b"a",
]


@cache
def toy_vocab() -> TokenVocab:
    """Two end tokens, a control token that has bytes all the same, every byte, words, broken characters, duplicates, an empty token, None."""
    pieces: list[bytes | None] = [b"<|end|>", b"", b"<|end|>", None, b""]
    pieces += [bytes([byte]) for byte in range(256)]
    pieces += [piece.encode() for piece in _PIECES]
    pieces += _BROKEN
    return TokenVocab(pieces, eos_ids=[EOS, SECOND_EOS], special_ids=[CONTROL], vocab_size=VOCAB_SIZE)


@cache
def toy_compiler() -> GrammarCompiler:
    """One compiler over the toy vocabulary for all tests."""
    return GrammarCompiler(toy_vocab())


def regex(pattern: str) -> CompiledGrammar:
    """The compiled pattern over the toy vocabulary."""
    return toy_compiler().compile_regex(pattern)


def brute_force_ids(matcher: GrammarMatcher) -> list[int]:
    """The legal tokens by the definition: bytes tried one token at a time, end tokens exactly when accepting."""
    compiled, vocab = matcher.compiled, matcher.compiled.vocab
    legal = []
    for token_id in range(vocab.vocab_size):
        text = vocab.token_text(token_id)
        ends = token_id in vocab.eos_ids and matcher.is_accepting
        if ends or (text and not matcher.is_terminated and compiled.advance_bytes(matcher._state, text) >= 0):
            legal.append(token_id)
    return legal


def random_tokens(text: bytes, rng: random.Random) -> list[int]:
    """A random split of `text` into toy tokens; special tokens are never used."""
    vocab = toy_vocab()
    by_text: dict[bytes, list[int]] = {}
    for token_id in range(vocab.vocab_size):
        if piece := vocab.token_text(token_id):
            by_text.setdefault(piece, []).append(token_id)
    ids = []
    while text:
        lengths = [length for length in range(1, min(len(text), 8) + 1) if text[:length] in by_text]
        length = rng.choice(lengths)
        ids.append(rng.choice(by_text[text[:length]]))
        text = text[length:]
    return ids


def random_walk(matcher: GrammarMatcher, rng: random.Random, steps: int) -> list[int]:
    """Accept up to `steps` random legal tokens (end tokens only where nothing else is left); returns them."""
    taken = []
    for _ in range(steps):
        ids = matcher.allowed_ids()
        inner = [token_id for token_id in ids if token_id not in matcher.compiled.vocab.eos_ids]
        if not inner:
            break
        taken.append(rng.choice(inner))
        assert matcher.accept_token(taken[-1])
    return taken
