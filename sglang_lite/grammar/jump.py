"""Jump-forward: the tokens that must come next, spelled as the tokenizer itself would spell them; knows no scheduler.

The bytes that a grammar forces are re-encoded together with the last tokens before them. Of the result are kept the tokens that
stay the same whatever legal text follows. A token of the vocabulary that begins inside the forced bytes and goes on
beyond them makes everything from its begin on uncertain; the text before its begin, encoded alone, must begin with what is kept.
This is the rule of token healing at the end of a prompt, applied at the end of a forced run.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence

import numpy as np

from sglang_lite.grammar.tables import LazyTables
from sglang_lite.grammar.vocab import TokenVocab

CONTEXT_TOKENS = 4
_MAX_CACHED = 4096
_WHITE_SPACE = b" \t\n\r\v\f"

Encode = Callable[[str], list[int]]


class JumpForward:
    """Canonical runs of forced tokens of one grammar, remembered by state and context. Safe in several threads."""

    def __init__(self, vocab: TokenVocab, tables: LazyTables) -> None:
        self._vocab = vocab
        self._tables = tables
        self._lock = threading.Lock()
        self._known: OrderedDict[tuple[int, tuple[int, ...]], list[int]] = OrderedDict()

    def run(self, state: int, before: Sequence[int]) -> list[int]:
        """The tokens that follow `state`; [] where there are none that are certain, or where the vocabulary has no `encode`.

        Args:
            state: a state of the grammar, not dead.
            before: the tokens before it, in order; the last four count. Empty at the begin of a text.
        """
        encode = self._vocab.encode
        if encode is None:
            return []
        context = self._context(before)
        key = (state, context)
        with self._lock:
            if key in self._known:
                self._known.move_to_end(key)
                return self._known[key].copy()
        with self._tables.pinned():
            found = self._find(state, context, encode)
        with self._lock:
            self._known[key] = found
            while len(self._known) > _MAX_CACHED:
                self._known.popitem(last=False)
        return found.copy()

    def _context(self, before: Sequence[int]) -> tuple[int, ...]:
        """The last tokens behind the last one that stands for no text."""
        context: list[int] = []
        for token_id in reversed(before[-CONTEXT_TOKENS:]):
            if not 0 <= token_id < self._vocab.vocab_size or not self._vocab.token_text(token_id):
                break
            context.insert(0, token_id)
        return tuple(context)

    def _find(self, state: int, context: tuple[int, ...], encode: Encode) -> list[int]:
        data = _whole_characters(self._tables.forced(state).data)
        if not data:
            return []
        for skipped in range(max(len(context), 1)):
            tail = context[skipped:]
            text = b"".join(map(self._vocab.token_text, tail))
            candidates = self._continued(tail, text + data, encode)
            if candidates is not None:
                return self._certain(state, tail, text, data, candidates, encode)
        return []

    def _continued(self, tail: tuple[int, ...], text: bytes, encode: Encode) -> list[int] | None:
        """The tokens of `text` behind `tail`; None if its encoding does not begin with `tail` or is not its bytes."""
        try:
            ids = encode(text.decode())
        except UnicodeDecodeError:
            return None
        in_range = all(0 <= i < self._vocab.vocab_size for i in ids)
        if tuple(ids[: len(tail)]) != tail or not in_range or b"".join(map(self._vocab.token_text, ids)) != text:
            return None
        return ids[len(tail) :]

    def _certain(
        self, state: int, tail: tuple[int, ...], text: bytes, data: bytes, candidates: list[int], encode: Encode
    ) -> list[int]:
        """The first of `candidates`, the tokens of `data`, that no continuation changes."""
        whole = np.frombuffer(text + data, np.uint8).copy()
        end = self._tables.advance(state, whole, len(text), len(whole))
        begins = self._tables.spans_end(whole, end, self._vocab.trie)
        # Tokenizers look ahead in white space: how a run of it is cut depends on what follows.
        blank = len(data.rstrip(_WHITE_SPACE))
        if blank < len(data):
            begins.append(len(text) + blank)
        kept = candidates
        for begin in sorted(begins, reverse=True):
            if begin < len(text):
                return []
            if not kept:
                break
            before = self._continued(tail, text + _whole_characters(data[: begin - len(text)]), encode)
            kept = [] if before is None else _common(kept, before)
        return self._to_whole_characters(kept)

    def _to_whole_characters(self, ids: list[int]) -> list[int]:
        """`ids` up to the last border between characters."""
        texts = [self._vocab.token_text(i) for i in ids]
        while ids and len(_whole_characters(b"".join(texts))) < sum(map(len, texts)):
            ids, texts = ids[:-1], texts[:-1]
        return ids


def _whole_characters(data: bytes) -> bytes:
    """The longest begin of `data` that is UTF-8 and ends behind a character."""
    try:
        data.decode()
    except UnicodeDecodeError as error:
        return data[: error.start]
    return data


def _common(left: list[int], right: list[int]) -> list[int]:
    """The longest common begin."""
    limit = min(len(left), len(right))
    return left[: next((i for i in range(limit) if left[i] != right[i]), limit)]
