from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sglang_lite.grammar.charset import ANY, ENTRY, EXIT, MAX_CODE_POINT, NOTHING, CharSet, utf8_fragment

EDGES = [
    0,
    1,
    0x7F,
    0x80,
    0x7FF,
    0x800,
    0xFFF,
    0x1000,
    0xD7FF,
    0xD800,
    0xDFFF,
    0xE000,
    0xFFFF,
    0x10000,
    0x3FFFF,
    0x40000,
    0x10FFFF,
]
points = st.one_of(st.sampled_from(EDGES), st.integers(0, MAX_CODE_POINT))
ranges = st.tuples(points, points).map(lambda pair: (min(pair), max(pair)))
charsets = st.lists(ranges, max_size=4).map(CharSet.of)


def spelled(charset: CharSet, data: bytes) -> bool:
    """Whether the byte automaton of `charset` reads exactly `data`; it must be deterministic."""
    fragment = utf8_fragment(charset)
    if fragment is None:
        return False
    state = ENTRY
    for byte in data:
        targets = [target for source, low, high, target in fragment.edges if source == state and low <= byte <= high]
        assert len(targets) <= 1
        if not targets:
            return False
        state = targets[0]
    return state == EXIT


@given(charsets, points)
def test_the_byte_automaton_spells_exactly_the_encodable_members(charset: CharSet, code: int) -> None:
    probes = {code, *(end for span in charset.ranges for end in span)}
    probes |= {near for probe in probes for near in (probe - 1, probe + 1) if 0 <= near <= MAX_CODE_POINT}
    for probe in probes - set(range(0xD800, 0xE000)):
        assert spelled(charset, chr(probe).encode()) == (probe in charset)


@given(charsets, st.binary(min_size=1, max_size=4))
def test_bytes_that_are_no_character_are_never_spelled(charset: CharSet, data: bytes) -> None:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        assert not spelled(charset, data)
    else:
        assert spelled(charset, data) == (len(text) == 1 and ord(text) in charset)


@given(charsets, charsets, points)
def test_set_operations_agree_with_membership(left: CharSet, right: CharSet, code: int) -> None:
    assert (code in left.union(right)) == (code in left or code in right)
    assert (code in left.negate()) == (code not in left)
    assert left.negate().negate() == left
    assert len(left) + len(left.negate()) == MAX_CODE_POINT + 1


def test_adjacent_ranges_merge() -> None:
    assert CharSet.of([(5, 7), (1, 2), (3, 4), (6, 9)]) == CharSet(((1, 9),))


def test_any_character_needs_few_edges() -> None:
    fragment = utf8_fragment(ANY)
    assert fragment is not None
    assert len(fragment.edges) <= 16


def test_a_set_of_surrogates_spells_nothing() -> None:
    assert utf8_fragment(CharSet(((0xD800, 0xDFFF),))) is None
    assert utf8_fragment(NOTHING) is None
