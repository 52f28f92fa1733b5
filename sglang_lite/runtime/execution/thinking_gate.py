"""The thinking of a model before its answer: free text up to an end mark, within a budget, then the constraint; knows no request.

A gate is a `GrammarCursor` around another one, or around nothing (a budget alone). The end mark is found by its bytes, however it
is cut into tokens, or by its id if it is a special token. No token may reach beyond the end of the mark: the constraint begins
with a token of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sglang_lite.runtime.scheduler.messages import GrammarCursor, LenientCursor

EMPTY_THOUGHT = "\n\n"
"""What stands between the marks of an empty thinking block."""

_CONTEXT = 4  # tokens that the spelling of what follows may depend on

Words = NDArray[np.int32]


class _Place(NamedTuple):
    """Where a gate is.

    Attributes:
        phase: `forced`: the tokens `forced` come next, then the answer; `thinking`: any text.
        matched: bytes of the end mark that the text so far ends with.
        opened: bytes of the begin mark that are the whole text so far; -1: the text went on or began otherwise.
        num_thought: tokens of thinking, the begin mark's not counted.
        forced: tokens to come.

    """

    phase: Literal["thinking", "forced", "answer"]
    matched: int = 0
    opened: int = 0
    num_thought: int = 0
    forced: tuple[int, ...] = ()


class MarkTables:
    """One pair of marks over one vocabulary; immutable, shared by all gates.

    Args:
        marks: begin and end of the thinking, as text.
        visible: the bytes each token adds to the text; none for special ones.
        special_ids: tokens that are no text; those of `eos_ids` end it.
        vocab_size: width of the logits.
        encode: text to ids, special tokens read.

    """

    def __init__(
        self,
        marks: tuple[str, str],
        visible: Sequence[bytes],
        special_ids: Iterable[int],
        eos_ids: Iterable[int],
        vocab_size: int,
        encode: Callable[[str], list[int]],
    ) -> None:
        self.visible = visible
        self.encode = encode
        self.eos_ids = frozenset(eos_ids)
        self.begin_ids, self.end_ids = (tuple(encode(mark)) for mark in marks)
        specials = frozenset(special_ids)
        self.begin_special, self.end_special = (
            ids[0] if len(ids) == 1 and ids[0] in specials else None for ids in (self.begin_ids, self.end_ids)
        )
        self.begin, self.end = (mark.encode() for mark in marks)
        self.vocab_size = vocab_size
        known = [i for i, data in enumerate(visible) if i < vocab_size and (data or i in specials)]
        self.eos_words = self.words_of(self.eos_ids)
        self.free_words = self.words_of(known) & ~self.eos_words
        self._steps = [self._step(matched) for matched in range(len(self.end))]
        self._reaching = [] if self.end_special is not None else self._find_reaching()

    def words_of(self, ids: Iterable[int]) -> Words:
        """The bitmask of `ids`, int32 `[ceil(V / 32)]`."""
        flags = np.zeros(-(-self.vocab_size // 32) * 32, np.uint8)
        flags[[i for i in ids if i < self.vocab_size]] = 1
        return np.packbits(flags, bitorder="little").view("<i4")

    def thinking_words(self, matched: int) -> Words:
        """What may come while the model thinks, end tokens not among it."""
        return self.free_words & ~self._reaching[matched] if self._reaching else self.free_words

    def follow(self, matched: int, token_id: int) -> int | None:
        """How much of the end mark is there after a token; all of it: the thinking is over. None: it reaches beyond it."""
        if self.end_special is not None:
            return len(self.end) if token_id == self.end_special else 0
        data = self.visible[token_id] if token_id < len(self.visible) else b""
        for byte in data:
            if matched == len(self.end):
                return None
            matched = self._steps[matched].get(byte, 0)
        return matched

    def _step(self, matched: int) -> dict[int, int]:
        """The part of the mark that is there after each byte (0 where it is not named)."""
        steps: dict[int, int] = {}
        for byte in set(self.end):
            text = self.end[:matched] + bytes([byte])
            steps[byte] = next(n for n in range(len(text), -1, -1) if text.endswith(self.end[:n]))
        return steps

    def _find_reaching(self) -> list[Words]:
        last = self.end[-1:]
        suspects = [i for i, data in enumerate(self.visible) if i < self.vocab_size and last in data[:-1]]
        return [
            self.words_of(i for i in suspects if self.follow(matched, i) is None) for matched in range(len(self.end))
        ]


class ThinkingGate:
    """Follows the tokens of one request.

    Args:
        tables: of its marks.
        prompt_ids: the prompt; it may have opened the thinking, or closed it.
        budget: most tokens of thinking; None: no limit.
        inner: the constraint of what comes after it; None: anything.

    """

    def __init__(
        self, tables: MarkTables, prompt_ids: Sequence[int], budget: int | None, inner: GrammarCursor | None
    ) -> None:
        self._tables = tables
        self._budget = budget
        self._inner = inner
        self._recent = list(prompt_ids[-_CONTEXT:])
        self._num_bytes = 0
        self._place = self._begin(prompt_ids)

    def accept_token(self, token_id: int) -> bool:
        """See `GrammarCursor`."""
        place, tables = self._place, self._tables
        if place.phase == "answer":
            return self._inner is None or self._inner.accept_token(token_id)
        if token_id in tables.eos_ids:
            return self._inner is None and place.phase == "thinking"
        if place.phase == "forced":
            if token_id != place.forced[0]:
                return False
            rest = place.forced[1:]
            self._place = place._replace(forced=rest) if rest else _Place("answer")
        else:
            matched = tables.follow(place.matched, token_id)
            if matched is None:
                return False
            self._place = _Place("answer") if matched == len(tables.end) else self._thought(place, matched, token_id)
        self._recent = [*self._recent, token_id][-_CONTEXT:]
        self._num_bytes += len(self._visible(token_id))
        return True

    def fill_bitmask(self, bitmask: Any, index: int = 0) -> None:
        """See `GrammarCursor`."""
        place, tables = self._place, self._tables
        if place.phase == "forced":
            bitmask[index] = tables.words_of(place.forced[:1])
        elif place.phase == "thinking":
            words = tables.thinking_words(place.matched)
            bitmask[index] = words | tables.eos_words if self._inner is None else words
        elif self._inner is None:
            bitmask[index] = tables.free_words | tables.eos_words
        else:
            self._inner.fill_bitmask(bitmask, index)

    def fork(self) -> ThinkingGate:
        """See `GrammarCursor`."""
        inner = None if self._inner is None else self._inner.fork()
        twin = ThinkingGate(self._tables, (), self._budget, inner)
        twin._place, twin._recent, twin._num_bytes = self._place, self._recent, self._num_bytes
        return twin

    def jump_forward(self, before: Sequence[int] = ()) -> list[int]:
        """See `GrammarCursor`."""
        if self._place.phase == "answer":
            return [] if self._inner is None else self._inner.jump_forward(self._recent)
        return list(self._place.forced)

    def notes_on(self, text: bytes) -> tuple[str, ...]:
        """See `LenientCursor`; the constraint is about what comes after the thinking."""
        return self._inner.notes_on(text[self._num_bytes :]) if isinstance(self._inner, LenientCursor) else ()

    @property
    def is_terminated(self) -> bool:
        """See `GrammarCursor`."""
        return self._place.phase == "answer" and self._inner is not None and self._inner.is_terminated

    @property
    def has_only_end(self) -> bool:
        """See `GrammarCursor`."""
        return self._place.phase == "answer" and self._inner is not None and self._inner.has_only_end

    def _begin(self, prompt_ids: Sequence[int]) -> _Place:
        tables = self._tables
        opened = _last(prompt_ids, tables.begin_ids)
        closed = _last(prompt_ids, tables.end_ids)
        if closed > opened and not self._text(prompt_ids[closed:]).strip():
            return _Place("answer")
        is_inside = opened > closed
        if self._budget != 0:
            return _Place("thinking", opened=-1 if is_inside else 0)
        block = () if is_inside else (*tables.begin_ids, *tables.encode(EMPTY_THOUGHT))
        return _Place("forced", forced=(*block, *tables.end_ids))

    def _thought(self, place: _Place, matched: int, token_id: int) -> _Place:
        """After a token of thinking."""
        opened = self._opened(place.opened, token_id)
        place = place._replace(matched=matched, opened=opened, num_thought=place.num_thought + (opened < 0))
        # What has just become the whole begin mark is not counted, what comes after it is.
        place = place._replace(opened=-1) if opened == len(self._tables.begin) else place
        if self._budget is None or place.num_thought < self._budget:
            return place
        rest = self._tables.end_ids if not matched else tuple(self._tables.encode(self._tables.end[matched:].decode()))
        return _Place("forced", forced=rest)

    def _opened(self, opened: int, token_id: int) -> int:
        begin = self._tables.begin
        if opened < 0:
            return -1
        if self._tables.begin_special is not None:
            return len(begin) if token_id == self._tables.begin_special else -1
        data = self._visible(token_id)
        return opened + len(data) if data and begin.startswith(data, opened) else -1

    def _visible(self, token_id: int) -> bytes:
        return self._tables.visible[token_id] if token_id < len(self._tables.visible) else b""

    def _text(self, ids: Iterable[int]) -> bytes:
        return b"".join(map(self._visible, ids))


def _last(ids: Sequence[int], part: tuple[int, ...]) -> int:
    """Where the last occurrence of `part` in `ids` ends; 0: there is none."""
    for end in range(len(ids), len(part) - 1, -1):
        if ids[end - 1] == part[-1] and tuple(ids[end - len(part) : end]) == part:
            return end
    return 0


class ThinkingGates:
    """Makes the gates of one tokenizer; keeps the tables of the marks used last. Safe in several threads."""

    def __init__(
        self,
        visible: Sequence[bytes],
        special_ids: Iterable[int],
        eos_ids: Iterable[int],
        vocab_size: int,
        encode: Callable[[str], list[int]],
    ) -> None:
        specials, ends = frozenset(special_ids), frozenset(eos_ids)

        @lru_cache(maxsize=16)
        def tables(marks: tuple[str, str]) -> MarkTables:
            return MarkTables(marks, visible, specials, ends, vocab_size, encode)

        self._tables = tables

    def make(
        self, marks: tuple[str, str], budget: int | None, prompt_ids: Sequence[int], inner: GrammarCursor | None
    ) -> ThinkingGate:
        """A gate at the begin of a request's output."""
        return ThinkingGate(self._tables(marks), prompt_ids, budget, inner)
