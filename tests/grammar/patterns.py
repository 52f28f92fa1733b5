"""Hypothesis strategies for regular expressions that `re` and the grammar package read alike."""

from __future__ import annotations

from hypothesis import strategies as st

# Few characters, so that random texts hit random patterns; among them letters with odd case partners and long UTF-8 forms.
CHARACTERS = "abAB01_- .\n\té\u0130sſKk猫狗😀😨\u2e7f"
_LITERAL = st.sampled_from([c if c.isalnum() or c == "_" else f"\\{c}" for c in CHARACTERS])
_ESCAPE = st.sampled_from(
    [r"\d", r"\w", r"\s", r"\D", r"\W", r"\S", ".", r"\x61", r"\u00e9", r"\U0001F600", r"\n", r"\t", r"\060"]
)
_RANGE = st.tuples(st.sampled_from(CHARACTERS), st.sampled_from(CHARACTERS)).map(
    lambda pair: "-".join(f"\\U{ord(char):08x}" for char in sorted(pair))
)
_MEMBER = st.one_of(_LITERAL, _RANGE, st.sampled_from([r"\d", r"\w", r"\s", r"\D", r"\W", r"\S", r"\x00", "b"]))
_CLASS = st.tuples(st.sampled_from(["", "^"]), st.lists(_MEMBER, min_size=1, max_size=3)).map(
    lambda parts: f"[{parts[0]}{''.join(parts[1])}]"
)
_QUANTIFIER = st.sampled_from(["*", "+", "?", "*?", "+?", "??", "{2}", "{0}", "{1,}", "{,2}", "{1,3}", "{0,2}?"])
_GROUP = st.sampled_from(["(", "(?:", "(?i:", "(?s:", "(?a:", "(?i-s:"])
# `\Z` stands for `$`, which `re` also takes as true before a last line feed.
_EDGE = st.sampled_from(["^", r"\A", r"\Z"])


def _compose(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    group = st.tuples(_GROUP, inner).map(lambda parts: f"{parts[0]}{parts[1]})")
    return st.one_of(
        st.lists(st.one_of(inner, group), min_size=1, max_size=3).map("".join),
        st.lists(inner, min_size=2, max_size=3).map("|".join).map(lambda options: f"(?:{options})"),
        st.tuples(st.sampled_from(["(|", "(?:a|"]), inner).map(lambda parts: f"{parts[0]}{parts[1]})"),
        st.tuples(group, _QUANTIFIER).map("".join),
    )


patterns: st.SearchStrategy[str] = st.recursive(
    st.one_of(
        _LITERAL, _ESCAPE, _CLASS, _EDGE, st.tuples(st.one_of(_LITERAL, _ESCAPE, _CLASS), _QUANTIFIER).map("".join)
    ),
    _compose,
    max_leaves=6,
)
texts: st.SearchStrategy[str] = st.text(alphabet=CHARACTERS, max_size=6)
