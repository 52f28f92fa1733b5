"""Text of a branch as it comes, for a plain loop and for an event loop; both read the same cursor."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterator
from typing import Any, TypeAlias

from sglang_lite.lang.branch import Branch, Item
from sglang_lite.lang.futures import OpFuture
from sglang_lite.lang.races import ListsValue, RaceValue
from sglang_lite.lang.reasoning import ThinkingPart, ThinkingValue
from sglang_lite.lang.values import GatherValue, PlainValue, Value

Piece: TypeAlias = tuple[str, dict[str, Any]]
"""Text, and the `meta_info` of its op once that is done (until then an empty dict)."""


Part: TypeAlias = OpFuture | ThinkingPart | RaceValue | str
"""Something that has text, now or later. Of a race it is known once that is decided."""


class TextCursor:
    """A reader's place in the text of a branch, or in all occurrences of one name on it; never waits.

    Args:
        only: the name; None: the whole text.
        is_live: go on until the program has ended; else to what is appended by now.
    """

    def __init__(self, branch: Branch, only: str | None, is_live: bool) -> None:
        self._branch = branch
        self._only = only
        self._is_live = is_live
        self._next_item = 0
        self._queue: deque[Part] = deque()
        self._num_pieces = 0
        self._sent = 0
        self._was_found = False
        self._error: Exception | None = None

    def poll(self) -> tuple[list[Piece], bool]:
        """The pieces that came since the last call, and whether these were the last ones.

        Raises:
            Exception: a part of the text failed, or the program did, unless the run keeps errors on the state.
            KeyError: there was no such name until the end.
        """
        session = self._branch.session
        pieces: list[Piece] = []
        with session.signal.changed:
            is_over = self._advance(pieces)
            if is_over and self._error is None:
                self._error = self._end_error()
        if self._error is None:
            return pieces, is_over
        if not pieces and session.options.on_error == "raise":
            raise self._error
        # In `raise` mode what came before the error is handed out first; the next call raises.
        return pieces, session.options.on_error == "state"

    def _advance(self, pieces: list[Piece]) -> bool:
        """Take what there is; True when nothing more can come."""
        is_over = not self._is_live or self._branch.session.body_has_ended
        while self._error is None:
            if self._queue:
                if isinstance(race := self._queue[0], RaceValue):
                    if not race.join.has_ended:
                        return False
                    self._queue.popleft()
                    self._error = race.join.error
                    won = race.won() if self._error is None else []
                    self._queue.extendleft(reversed([part for value in won for part in _parts(value)]))
                    continue
                if not self._read(self._queue[0], pieces):
                    return False
                self._queue.popleft()
                continue
            if self._next_item >= self._branch.position:
                return is_over
            place, self._next_item = self._next_item, self._next_item + 1
            for item in self._branch.items(place, place + 1, with_rewound=self._only is not None):
                self._enter(item)
        return True

    def _enter(self, item: Item) -> None:
        if self._only is None:
            shown = item.shown or item.future
            self._queue.extend([shown] if shown is not None else [])
        elif item.name == self._only and item.value is not None:
            self._was_found = True
            self._queue.extend(_parts(item.value))

    def _read(self, part: OpFuture | ThinkingPart | str, pieces: list[Piece]) -> bool:
        """Take what is new of one part; True when it is complete or has failed."""
        if isinstance(part, str):
            pieces.append((part, {}))
            return True
        if (done := part.done) is not None:
            pieces.append((done.text[self._sent :], dict(done.meta)))
            self._num_pieces = self._sent = 0
            return True
        new = "".join(part.pieces[self._num_pieces :])
        self._num_pieces, self._sent = len(part.pieces), self._sent + len(new)
        if new:
            pieces.append((new, {}))
        self._error = part.error
        return part.error is not None

    def _end_error(self) -> Exception | None:
        session = self._branch.session
        if self._branch.number == 0 and self._is_live and session.first_error is not None:
            return session.first_error
        if self._only is not None and not self._was_found:
            return KeyError(self._only)
        return None


def _parts(value: Value) -> list[Part]:
    """What the text of a value is made of, in order."""
    if isinstance(value, GatherValue):
        return [part for inner in value.parts for part in _parts(inner)]
    if isinstance(value, PlainValue):
        plain = value.get()
        return [plain] if isinstance(plain, str) else []
    if isinstance(value, ThinkingValue):
        return [value.part()]
    if isinstance(value, RaceValue):
        return [value]
    if isinstance(value, ListsValue):
        return [part for inner in value.lists for part in _parts(inner)]
    return list(value.ops())


def _join(pieces: list[Piece]) -> list[Piece]:
    return [("".join(text for text, _ in pieces), {})]


def iterate(branch: Branch, only: str | None, is_live: bool) -> Iterator[str]:
    """The pieces of text as they come; waits for them. A whole text that is not live is one piece.

    Errors as `TextCursor.poll`.
    """
    cursor = TextCursor(branch, only, is_live)
    came: list[tuple[list[Piece], bool]] = []
    kept: list[Piece] = []

    def has_news() -> bool:
        pieces, is_over = cursor.poll()
        if pieces or is_over:
            came.append((pieces, is_over))
        return bool(came)

    is_over = False
    while not is_over:
        branch.session.signal.wait_for(has_news)
        pieces, is_over = came.pop()
        kept.extend(pieces)
        if is_live or only is not None or is_over:
            yield from (text for text, _ in (kept if is_live or only is not None else _join(kept)) if text)
            kept.clear()


async def iterate_async(branch: Branch, only: str | None, is_live: bool) -> AsyncIterator[Piece]:
    """The pieces of text as they come, each with the `meta_info` known by then; never blocks the event loop.

    An op without visible text of its own yields one empty piece that carries its `meta_info`.
    """
    cursor = TextCursor(branch, only, is_live)
    kept: list[Piece] = []
    loop = asyncio.get_running_loop()
    changed = asyncio.Event()

    def wake() -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(changed.set)

    stop = branch.session.signal.listen(wake)
    try:
        branch.session.flush()
        while True:
            changed.clear()
            pieces, is_over = cursor.poll()
            kept.extend(pieces)
            if is_live or only is not None or is_over:
                for piece in kept if is_live or only is not None else _join(kept):
                    yield piece
                kept.clear()
            if is_over:
                return
            if not pieces:
                await changed.wait()
    finally:
        stop()
