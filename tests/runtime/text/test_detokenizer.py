"""TextStream: byte-exact text, shown piece by piece."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from sglang_lite.runtime.text.detokenizer import TextStream

VISIBLE = [bytes([i]) for i in range(256)]
MIXED = "ok \U0001f469\u200d\U0001f4bb \u6b6a \u0e2d\u0e35\u0e01 \u00e9!"
utf8ish = st.one_of(st.binary(max_size=40), st.text(max_size=20).map(lambda t: t.encode("utf-8", "surrogatepass")))


def pieces_of(data: bytes, cuts: list[int]) -> list[bytes]:
    ends = sorted({min(cut, len(data)) for cut in cuts} | {0, len(data)})
    return [data[a:b] for a, b in itertools.pairwise(ends)]


@given(
    data=utf8ish,
    cuts=st.lists(st.integers(0, 60), max_size=8),
    holds=st.lists(st.integers(0, 9), min_size=12, max_size=12),
)
def test_joined_pieces_are_the_decoded_bytes_wherever_they_are_cut_and_held(
    data: bytes, cuts: list[int], holds: list[int]
) -> None:
    stream = TextStream(VISIBLE)
    text = ""
    for piece, hold in zip(pieces_of(data, cuts), holds, strict=False):
        stream.push(piece)
        text += stream.text_upto(max(0, stream.total - hold))
        assert data[: stream.shown].decode("utf-8", "replace") == text
    text += stream.finish()
    assert text == data.decode("utf-8", "replace")


@given(text=st.text(max_size=30), end=st.integers(0, 200))
def test_a_stream_of_valid_text_never_shows_a_replacement_character(text: str, end: int) -> None:
    data = text.replace("\ufffd", "").encode()
    stream = TextStream(VISIBLE)
    shown = []
    for byte in data:
        stream.feed([byte])
        shown.append(stream.text_upto(stream.total))
    assert "\ufffd" not in "".join(shown)
    assert "".join(shown) == text.replace("\ufffd", "")
    assert stream.finish() == ""


@given(data=utf8ish, upto=st.integers(0, 60), end=st.integers(0, 60))
def test_finish_cuts_at_the_given_byte_and_drops_the_rest(data: bytes, upto: int, end: int) -> None:
    """A stop string ends the text at a byte; what was shown before is never taken back."""
    end = min(end, len(data))
    stream = TextStream(VISIBLE)
    stream.push(data)
    text = stream.text_upto(min(upto, end))
    assert text + stream.finish(end) == data[:end].decode("utf-8", "replace")
    assert stream.total == stream.shown


def test_a_cut_emoji_is_held_until_the_end_and_then_replaced() -> None:
    data = MIXED.encode()
    stream = TextStream(VISIBLE)
    stream.push(data[:5])
    assert stream.text_upto(5) == "ok "
    assert stream.finish() == "\ufffd"


def test_text_never_goes_backwards() -> None:
    stream = TextStream(VISIBLE)
    stream.push(b"alpha beta")
    assert stream.text_upto(6) == "alpha "
    assert stream.text_upto(3) == ""
    assert stream.finish(2) == ""
    assert stream.shown == 6


def test_tokens_without_visible_bytes_show_nothing() -> None:
    stream = TextStream([b"", b"a"])
    stream.feed([1, 0, 1])
    assert stream.finish() == "aa"
