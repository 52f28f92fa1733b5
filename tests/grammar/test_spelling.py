from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from sglang_lite.grammar.charset import ANY, NOTHING, CharSet
from sglang_lite.grammar.nfa import ANY_TEXT, ByteDfa
from sglang_lite.grammar.slice_sets import slice_sets
from sglang_lite.grammar.spelling import BYTES, char_dfa, choices_dfa, literal_dfa
from sglang_lite.grammar.unicode_sets import shorthand


def reads(dfa: ByteDfa, data: bytes) -> bool:
    state = 0
    for at, byte in enumerate(data):
        row = dfa.edges[dfa.offsets[state] : dfa.offsets[state + 1]]
        hits = row[(row[:, 0] <= byte) & (byte <= row[:, 1])]
        if not len(hits):
            return False
        assert len(hits) == 1
        assert (hits[0, 2] < 0) == (hits[0, 3] == 1)
        state = int(hits[0, 2])
        if state < 0:
            return at == len(data) - 1
    return False


def test_exactly_the_characters_of_a_set_are_read() -> None:
    words = char_dfa(shorthand("w", ascii_only=False))
    assert words is not None
    for char in "aZ_09é猫😀 -\n\u2028ſ٣":
        assert reads(words, char.encode()) == (re.fullmatch(r"\w", char) is not None)
        assert not reads(words, char.encode()[:-1])


def test_rows_are_in_ascending_order_and_do_not_overlap() -> None:
    for charset in (ANY, *slice_sets()):
        dfa = char_dfa(charset)
        assert dfa is not None
        for begin, end in zip(dfa.offsets[:-1].tolist(), dfa.offsets[1:].tolist(), strict=True):
            row = dfa.edges[begin:end]
            assert (row[1:, 0] > row[:-1, 1]).all()


def test_a_set_without_encodable_characters_has_no_spelling() -> None:
    assert char_dfa(NOTHING) is None
    assert char_dfa(CharSet(((0xD800, 0xDFFF),))) is None


def test_a_spelling_is_made_once_and_says_what_it_covers() -> None:
    assert char_dfa(ANY) is char_dfa(CharSet(((0, 0x10FFFF),)))
    full = char_dfa(ANY)
    assert full is not None
    assert full.covers == (1 << len(slice_sets())) - 1
    assert not full.covers & ANY_TEXT


def test_single_bytes() -> None:
    assert all(reads(BYTES[byte], bytes([byte])) and not reads(BYTES[byte], bytes([byte ^ 1])) for byte in range(256))


def test_a_literal_reads_exactly_itself() -> None:
    for data in (b"a", b"ab", "猫é".encode(), b"\x00\xff"):
        dfa = literal_dfa(data)
        assert dfa is literal_dfa(data)
        assert reads(dfa, data)
        assert not any(reads(dfa, other) for other in (data + b"a", data[:-1], b"b" + data[1:]))


@given(st.sets(st.binary(max_size=4), min_size=2, max_size=12), st.binary(max_size=4))
def test_choices_read_exactly_their_texts(texts: set[bytes], other: bytes) -> None:
    """A text may begin with another one: then a state both ends and goes on."""
    dfa = choices_dfa(tuple(sorted(texts)))
    for text in (*texts, other):
        state, accepted = 0, dfa.accepts_empty
        for byte in text:
            row = dfa.edges[dfa.offsets[state] : dfa.offsets[state + 1]] if state >= 0 else dfa.edges[:0]
            hits = row[row[:, 0] == byte]
            state, accepted = (int(hits[0, 2]), bool(hits[0, 3])) if len(hits) else (-1, False)
        assert accepted == (text in texts)


def test_choices_share_their_common_beginnings() -> None:
    assert len(choices_dfa((b"", b"alpha", b"alpha one", b"alpha two")).offsets) - 1 == len(b"alpha onetwo") - 1
