"""Texts cut into words: joined they are the text, and a tokenizer that is trusted with them never joins across a cut."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers

from sglang_lite.runtime.text.pre_tokenizers import KNOWN, PreTokenizer
from sglang_lite.runtime.text.tokenizer import Tokenizer as OurTokenizer
from sglang_lite.runtime.text.tokenizer import tokenizer_from_gguf
from sglang_lite.runtime.text.word_cuts import cuts_at_words, words
from tests.runtime.text.tiny import byte_level_metadata, sentencepiece_metadata

KINDS: dict[PreTokenizer, str] = {kind: name for name, kind in KNOWN.items()}
PIECES = [
    " a", " B", "a", "Z", "the end", "x y", ".", ", ", "'s", "'LL ", " 'd", "! ", "?!", ":\n", " ", "  ", "\n", "\r\n",
    "\t", "1", "12345", " 7", "_", "/", "(", ") ", "\u00e9", "\u0301", "漢", " 字", "\u00a0", "\u3000", "\u2028", "Ⅷ", "😀 ",
]  # fmt: skip
TEXTS = st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=3)), max_size=25).map("".join)


def backend(pre_tokenizer: Any, normalizer: Any = None, added: AddedToken | None = None) -> Tokenizer:
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizer
    if normalizer is not None:
        made.normalizer = normalizer
    if added is not None:
        made.add_tokens([added])
    return made


GPT2 = pre_tokenizers.ByteLevel(add_prefix_space=False)


@given(text=TEXTS)
def test_no_known_pattern_joins_across_a_cut(text: str) -> None:
    """Byte-level BPE merges inside the pieces only, so equal pieces are equal ids."""
    parts = words(text)
    assert "".join(parts) == text
    for kind, name in KINDS.items():
        split = kind.build()
        whole = [piece for piece, _ in split.pre_tokenize_str(text)]
        assert [piece for part in parts for piece, _ in split.pre_tokenize_str(part)] == whole, name


@given(text=TEXTS)
def test_composing_characters_stays_on_one_side(text: str) -> None:
    compose = normalizers.NFC().normalize_str
    assert "".join(map(compose, words(text))) == compose(text)


def test_every_known_byte_level_tokenizer_is_trusted() -> None:
    for kind in KINDS:
        assert cuts_at_words(backend(kind.build(), normalizers.NFC() if kind.nfc else None))
    assert cuts_at_words(backend(GPT2, added=AddedToken("<mark>")))
    assert cuts_at_words(backend(pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), GPT2])))


@pytest.mark.parametrize(
    "other",
    [
        backend(pre_tokenizers.Metaspace()),
        backend(pre_tokenizers.ByteLevel(use_regex=False)),
        backend(pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(r"\w+ \w+"), "isolated"), GPT2])),
        backend(pre_tokenizers.Split(Regex(KNOWN["llama3"].splits[0]), "removed")),
        backend(pre_tokenizers.Split(" ", "isolated")),
        backend(GPT2, normalizers.Lowercase()),
        backend(GPT2, added=AddedToken("<mark>", rstrip=True)),
        backend(GPT2, added=AddedToken("<mark>", single_word=True)),
        backend(GPT2, added=AddedToken("New York")),
        Tokenizer(models.WordPiece()),
        Tokenizer(models.BPE()),
    ],
)
def test_what_is_not_known_to_split_there_is_not(other: Tokenizer) -> None:
    assert not cuts_at_words(other)


def test_a_tokenizer_that_marks_words_by_spaces_is_left_alone() -> None:
    assert not tokenizer_from_gguf(sentencepiece_metadata())._has_words


def test_words_that_were_met_are_not_tokenised_again() -> None:
    made = tokenizer_from_gguf(byte_level_metadata())
    first = made.encode("a new hello, then a hello", parse_special=False)
    before = made.statistics().tokenised_chars
    assert made.decode(made.encode("a hello, then a new hello", parse_special=False)) == "a hello, then a new hello"
    assert made.statistics().tokenised_chars == before
    made.forget_texts()
    assert made.encode("a new hello, then a hello", parse_special=False) == first
    assert made.statistics().tokenised_chars > before


@given(texts=st.lists(TEXTS, min_size=1, max_size=4))
def test_ids_are_those_of_the_whole_text(texts: list[str]) -> None:
    """One tokenizer for all, so that words of one text are met again in another."""
    for text in texts:
        assert SHARED.encode(text, parse_special=False) == list(PLAIN.encode(text, add_special_tokens=False).ids)


SHARED: OurTokenizer = tokenizer_from_gguf(byte_level_metadata())
PLAIN: Tokenizer = Tokenizer.from_str(SHARED.backend_json())
PLAIN.encode_special_tokens = True
