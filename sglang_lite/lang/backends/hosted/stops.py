"""Ends texts at stop strings that an API does not take, and finds where written-ahead text ends."""

from __future__ import annotations

from collections.abc import Callable


def split_stops(
    stops: tuple[str, ...], num_taken: int, *, takes_blank: bool
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The stop texts that the API gets, and those that are left to `StopCut`."""
    fit = [stop for stop in stops if takes_blank or stop.strip()]
    sent = tuple(fit[:num_taken])
    return sent, tuple(stop for stop in stops if stop not in sent)


def first_stop(text: str, stops: tuple[str, ...]) -> int | None:
    """Where the earliest of `stops` begins in `text`."""
    places = [place for stop in stops if (place := text.find(stop)) >= 0]
    return min(places, default=None)


class StopCut:
    """Hands on a text that comes in pieces, up to the first of `stops`; what may be the beginning of one is held back."""

    def __init__(self, stops: tuple[str, ...], hand_on: Callable[[str], None]) -> None:
        self._stops = stops
        self._hand_on = hand_on
        self._held = ""
        self._is_over = False

    def feed(self, piece: str) -> None:
        """Take the next piece."""
        if self._is_over:
            return
        text = self._held + piece
        place = first_stop(text, self._stops)
        if place is not None:
            self._is_over = True
            self._send(text[:place])
            return
        kept = max((n for stop in self._stops for n in range(1, len(stop)) if text.endswith(stop[:n])), default=0)
        self._held = text[len(text) - kept :]
        self._send(text[: len(text) - kept])

    def end(self) -> None:
        """No more pieces come."""
        if not self._is_over:
            self._send(self._held)
            self._held = ""

    def _send(self, text: str) -> None:
        if text:
            self._hand_on(text)
