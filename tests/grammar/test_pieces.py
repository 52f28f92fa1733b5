from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from sglang_lite.grammar.compiler import GrammarCompiler
from sglang_lite.grammar.errors import InvalidVocabularyError
from sglang_lite.grammar.matcher import GrammarMatcher
from sglang_lite.grammar.pieces import piece_bytes, rank_bytes
from sglang_lite.grammar.vocab import TokenVocab


def test_byte_level_pieces() -> None:
    assert piece_bytes(["Ġthe", "Ċ", "Ã©", None, "a"], "byte_level") == [b" the", b"\n", "é".encode(), None, b"a"]
    with pytest.raises(InvalidVocabularyError, match="byte-level"):
        piece_bytes(["▁the"], "byte_level")


def test_sentencepiece_pieces() -> None:
    assert piece_bytes(["▁the", "<0x0A>", "é", "<s>x"], "sentencepiece") == [b" the", b"\n", "é".encode(), b"<s>x"]


def test_tiktoken_ranks_may_have_gaps() -> None:
    assert rank_bytes({b"a": 0, b" b": 3}) == [b"a", None, None, b" b"]
    with pytest.raises(InvalidVocabularyError, match="taken"):
        rank_bytes({b"a": 0, b"b": 0})


@pytest.mark.parametrize(
    "token_bytes",
    [
        piece_bytes(["a", "Ġ", "Ġb", "Ã", "©", None], "byte_level"),
        piece_bytes(["a", "▁", "▁b", "<0xC3>", "<0xA9>", None], "sentencepiece"),
        rank_bytes({b"a": 0, b" ": 1, b" b": 2, b"\xc3": 3, b"\xa9": 4}),
    ],
)
def test_a_required_space_and_a_split_character_are_reachable(token_bytes: list[bytes | None]) -> None:
    """The same masks in every style of vocabulary."""
    vocab = TokenVocab([*token_bytes[:5], None], eos_ids=[5])
    matcher = GrammarMatcher(GrammarCompiler(vocab).compile_regex("a bé"))
    for token, allowed in ((0, [0]), (2, [1, 2]), (3, [3]), (4, [4]), (5, [5])):
        assert matcher.allowed_ids() == allowed
        assert matcher.accept_token(token)


def test_a_tokenizer_whose_tokens_have_other_bytes_is_refused() -> None:
    """Pieces taken for bytes as they stand (a space as two bytes of another character) are found out at load."""
    pieces: list[bytes | None] = [bytes([byte]) for byte in range(256)]
    pieces[0x20] = "Ġ".encode()
    with pytest.raises(InvalidVocabularyError, match="round trip"):
        TokenVocab.from_tokenizer(_tokenizer(pieces), encode=lambda text: list(text.encode()))
    pieces[0x20] = b" "
    TokenVocab.from_tokenizer(_tokenizer(pieces), encode=lambda text: list(text.encode()))


def _tokenizer(pieces: list[bytes | None]) -> Any:
    return SimpleNamespace(token_bytes=[*pieces, None], eos_ids=[256], special_ids=[256], vocab_size=257)
