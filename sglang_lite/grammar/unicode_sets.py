"""The character classes of Python's `re`, read from the interpreter's own Unicode tables; no syntax here."""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from functools import cache, lru_cache

from sglang_lite.grammar.charset import MAX_CODE_POINT, NOTHING, CharSet

_ASCII = {"d": r"[0-9]", "s": r"[ \t\n\r\f\v]", "w": r"[A-Za-z0-9_]"}
_GROUPS = {"L": "ultmo", "M": "nce", "N": "dlo", "P": "cdseifo", "S": "mcko", "Z": "slp", "C": "cfson"}
_CATEGORIES = [group + kind for group, kinds in _GROUPS.items() for kind in kinds]
# No character above this plane has a case; tests compare the table with `re` over all code points.
_LAST_CASED = 0x1FFFF


@cache
def shorthand(letter: str, *, ascii_only: bool) -> CharSet:
    r"""The set of `\d`, `\s` or `\w` (`letter` in lower case), or of its complement (upper case), exactly as `re` has it."""
    if letter.isupper():
        return shorthand(letter.lower(), ascii_only=ascii_only).negate()
    pattern = _ASCII[letter] if ascii_only else f"\\{letter}"
    characters = "".join(map(chr, range(0x80))) if ascii_only else _all_characters()
    return CharSet.of((found.start(), found.end() - 1) for found in re.finditer(f"{pattern}+", characters))


def category(name: str) -> CharSet | None:
    """The characters of a general category (`Lu`) or of a group of them (`L`); None if there is no such category."""
    members = [one for one in _CATEGORIES if one == name or (len(name) == 1 and one[0] == name)]
    return NOTHING.union(*(_by_category()[one] for one in members)) if members else None


def fold_case(charset: CharSet, *, ascii_only: bool) -> CharSet:
    """`charset` and every character that `re.IGNORECASE` holds equal to one of its characters."""
    partners = _case_partners(ascii_only)
    if len(charset) < len(partners):
        cased = [code for low, high in charset.ranges for code in range(low, high + 1) if code in partners]
    else:
        cased = [code for code in partners if code in charset]
    return charset.union(CharSet.of((other, other) for code in cased for other in partners[code]))


@lru_cache(maxsize=1)
def _all_characters() -> str:
    """All code points in order, surrogates included, so that an index in the string is a code point."""
    return "".join(map(chr, range(MAX_CODE_POINT + 1)))


@cache
def _by_category() -> dict[str, CharSet]:
    spans: dict[str, list[tuple[int, int]]] = {name: [] for name in _CATEGORIES}
    begin, current = 0, unicodedata.category("\0")
    for code, name in enumerate(map(unicodedata.category, _all_characters())):
        if name != current:
            spans[current].append((begin, code - 1))
            begin, current = code, name
    spans[current].append((begin, MAX_CODE_POINT))
    return {name: CharSet.of(found) for name, found in spans.items()}


@cache
def _case_partners(ascii_only: bool) -> dict[int, tuple[int, ...]]:
    """Code point -> all code points equal to it without case; characters without a partner are absent.

    `re` compares simple lower-case forms, and holds lower-case forms equal that share their upper-case form (`s` and `ſ`).
    """
    groups: dict[str, list[int]] = defaultdict(list)
    for code in range(0x80 if ascii_only else _LAST_CASED + 1):
        # The first code point of a lower-case form is the simple lower case; only U+0130 has a longer form.
        groups[chr(code).lower()[0].upper()].append(code)
    return {code: tuple(group) for group in groups.values() if len(group) > 1 for code in group}
