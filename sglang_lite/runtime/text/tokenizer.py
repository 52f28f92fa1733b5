"""The tokenizer of one model: text <-> ids, special tokens, bytes of each token; knows no files and no chat format."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from sglang_lite.errors import RequestError
from sglang_lite.runtime.text.chat_pieces import SpecialGuard
from sglang_lite.runtime.text.gguf_vocabulary import build_from_gguf
from sglang_lite.runtime.text.vocabulary import VocabInfo, all_token_bytes
from sglang_lite.runtime.text.word_cuts import cuts_at_words, words

if TYPE_CHECKING:
    import tokenizers

Piece = tuple[str, bool]  # text, and whether special tokens in it are parsed

_MAX_WORDS = 1 << 15
_MAX_WORD_CHARS = 32
"""Longer ones come seldom twice."""


@dataclass(frozen=True, slots=True)
class TokenizerStatistics:
    """Counters of the cache of tokenised text.

    Attributes:
        hits, misses: runs of text found in the cache, and tokenised.
        entries, chars: what the cache holds now.
        tokenised_chars: characters that were tokenised since the start.
    """

    hits: int
    misses: int
    entries: int
    chars: int
    tokenised_chars: int = 0


class Tokenizer:
    """Text <-> ids of one model. Safe to use from several threads.

    A *span* is a list of pieces `(text, parse_special)`. Where `parse_special` is set, special-token strings in the text
    become their ids; elsewhere they are ordinary text. What lies between two special tokens is joined across the borders
    of pieces and tokenised as one run, so the ids are those of the tokenizer's own encoding of the whole text. Runs are
    cached by content, and word by word where that gives the same ids. No BOS is ever added here: ask `needs_bos` at the root of a sequence.

    Attributes:
        info: `VocabInfo`, the facts this object was built from.
        token_bytes: exact bytes of every id; special tokens stand for their text, holes and what `cover` added are b"".
        visible_bytes: the same with b"" for `special_ids`: what a reader sees.
        special_tokens: text -> id of the tokens that are parsed where `parse_special` is set.
        special_ids: ids that are never text: `special_tokens`, the unknown token, unused ids.
        eos_ids: ids that end a generation.
        missing_bytes: bytes no token spells. Byte-level vocabularies with gaps drop them from text, as their own reference
            tokenizers do (SmolLM2 lacks some control characters and bytes that UTF-8 never uses).

    Args:
        backend: the `tokenizers` object; owned by this object from now on.
        info: what `backend` does not hold.
        cache_chars: bound of the characters the cache of tokenised text holds.
    """

    def __init__(self, backend: tokenizers.Tokenizer, info: VocabInfo, *, cache_chars: int = 4_000_000) -> None:
        # Special tokens are split off here, so that one object serves parsed and literal text alike.
        backend.encode_special_tokens = True
        backend.no_truncation()
        backend.no_padding()
        added = backend.get_added_tokens_decoder()
        self._backend = backend
        self.info = info
        self.token_bytes: list[bytes] = all_token_bytes(backend, info.alphabet)
        self.special_tokens: dict[str, int] = {t.content: i for i, t in sorted(added.items()) if t.special}
        self.special_ids = frozenset(self.special_tokens.values()) | frozenset(info.hidden_ids)
        self.eos_ids = frozenset(info.eos_ids)
        self.visible_bytes = [b"" if i in self.special_ids else raw for i, raw in enumerate(self.token_bytes)]
        self.missing_bytes = frozenset(range(256)) - {raw[0] for raw in self.visible_bytes if len(raw) == 1}
        self._special_pattern = _special_pattern([t for t in added.values() if t.special])
        self._runs = _RunCache(cache_chars)
        self._words: dict[str, tuple[int, ...]] = {}
        self._has_words = info.space_prefix == "never" and cuts_at_words(backend)

    @property
    def vocab_size(self) -> int:
        """Number of ids, holes and what `cover` added included."""
        return len(self.token_bytes)

    def cover(self, num_rows: int) -> None:
        """Have an entry for every id of a model whose embedding has `num_rows` rows.

        Many embeddings are padded: the rows beyond the vocabulary are tokens that can be drawn and given, and have no text.
        To be called where the tokenizer of a model is loaded, before anything else reads it. Fewer rows change nothing.
        """
        added = [b""] * (num_rows - len(self.token_bytes))
        self.token_bytes += added
        self.visible_bytes += added

    @property
    def bos_id(self) -> int | None:
        """The token a sequence begins with, if the vocabulary has one."""
        return self.info.bos_id

    @property
    def pad_id(self) -> int | None:
        """The padding token, if the vocabulary has one."""
        return self.info.pad_id

    @property
    def add_bos(self) -> bool:
        """Whether plain text starts with `bos_id`."""
        return self.info.add_bos

    @property
    def chat_template(self) -> str | None:
        """The Jinja source that came with the model."""
        return self.info.chat_template

    @property
    def bos_token(self) -> str | None:
        """Text of `bos_id`."""
        return None if self.bos_id is None else self.token_bytes[self.bos_id].decode("utf-8", "replace")

    @property
    def template_variables(self) -> dict[str, str]:
        """Special-token strings a chat template may use (`bos_token`, `eos_token`, `unk_token`, `pad_token`)."""
        info = self.info
        ids = {"bos_token": info.bos_id, "eos_token": info.eos_id, "unk_token": info.unk_id, "pad_token": info.pad_id}
        return {name: self.token_bytes[i].decode("utf-8", "replace") for name, i in ids.items() if i is not None}

    @cached_property
    def fingerprint(self) -> str:
        """Hash of everything that decides ids and bytes: equal for equal tokenizers, also across processes."""
        facts = json.dumps(self.info.to_json(), sort_keys=True)
        return hashlib.sha256(f"{self._backend.to_str()}\n{facts}".encode()).hexdigest()

    @cached_property
    def guard(self) -> SpecialGuard:
        """Keeps special tokens in given texts apart from those of a chat template."""
        return SpecialGuard(self.special_tokens)

    def needs_bos(self, ids: Sequence[int], *, from_template: bool = False) -> bool:
        """Whether `bos_id` must go in front of a sequence that starts with `ids`.

        Args:
            ids: the first ids of the sequence, possibly none.
            from_template: the sequence starts with a chat template's text. The template alone decides then whether there
                is a BOS, as `apply_chat_template` of transformers has it.
        """
        if not self.add_bos or from_template:
            return False
        return not (len(ids) > 0 and ids[0] == self.bos_id)

    def encode(self, text: str, *, parse_special: bool, previous_id: int | None = None) -> list[int]:
        """Ids of `text` without BOS: the span of one piece; see `encode_pieces`."""
        return self.encode_pieces(((text, parse_special),), previous_id=previous_id)

    def encode_pieces(self, pieces: Sequence[Piece], *, previous_id: int | None = None) -> list[int]:
        """Ids of a span without BOS.

        Args:
            pieces: texts and whether special tokens in them are parsed.
            previous_id: the id that stands before the span; None at the start of a text, where a BOS that goes in front
                later does not count. Tokenizers that put a space in front of a text need it; others ignore it.

        Raises:
            RequestError: the text holds a lone surrogate, which has no UTF-8 form.
        """
        prefixed = self._puts_space_after(previous_id)
        if len(pieces) == 1 and not pieces[0][1]:  # a choice, mostly
            return list(self._encode_run(pieces[0][0], prefixed=prefixed)) if pieces[0][0] else []
        ids: list[int] = []
        for part in self._split(pieces):
            if isinstance(part, int):
                ids.append(part)
                prefixed = self._puts_space_after(part)
            else:
                ids.extend(self._encode_run(part, prefixed=prefixed))
        return ids

    def decode(self, ids: Iterable[int], skip_special: bool = True, *, at_start: bool = False) -> str:
        """Text of `ids`; bytes that are no UTF-8 become U+FFFD.

        Args:
            ids: token ids.
            skip_special: leave special tokens out; else they stand as their text.
            at_start: the ids start a text: take away the space that the tokenizer put in front of it.
        """
        table = self.visible_bytes if skip_special else self.token_bytes
        raw = b"".join([table[i] for i in ids])
        if at_start and self.info.space_prefix != "never":
            raw = raw.removeprefix(b" ")
        return raw.decode("utf-8", "replace")

    def statistics(self) -> TokenizerStatistics:
        """Counters of the cache of tokenised text."""
        return self._runs.statistics()

    def forget_texts(self) -> None:
        """Empty the cache of tokenised text; the counters go on."""
        self._runs.clear()
        self._words.clear()

    def backend_json(self) -> str:
        """The `tokenizers` object as its tokenizer.json text."""
        return self._backend.to_str()

    def _puts_space_after(self, previous_id: int | None) -> bool:
        """Whether text after `previous_id` gets a space in front."""
        scheme = self.info.space_prefix
        return scheme != "never" and (previous_id is None or (scheme == "always" and previous_id in self.special_ids))

    def _split(self, pieces: Sequence[Piece]) -> list[str | int]:
        """The span as runs of text and special ids; neighbouring texts are joined."""
        parts: list[str | int] = []
        open_run: list[str] = []
        for text, parse_special in pieces:
            start = 0
            if parse_special and self._special_pattern is not None:
                for match in self._special_pattern.finditer(text):
                    open_run.append(text[start : match.start()])
                    parts += ("".join(open_run), self._special_id(match[0]))
                    open_run.clear()
                    start = match.end()
            open_run.append(text[start:] if start else text)
        parts.append("".join(open_run))
        return [part for part in parts if part != ""]

    def _special_id(self, matched: str) -> int:
        """Id of a match of the special pattern, which may carry white space of a stripping token."""
        exact = self.special_tokens.get(matched)
        return self.special_tokens[matched.strip()] if exact is None else exact

    def _encode_run(self, text: str, *, prefixed: bool) -> tuple[int, ...]:
        key = (text, prefixed)
        ids = self._runs.get(key)
        if ids is None:
            parts = words(text) if self._has_words else [text]
            ids = self._tokenised(text, prefixed=prefixed) if len(parts) == 1 else self._encode_words(parts)
            self._runs.put(key, ids)
        return ids

    def _encode_words(self, parts: Sequence[str]) -> tuple[int, ...]:
        ids: list[int] = []
        for word in parts:
            known = self._words.get(word)
            if known is None:
                known = self._tokenised(word, prefixed=False)
                if len(self._words) >= _MAX_WORDS:
                    self._words.clear()
                if len(word) <= _MAX_WORD_CHARS:
                    self._words[word] = known
            ids += known
        return tuple(ids)

    def _tokenised(self, text: str, *, prefixed: bool) -> tuple[int, ...]:
        backend = self._backend if prefixed or self.info.space_prefix == "never" else self._continuing
        self._runs.count(len(text))
        try:
            return tuple(backend.encode(text, add_special_tokens=False).ids)
        except (TypeError, UnicodeEncodeError) as error:
            raise RequestError(
                f"tokenizing text: {error}; text must be valid Unicode without lone surrogates"
            ) from error

    @cached_property
    def _continuing(self) -> tokenizers.Tokenizer:
        """The same tokenizer without the space in front of a text."""
        import tokenizers

        data = json.loads(self._backend.to_str())
        data["normalizer"] = _without_prefix(data["normalizer"])
        data["pre_tokenizer"] = _without_prefix(data["pre_tokenizer"])
        backend = tokenizers.Tokenizer.from_str(json.dumps(data))
        backend.encode_special_tokens = True
        return backend


def tokenizer_from_gguf(metadata: Mapping[str, Any]) -> Tokenizer:
    """The tokenizer that a GGUF file's key/values describe.

    Raises:
        ModelLoadError: keys are missing or contradict each other, or the tokenizer's kind is not known.
    """
    return Tokenizer(*build_from_gguf(metadata))


class _RunCache:
    """Ids of runs of text, least recently used first out, bounded by characters."""

    def __init__(self, max_chars: int) -> None:
        self._max_chars = max_chars
        self._ids: OrderedDict[tuple[str, bool], tuple[int, ...]] = OrderedDict()
        self._chars = self._hits = self._misses = self._tokenised_chars = 0
        self._lock = threading.Lock()

    def get(self, key: tuple[str, bool]) -> tuple[int, ...] | None:
        with self._lock:
            ids = self._ids.get(key)
            if ids is None:
                self._misses += 1
            else:
                self._hits += 1
                self._ids.move_to_end(key)
            return ids

    def count(self, num_chars: int) -> None:
        """So many are tokenised now."""
        with self._lock:
            self._tokenised_chars += num_chars

    def put(self, key: tuple[str, bool], ids: tuple[int, ...]) -> None:
        with self._lock:
            if key in self._ids or _weight(key) > self._max_chars:
                return
            self._ids[key] = ids
            self._chars += _weight(key)
            while self._chars > self._max_chars:
                old, _ = self._ids.popitem(last=False)
                self._chars -= _weight(old)

    def clear(self) -> None:
        with self._lock:
            self._ids.clear()
            self._chars = 0

    def statistics(self) -> TokenizerStatistics:
        with self._lock:
            return TokenizerStatistics(self._hits, self._misses, len(self._ids), self._chars, self._tokenised_chars)


def _weight(key: tuple[str, bool]) -> int:
    return len(key[0]) + 64  # an entry costs memory beside its text


def _special_pattern(added: Sequence[tokenizers.AddedToken]) -> re.Pattern[str] | None:
    """Finds special tokens leftmost and longest, with the white space that a token's flags give to it."""
    texts = [
        (r"\s*" if token.lstrip else "") + re.escape(token.content) + (r"\s*" if token.rstrip else "")
        for token in sorted(added, key=lambda token: -len(token.content))
    ]
    return re.compile("|".join(texts)) if texts else None


def _without_prefix(step: Any) -> Any:
    """A normalizer or pre-tokenizer of tokenizer.json without what puts a space in front of the text."""
    if step is None or step["type"] == "Prepend":
        return None
    if step["type"] == "Sequence":
        key = "normalizers" if "normalizers" in step else "pretokenizers"
        steps = [new for old in step[key] if (new := _without_prefix(old)) is not None]
        return {**step, key: steps} if steps else None
    if step["type"] == "Metaspace":
        return {**step, "prepend_scheme": "never"}
    if step["type"] == "ByteLevel":
        return {**step, "add_prefix_space": False}
    return step
