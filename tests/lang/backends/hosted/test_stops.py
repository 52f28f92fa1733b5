"""Stops that an API does not take end its texts here, whole and in pieces alike."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sglang_lite.lang.backends.hosted.stops import StopCut, first_stop, split_stops

letters = st.text("ab\n", max_size=12)


@given(st.lists(letters, max_size=6), st.lists(st.text("ab\n", min_size=1, max_size=3), max_size=3))
def test_pieces_give_what_the_whole_gives(pieces: list[str], stops: list[str]) -> None:
    out: list[str] = []
    cut = StopCut(tuple(stops), out.append)
    for piece in pieces:
        cut.feed(piece)
    cut.end()
    whole = "".join(pieces)
    assert "".join(out) == whole[: first_stop(whole, tuple(stops))]
    assert "" not in out


def test_what_may_begin_a_stop_is_held_back() -> None:
    out: list[str] = []
    cut = StopCut(("END",), out.append)
    cut.feed("aE")
    assert out == ["a"]
    cut.feed("Nb")
    assert out == ["a", "ENb"]


def test_stops_are_shared_between_the_api_and_us() -> None:
    stops = ("a", "\n", "b", "c")
    assert split_stops(stops, 2, takes_blank=True) == (("a", "\n"), ("b", "c"))
    assert split_stops(stops, 9, takes_blank=False) == (("a", "b", "c"), ("\n",))
