"""A vocabulary as the grammar sees it: token bytes laid out as a trie, the end tokens, the special tokens; knows no tokenizer library."""

from __future__ import annotations

import hashlib
import logging
import os
import zipfile
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Protocol

import numpy as np

from sglang_lite.grammar.bitmask import ids_to_words
from sglang_lite.grammar.errors import InvalidVocabularyError
from sglang_lite.grammar.nfa import Int32Array, UInt8Array
from sglang_lite.grammar.slices import make_slices
from sglang_lite.grammar.trie_kernels import SliceTables, TrieArrays, check_trie, lay_out_trie

logger = logging.getLogger(__name__)

_FORMAT = b"token trie 1"
_PROBE = '{"a": [1, true]}\n'
_STORED = ("byte", "depth", "skip", "token", "next_same")


class TokenizerLike(Protocol):
    """What `TokenVocab.from_tokenizer` needs of a tokenizer."""

    @property
    def token_bytes(self) -> Sequence[bytes | None]:
        """Bytes of each token id; None where a token stands for no bytes."""
        ...

    @property
    def eos_ids(self) -> Iterable[int]:
        """Tokens that end a text."""
        ...

    @property
    def special_ids(self) -> Iterable[int]:
        """Control tokens, whose spelling is not text."""
        ...

    @property
    def vocab_size(self) -> int:
        """Width of the logits, padding included."""
        ...


