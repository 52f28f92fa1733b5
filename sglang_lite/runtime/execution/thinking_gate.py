"""The thinking of a model before its answer: free text up to an end mark, within a budget, then the constraint; knows no request.

A gate is a `GrammarCursor` around another one, or around nothing (a budget alone). The end mark is found by its bytes, however it
is cut into tokens, or by its id if it is a special token. No token may reach beyond the end of the mark: the constraint begins
with a token of its own. Where the prompt has not opened the thinking, the model chooses: its text begins with the begin mark,
or it is the answer, held from its first token on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from copy import copy
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
        phase: `opening`: nothing but a part of the begin mark is there, and it may still be the answer; `forced`: the tokens
            `forced` come next, then the answer; `thinking`: any text.
        matched: bytes of the end mark that the text so far ends with.
        opened: bytes of the begin mark that are there while it opens.
        num_thought: tokens of thinking, the begin mark's not counted.
        forced: tokens to come.

    """

    phase: Literal["opening", "thinking", "forced", "answer"]
    matched: int = 0
    opened: int = 0
    num_thought: int = 0
    forced: tuple[int, ...] = ()


class MarkTables:
    """One pair of marks over one vocabulary; immutable, shared by all gates.

    Args:
        marks: begin and end of the thinking, as text; an empty begin: the text begins within it.
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
        self._openings = self._find_openings(known)

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
        if token_id == self.end_special:
            return len(self.end)
        return self.follow_bytes(matched, self.data_of(token_id))

    def open(self, opened: int, token_id: int) -> int | None:
        """How much of the begin mark is there after a token, `opened` bytes having been; None: the token is none of it.

        More than all of it: the token goes on behind the mark by so many bytes.
        """
        if self.begin_special is not None:
            return len(self.begin) if token_id == self.begin_special and not opened else None
        text = self.begin[:opened] + self.data_of(token_id)
        if len(text) == opened or not (text.startswith(self.begin) or self.begin.startswith(text)):
            return None
        if self.follow_bytes(0, text[len(self.begin) :]) in (None, len(self.end)):
            return None  # it would open and close at once
        return len(text)

    def opening_words(self, opened: int) -> Words:
        """The tokens that go on with the begin mark."""
        return self._openings[opened]

    def data_of(self, token_id: int) -> bytes:
        """The bytes that a token adds to the text."""
        return self.visible[token_id] if token_id < len(self.visible) else b""

    def follow_bytes(self, matched: int, data: bytes) -> int | None:
        """As `follow`, for bytes; a special end mark is in none of them."""
        if self.end_special is not None:
            return 0
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

    def _find_openings(self, known: Sequence[int]) -> list[Words]:
        if self.begin_special is not None:
            return [self.words_of([self.begin_special])]
        by_byte: dict[int, list[int]] = {byte: [] for byte in self.begin}
        for i in known:
            if (data := self.data_of(i)) and data[0] in by_byte:
                by_byte[data[0]].append(i)
        return [
            self.words_of(i for i in by_byte[byte] if self.open(opened, i) is not None)
            for opened, byte in enumerate(self.begin)
        ]

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
        self._tail = tuple(prompt_ids[-_CONTEXT:])
        self._recent = list(self._tail)
        self._num_bytes = 0
        self._place = self._begin(prompt_ids)
        self._direct = inner.fork() if inner is not None and self._place.phase == "opening" else None
        """While the mark opens: the constraint, had the answer begun; None: the text so far cannot be the answer's."""

    def accept_token(self, token_id: int) -> bool:
        """See `GrammarCursor`."""
        match self._place.phase:
            case "answer":
                return self._inner is None or self._inner.accept_token(token_id)
            case "opening":
                return self._accept_opening(token_id)
            case phase if token_id in self._tables.eos_ids:
                return self._inner is None and phase == "thinking"
            case "forced":
                if token_id != self._place.forced[0]:
                    return False
                rest = self._place.forced[1:]
                self._place = self._place._replace(forced=rest) if rest else _Place("answer")
            case "thinking":
                matched = self._tables.follow(self._place.matched, token_id)
                if matched is None:
                    return False
                self._think(matched)
        self._pass(token_id)
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
        elif place.phase == "answer":
            self._inner.fill_bitmask(bitmask, index)
        elif self._direct is None:
            bitmask[index] = tables.opening_words(place.opened)
        else:
            self._direct.fill_bitmask(bitmask, index)
            bitmask[index] |= tables.opening_words(place.opened)

    def fork(self) -> ThinkingGate:
        """See `GrammarCursor`."""
        twin = copy(self)
        twin._inner = None if self._inner is None else self._inner.fork()
        twin._direct = None if self._direct is None else self._direct.fork()
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
        opened = _last(prompt_ids, tables.begin_ids) if tables.begin_ids else 0
        closed = _last(prompt_ids, tables.end_ids)
        if closed > opened and not self._text(prompt_ids[closed:]).strip():
            return _Place("answer")
        is_inside = opened > closed or not tables.begin_ids
        if self._budget != 0:
            return _Place("thinking" if is_inside else "opening")
        block = () if is_inside else (*tables.begin_ids, *tables.encode(EMPTY_THOUGHT))
        return _Place("forced", forced=(*block, *tables.end_ids))

    def _accept_opening(self, token_id: int) -> bool:
        """A token that belongs to the begin mark, or to an answer without thinking, or, for now, to either."""
        tables = self._tables
        opened = tables.open(self._place.opened, token_id)
        if self._inner is None:
            may_answer = opened is None
            is_space = not tables.data_of(token_id).strip() and token_id not in tables.eos_ids
            if opened is None and is_space and not self._place.opened:  # either may begin with it
                self._pass(token_id)
                return True
        else:
            may_answer = self._direct is not None and self._direct.accept_token(token_id)
        if opened is None:
            if may_answer:
                self._place, self._inner, self._direct = _Place("answer"), self._direct, None
                self._recent, self._num_bytes = list(self._tail), 0
            return may_answer
        if not may_answer:
            self._direct = None
        if opened < len(tables.begin):
            self._place = self._place._replace(opened=opened)
        else:
            self._direct, self._place = None, _Place("thinking")
            if opened > len(tables.begin):
                self._think(tables.follow_bytes(0, tables.data_of(token_id)[len(tables.begin) - opened :]))
        self._pass(token_id)
        return True

    def _think(self, matched: int | None) -> None:
        """After a token of thinking, with `matched` bytes of the end mark; the last one of all of it ends the thinking."""
        tables, place = self._tables, self._place
        assert matched is not None, "a token that was let through reaches beyond the end mark"
        if matched == len(tables.end):
            self._place = _Place("answer")
            return
        self._place = place = place._replace(matched=matched, num_thought=place.num_thought + 1)
        if self._budget is not None and place.num_thought >= self._budget:
            rest = tables.end_ids if not matched else tuple(tables.encode(tables.end[matched:].decode()))
            self._place = _Place("forced", forced=rest)

    def _pass(self, token_id: int) -> None:
        """A token that stands before the answer was taken."""
        self._recent = [*self._recent, token_id][-_CONTEXT:]
        self._num_bytes += len(self._tables.data_of(token_id))

    def _text(self, ids: Iterable[int]) -> bytes:
        return b"".join(map(self._tables.data_of, ids))


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
