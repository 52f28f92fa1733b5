"""The complete parts of values while their text still comes, for a plain loop and for an event loop."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

from sglang_lite.errors import RequestError, TruncatedError, ValidationError
from sglang_lite.lang.futures import OpFuture, Signal
from sglang_lite.lang.typed.attempts import answer_of
from sglang_lite.lang.typed.forms import AnyForm, MismatchError
from sglang_lite.lang.typed.parts import TypedParts
from sglang_lite.request_tree import GenOp


class ValueCursor:
    """A reader's place in the text of one gen; never waits.

    A value of a type without parts (no JSON array or object) is its own only part. `error` is known once `is_over`.

    Raises:
        RequestError: a gen of several samples, or an op that is no gen.
    """

    def __init__(self, future: OpFuture) -> None:
        if not isinstance(future.op, GenOp) or future.op.params.n > 1:
            raise RequestError("reading the parts of a value: it is no value of one gen; read it whole: s[name]")
        self._future = future
        self._op = future.op
        typed = None if future.attempts is None else future.attempts.typed
        self._parts: TypedParts | None = TypedParts(AnyForm() if typed is None else typed.form)
        self._num_pieces = 0
        self._text = ""
        self._num_fed = 0
        self.is_over = False
        self.error: Exception | None = None

    def has_news(self) -> bool:
        """True when `read` will not be in vain; the caller holds the signal's lock."""
        return self._future.has_ended or len(self._future.pieces) > self._num_pieces

    def read(self, signal: Signal) -> list[Any]:
        """The parts that became complete since the last call."""
        with signal.changed:
            new = self._future.pieces[self._num_pieces :]
            self._num_pieces += len(new)
            done, self.error, self.is_over = self._future.done, self._future.error, self._future.has_ended
        self._text += "".join(new)
        if done is not None:
            self._text = done.value if isinstance(done.value, str) else done.text
        elif isinstance(self.error, TruncatedError | ValidationError) and not self._op.hold:
            self._text = self.error.text if self._op.params.thinking is None else self._text
        found = self._feed(is_whole=done is not None)
        if done is not None and not self._answer(is_whole=True).lstrip().startswith(("[", "{")):
            attempts = self._future.attempts
            found = [done.value if attempts is None else attempts.value]
        return found

    def _answer(self, *, is_whole: bool) -> str:
        """What has come of the answer: nothing while the model may still think."""
        thinking = self._op.params.thinking
        if thinking is not None and not is_whole and thinking[1] not in self._text:
            return ""
        return answer_of(self._text, self._op.params)

    def _feed(self, *, is_whole: bool) -> list[Any]:
        answer = self._answer(is_whole=is_whole)
        new, self._num_fed = answer[self._num_fed :], len(answer)
        found: list[Any] = []
        if self._parts is not None:
            try:
                found.extend(self._parts.feed(new))
            except MismatchError:  # the whole value fails at its end, and says all that is wrong
                self._parts = None
        return found


def iterate_values(signal: Signal, ops: Sequence[OpFuture]) -> Iterator[Any]:
    """The parts of the values of gens, one after the other; waits for them.

    Raises:
        Exception: the error of an op, after the parts that came before it.
    """
    for cursor in [ValueCursor(future) for future in ops]:
        while not cursor.is_over:
            signal.wait_for(cursor.has_news)
            yield from cursor.read(signal)
        if cursor.error is not None:
            raise cursor.error


async def iterate_values_async(signal: Signal, ops: Sequence[OpFuture]) -> AsyncIterator[Any]:
    """As `iterate_values`; never blocks the event loop."""
    for cursor in [ValueCursor(future) for future in ops]:
        while not cursor.is_over:
            await signal.wait_for_async(cursor.has_news)
            for part in cursor.read(signal):
                yield part
        if cursor.error is not None:
            raise cursor.error
