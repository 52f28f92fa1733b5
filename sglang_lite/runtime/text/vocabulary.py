"""What is known about a vocabulary beside the `tokenizers` object: ids with a duty and the bytes of each token."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import tokenizers

Alphabet = Literal["byte_level", "sentencepiece"]
SpacePrefix = Literal["never", "first", "always"]

SPACE_MARK = "\u2581"  # SentencePiece writes a space as this character

# Tokens that end a turn or a text by their name: many files name only one end token of several.
END_TOKENS = frozenset(
    {
        "<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|end|>", "<|end_of_text|>", "<|endoftext|>", "<end_of_turn>", "<turn|>",
        "<|END_OF_TURN_TOKEN|>", "<|end_of_turn|>", "<|eot|>", "<|return|>", "<|call|>", "</s>", "<eos>",
        "<｜end▁of▁sentence｜>", "[|endofturn|]",
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class VocabInfo:
    """Facts of a vocabulary that the `tokenizers` object does not hold.

    Attributes:
        alphabet: how token texts spell bytes.
        bos_id, eos_id, unk_id, pad_id: ids with a duty, or None; `eos_id` is the one that chat templates write.
        eos_ids: every id that ends a generation, ascending.
        add_bos: whether plain text starts with `bos_id`.
        space_prefix: where the tokenizer puts a space in front of text (`first`: only at the very start; `always`: after
            each special token too).
        hidden_ids: ids that are never text beside the special tokens (unused and unknown ones), ascending.
        chat_template: the Jinja source that came with the model, or None.
    """

    alphabet: Alphabet
    bos_id: int | None = None
    eos_id: int | None = None
    unk_id: int | None = None
    pad_id: int | None = None
    eos_ids: tuple[int, ...] = ()
    add_bos: bool = False
    space_prefix: SpacePrefix = "never"
    hidden_ids: tuple[int, ...] = ()
    chat_template: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Plain data; `from_json` reads it back."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> VocabInfo:
        """The inverse of `to_json`."""
        lists = {"eos_ids": tuple(data["eos_ids"]), "hidden_ids": tuple(data["hidden_ids"])}
        return cls(**{**data, **lists})


def _byte_level_table() -> dict[int, str]:
    """Code point of the byte alphabet -> the character whose Latin-1 code is the byte (GPT-2's bytes_to_unicode)."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in set(printable)]
    return {byte: chr(byte) for byte in printable} | {256 + i: chr(byte) for i, byte in enumerate(others)}


_BYTE_LEVEL = _byte_level_table()


def byte_level_bytes(token: str) -> bytes:
    """Bytes of a byte-level token; characters outside the alphabet stand for themselves."""
    try:
        return token.translate(_BYTE_LEVEL).encode("latin-1")
    except UnicodeEncodeError:
        return token.encode()


def sentencepiece_bytes(token: str) -> bytes:
    """Bytes of a SentencePiece token: `<0xE2>` is one byte, U+2581 is a space."""
    if len(token) == 6 and token.startswith("<0x") and token.endswith(">"):
        try:
            return bytes((int(token[3:5], 16),))
        except ValueError:
            pass
    return token.replace(SPACE_MARK, " ").encode()


def all_token_bytes(backend: tokenizers.Tokenizer, alphabet: Alphabet) -> list[bytes]:
    """The exact bytes of every id, holes as b""; added tokens stand for their own text."""
    vocabulary = backend.get_vocab(with_added_tokens=True)
    table = [b""] * (max(vocabulary.values(), default=-1) + 1)
    spell = byte_level_bytes if alphabet == "byte_level" else sentencepiece_bytes
    for token, token_id in vocabulary.items():
        table[token_id] = spell(token)
    for token_id, added in backend.get_added_tokens_decoder().items():
        text = added.content
        table[token_id] = text.encode() if added.special or alphabet == "byte_level" else sentencepiece_bytes(text)
    return table
