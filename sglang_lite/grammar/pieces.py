"""From the pieces of a tokenizer's file to the bytes they stand for, in the three usual ways of writing them; knows no file format."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Literal

from sglang_lite.grammar.errors import InvalidVocabularyError

PieceStyle = Literal["byte_level", "sentencepiece"]
_FALLBACK = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def piece_bytes(pieces: Sequence[str | None], style: PieceStyle) -> list[bytes | None]:
    """The bytes of each piece; None stays None.

    Args:
        pieces: in the order of their ids.
        style: `byte_level`, as GPT-2, Llama 3, Qwen and SmolLM write bytes as printable characters; `sentencepiece`, with `▁` for the space
            and `<0xHH>` for single bytes.

    Raises:
        InvalidVocabularyError: a piece that the style has no bytes for, control tokens among them: give None for these.
    """
    decode = _byte_level if style == "byte_level" else _sentencepiece
    return [None if piece is None else decode(piece) for piece in pieces]


def rank_bytes(ranks: Mapping[bytes, int]) -> list[bytes | None]:
    """The bytes of each id of a tiktoken vocabulary, whose ids may have gaps.

    Raises:
        InvalidVocabularyError: a negative id, or one that two tokens have.
    """
    found: list[bytes | None] = [None] * (max(ranks.values(), default=-1) + 1)
    for data, rank in ranks.items():
        if rank < 0 or found[rank] is not None:
            raise InvalidVocabularyError(
                f"reading a vocabulary: the token {data!r} has the id {rank}, which is negative or taken"
            )
        found[rank] = data
    return found


def _byte_level(piece: str) -> bytes:
    table = _byte_of_character()
    wrong = next((char for char in piece if char not in table), None)
    if wrong is not None:
        raise InvalidVocabularyError(
            f"reading a vocabulary: the piece {piece!r} holds {wrong!r}, which stands for no byte in the byte-level alphabet; "
            "is it written as sentencepiece does, or a control token (give None)?"
        )
    return bytes(table[char] for char in piece)


def _sentencepiece(piece: str) -> bytes:
    match = _FALLBACK.fullmatch(piece)
    if match:
        return bytes([int(match[1], 16)])
    return piece.replace("\u2581", " ").encode()


@cache
def _byte_of_character() -> dict[str, int]:
    """The byte-level alphabet: printable Latin-1 characters stand for themselves, the other bytes for characters from U+0100 on."""
    own = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    table = {chr(byte): byte for byte in own}
    others = [byte for byte in range(256) if byte not in set(own)]
    return table | {chr(0x100 + index): byte for index, byte in enumerate(others)}