class TokenVocab:
    """Token ids and their bytes, for masks. Immutable; share one among all grammars of a model.

    `token_bytes[i]` is the text of token i as bytes (already decoded from the tokenizer's alphabet), or None. Special and end
    tokens are never reached through their bytes; tokens without bytes and ids from `len(token_bytes)` to `vocab_size` are never
    allowed. Several tokens may have the same bytes. With `cache_dir` the trie is stored there under the vocabulary's hash.
    `encode` is the tokenizer's own way from text to ids, in the middle of a text (no begin token, no added space) and without
    reading special tokens; jump-forward needs it.

    Attributes:
        vocab_size: number of ids, the width V of the logits.
        eos_ids: ascending; allowed exactly where a grammar accepts.
        special_ids: control tokens, end tokens included.
        digest: hex SHA-256 of everything above and the token bytes.
        data, offsets: uint8 [*], int32 [V + 1]; bytes of token i are `data[offsets[i] : offsets[i + 1]]`, none for special ones.
        eos_words: int32 [ceil(V / 32)]; the bitmask of the end tokens.
        trie: all tokens with bytes.
        encode, cache_dir: as given.

    Raises:
        InvalidVocabularyError: an id lies outside the vocabulary, or an entry is neither bytes nor None.
    """

    def __init__(
        self,
        token_bytes: Sequence[bytes | None],
        eos_ids: Iterable[int],
        special_ids: Iterable[int] = (),
        vocab_size: int | None = None,
        *,
        encode: Callable[[str], list[int]] | None = None,
        cache_dir: str | os.PathLike[str] | None = None,
    ) -> None:
        self.vocab_size = len(token_bytes) if vocab_size is None else vocab_size
        self.eos_ids = tuple(sorted(set(eos_ids)))
        self.special_ids = frozenset(special_ids) | frozenset(self.eos_ids)
        self.encode = encode
        self.cache_dir = None if cache_dir is None else Path(cache_dir)
        self._check(token_bytes)
        texts = [b"" if piece is None or i in self.special_ids else piece for i, piece in enumerate(token_bytes)]
        texts += [b""] * (self.vocab_size - len(texts))
        self.offsets: Int32Array = np.zeros(self.vocab_size + 1, np.int32)
        np.cumsum([len(text) for text in texts], out=self.offsets[1:])
        # A copy, since arrays over bytes objects are read-only, which compiled loops take for another type.
        self.data: UInt8Array = np.frombuffer(b"".join(texts), np.uint8).copy()
        self.eos_words = ids_to_words(self.eos_ids, self.vocab_size)
        self.digest = self._digest()
        self.trie = self._load_or_build(texts, self.cache_dir)

    @classmethod
    def from_tokenizer(
        cls,
        tokenizer: TokenizerLike,
        *,
        encode: Callable[[str], list[int]] | None = None,
        cache_dir: str | os.PathLike[str] | None = None,
    ) -> TokenVocab:
        """The vocabulary of an object with `token_bytes`, `eos_ids`, `special_ids` and `vocab_size`.

        Raises:
            InvalidVocabularyError: as of the class, or the tokens that `encode` gives for a plain text do not spell it.
        """
        vocab = cls(
            tokenizer.token_bytes,
            tokenizer.eos_ids,
            tokenizer.special_ids,
            tokenizer.vocab_size,
            encode=encode,
            cache_dir=cache_dir,
        )
        vocab._check_round_trip()
        return vocab

    @cached_property
    def slices(self) -> SliceTables:
        """The tokens cut for masks; made when first asked for."""
        return make_slices(self.data, self.offsets, self._sorted_ids(), self._lay_out)

    def token_text(self, token_id: int) -> bytes:
        """The bytes by which `token_id` moves a grammar; b"" for special tokens and ids without bytes."""
        return self.data[self.offsets[token_id] : self.offsets[token_id + 1]].tobytes()

    def _sorted_ids(self) -> Int32Array:
        """Tokens with bytes, sorted by them, then by id: the order in which the trie has them."""
        ids: list[int] = []
        for first in self.trie.token[self.trie.token >= 0].tolist():
            token = first
            while token >= 0:
                ids.append(token)
                token = int(self.trie.next_same[token])
        return np.array(ids, np.int32)

    def _check(self, token_bytes: Sequence[bytes | None]) -> None:
        if len(token_bytes) > self.vocab_size:
            raise InvalidVocabularyError(
                f"building a vocabulary: {len(token_bytes)} tokens, but vocab_size is {self.vocab_size}"
            )
        outside = [i for i in sorted(self.special_ids) if not 0 <= i < self.vocab_size]
        if outside:
            raise InvalidVocabularyError(
                f"building a vocabulary: special or end ids {outside[:5]} are not below vocab_size {self.vocab_size}"
            )
        for i, piece in enumerate(token_bytes):
            if piece is not None and not isinstance(piece, bytes):
                raise InvalidVocabularyError(
                    f"building a vocabulary: token {i} is a {type(piece).__name__}, expected bytes or None"
                )

    def _check_round_trip(self) -> None:
        """The tokens of a plain text, as `encode` has them, must spell it; else the bytes are not those of the tokenizer."""
        if self.encode is None:
            return
        ids = self.encode(_PROBE)
        found = b"".join(self.token_text(i) for i in ids if 0 <= i < self.vocab_size)
        if found.removeprefix(b" ") != _PROBE.encode():
            raise InvalidVocabularyError(
                f"building a vocabulary: the round trip of {_PROBE!r} gives {found!r}; the bytes of the tokens are not those of the "
                "tokenizer (are pieces written in another alphabet?), or `encode` adds tokens of its own"
            )

    def _digest(self) -> str:
        summary = hashlib.sha256(_FORMAT)
        head = np.array([self.vocab_size, len(self.eos_ids), *self.eos_ids, *sorted(self.special_ids)], np.int64)
        for part in (head, self.offsets, self.data):
            summary.update(part.tobytes())
        return summary.hexdigest()

    def _load_or_build(self, texts: list[bytes], folder: Path | None) -> TrieArrays:
        path = None if folder is None else folder / f"trie-{self.digest[:32]}.npz"
        if path is not None and (stored := _load(path)) is not None and self._spells_all(stored):
            return stored
        trie = self._build(texts)
        assert self._spells_all(trie), "a token read back from the new trie differs from its bytes"
        if path is not None:
            _store(path, trie)
        return trie

    def _build(self, texts: list[bytes]) -> TrieArrays:
        order = np.array(sorted((i for i, text in enumerate(texts) if text), key=texts.__getitem__), np.int32)
        return self._lay_out(order)

    def _lay_out(self, order: Int32Array) -> TrieArrays:
        """The trie of the tokens `order`, sorted by bytes, then by id."""
        lengths = self.offsets[order + 1] - self.offsets[order]
        room = int(lengths.sum())
        draft = TrieArrays(
            byte=np.zeros(room, np.uint8),
            depth=np.zeros(room, np.int32),
            skip=np.zeros(room, np.int32),
            token=np.zeros(room, np.int32),
            next_same=np.full(self.vocab_size, -1, np.int32),
            max_depth=int(lengths.max(initial=0)),
        )
        count = lay_out_trie(order, self.data, self.offsets, draft)
        return draft._replace(
            byte=draft.byte[:count].copy(),
            depth=draft.depth[:count].copy(),
            skip=draft.skip[:count].copy(),
            token=draft.token[:count].copy(),
        )

    def _spells_all(self, trie: TrieArrays) -> bool:
        """Round trip: every token with bytes is in `trie` once, under exactly its bytes."""
        if len(trie.next_same) != self.vocab_size:
            return False
        seen = np.zeros(self.vocab_size, np.uint8)
        differs = check_trie(trie, self.data, self.offsets, seen)
        return differs < 0 and bool(np.array_equal(seen == 1, np.diff(self.offsets) > 0))


def _load(path: Path) -> TrieArrays | None:
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
            arrays = {name: np.ascontiguousarray(stored[name]) for name in _STORED}
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        logger.warning("the token trie in %s cannot be read (%s); it is built anew", path, error)
        return None
    return TrieArrays(**arrays, max_depth=int(arrays["depth"].max(initial=0)))


def _store(path: Path, trie: TrieArrays) -> None:
    """Write beside the target and rename, so that a reader never meets half a file."""
    draft = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with draft.open("wb") as file:
            np.savez(file, **{name: getattr(trie, name) for name in _STORED})
        draft.replace(path)
    except OSError as error:
        logger.warning("the token trie cannot be stored in %s (%s); the next start builds it again", path, error)
