from __future__ import annotations

import logging
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from sglang_lite.grammar.errors import InvalidVocabularyError
from sglang_lite.grammar.vocab import TokenVocab
from tests.grammar.toy import CONTROL, EOS, SECOND_EOS, toy_vocab

PIECES: list[bytes | None] = [b"<eos>", b"a", b"ab", None, b"", b"b", b"ab"]


@dataclass
class FakeTokenizer:
    token_bytes: list[bytes | None] = field(default_factory=lambda: list(PIECES))
    eos_ids: tuple[int, ...] = (0,)
    special_ids: tuple[int, ...] = (5,)
    vocab_size: int = 40


def same_trie(left: TokenVocab, right: TokenVocab) -> bool:
    return all(np.array_equal(one, other) for one, other in zip(left.trie, right.trie, strict=True))


def test_special_and_end_tokens_have_no_bytes() -> None:
    vocab = toy_vocab()
    assert [vocab.token_text(i) for i in (EOS, SECOND_EOS, CONTROL)] == [b"", b"", b""]
    assert vocab.eos_ids == (EOS, SECOND_EOS)
    assert {EOS, SECOND_EOS, CONTROL} <= vocab.special_ids


def test_a_tokenizer_gives_all_parts() -> None:
    vocab = TokenVocab.from_tokenizer(FakeTokenizer())
    assert vocab.vocab_size == 40
    assert vocab.eos_ids == (0,)
    assert vocab.special_ids == {0, 5}
    assert [vocab.token_text(i) for i in range(8)] == [b"", b"a", b"ab", b"", b"", b"", b"ab", b""]
    assert vocab.token_text(39) == b""


def test_the_hash_tells_vocabularies_apart() -> None:
    base = TokenVocab(PIECES, [0], [5])
    assert TokenVocab(PIECES, [0], [5]).digest == base.digest
    others = [
        TokenVocab(PIECES, [0], []),
        TokenVocab(PIECES, [0, 5], []),
        TokenVocab(PIECES, [0], [5], vocab_size=8),
        TokenVocab([*PIECES[:-1], b"ac"], [0], [5]),
        TokenVocab([PIECES[0], b"aa", b"b", *PIECES[3:]], [0], [5]),
    ]
    assert len({base.digest, *(other.digest for other in others)}) == 6


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        (([b"a"], [1]), r"\[1\]"),
        (([b"a"], [], [-1]), r"\[-1\]"),
        (([b"a", b"b"], [], [], 1), "vocab_size is 1"),
        ((["a"], []), "token 0 is a str"),
    ],
)
def test_contradictions_are_refused(arguments: tuple, match: str) -> None:
    with pytest.raises(InvalidVocabularyError, match=match):
        TokenVocab(*arguments)


def test_a_vocabulary_without_bytes_is_possible() -> None:
    assert len(TokenVocab([None, b""], [0]).trie.byte) == 0


def test_the_stored_trie_equals_the_built_one(tmp_path: Path) -> None:
    built = TokenVocab(PIECES, [0], [5], cache_dir=tmp_path / "new")
    (stored,) = (tmp_path / "new").iterdir()
    stamp = stored.stat().st_mtime_ns
    loaded = TokenVocab(PIECES, [0], [5], cache_dir=tmp_path / "new")
    assert same_trie(built, loaded)
    assert stored.stat().st_mtime_ns == stamp


@pytest.mark.parametrize("damage", ["cut", "bytes", "other"])
def test_a_damaged_store_is_built_anew(tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture) -> None:
    built = TokenVocab(PIECES, [0], [5], cache_dir=tmp_path)
    (stored,) = tmp_path.iterdir()
    with np.load(stored) as file:
        arrays = dict(file)
    if damage == "cut":
        stored.write_bytes(stored.read_bytes()[:200])
    elif damage == "bytes":
        np.savez(stored, **{**arrays, "byte": arrays["byte"] + 1})
    else:
        np.savez(stored, **{**arrays, "token": np.full_like(arrays["token"], -1)})
    with caplog.at_level(logging.WARNING):
        again = TokenVocab(PIECES, [0], [5], cache_dir=tmp_path)
    assert same_trie(again, built)
    assert bool(caplog.records) == (damage == "cut")
    with np.load(stored) as file:
        assert np.array_equal(file["byte"], arrays["byte"])


def test_a_folder_that_cannot_be_written_costs_a_warning_only(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    with caplog.at_level(logging.WARNING):
        vocab = TokenVocab(PIECES, [0], cache_dir=blocked / "below")
    assert vocab.token_text(1) == b"a"
    assert caplog.records
