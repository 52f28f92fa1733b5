"""Languages of characters with a bound on the length, without a product of automata wherever the form allows; knows no JSON."""

from __future__ import annotations

from sglang_lite.grammar.json_schema.languages import ANY_CHAR, intersection, lengths
from sglang_lite.grammar.syntax import (
    NEVER,
    Alternate,
    Both,
    Chars,
    Concat,
    Node,
    Repeat,
    Without,
    alternate,
    concat,
    repeat,
)

_MAX_PRODUCT = 100_000  # characters of the language times the bound
_NESTED = (8, 24)  # copies of a repeat around, and inside, another one without an upper bound


def length_language(low: int, high: int | None) -> Node:
    """All texts of `low` to `high` characters."""
    return NEVER if high is not None and high < low else repeat(ANY_CHAR, low, high)


def bounded(node: Node, low: int, high: int | None, *, exact: bool = True) -> Node:
    """The texts of `node` that have `low` to `high` characters.

    Unless `exact`, a large product with an upper bound is avoided by fewer copies in the repeats of `node`: a part of the language.
    """
    if high is not None and high < low:
        return NEVER
    direct = _stretched(node, low, high)
    if direct is not None:
        return direct
    least, most = lengths(node)
    if least >= low and (high is None or (most is not None and most <= high)):
        return node
    if not exact and high is not None and _weight(node) * high > _MAX_PRODUCT:
        thinned = _thinned(node, high)
        if thinned is not None:
            node, high = thinned, None
            if least >= low:
                return node
    return intersection([node, length_language(low, high)])


def _stretched(node: Node, low: int, high: int | None) -> Node | None:
    """The exact answer where one repeat of single characters alone decides the length; None elsewhere."""
    parts = node.parts if isinstance(node, Concat) else (node,)
    fixed = 0
    place: int | None = None
    for at, part in enumerate(parts):
        least, most = lengths(part)
        if least == most:
            fixed += least
        elif place is None and isinstance(part, Repeat) and isinstance(part.item, Chars):
            place = at
        else:
            return None
    if place is None:
        return node if low <= fixed and (high is None or fixed <= high) else NEVER
    stretch = parts[place]
    assert isinstance(stretch, Repeat), "the part that was chosen is a repeat"
    highs = [bound for bound in (stretch.high, None if high is None else high - fixed) if bound is not None]
    least, most = max(stretch.low, low - fixed), min(highs, default=None)
    if most is not None and least > most:
        return NEVER
    return concat([*parts[:place], Repeat(stretch.item, least, most), *parts[place + 1 :]])


def _weight(node: Node) -> int:
    """About how many states an automaton of `node` has."""
    match node:
        case Concat(parts) | Alternate(parts):
            return sum(map(_weight, parts))
        case Repeat(item, low, high):
            return _weight(item) * max(1, low if high is None else high)
        case Both(left, right) | Without(left, right):
            return _weight(left) * _weight(right)
        case Chars():
            return 1
        case _:
            return lengths(node)[1] or 1


def _thinned(node: Node, high: int) -> Node | None:
    """A part of `node` without texts of more than `high` characters, by bounds on its endless repeats; None if there is none."""
    best: Node | None = None
    low, top = 0, high
    while low <= top:
        copies = (low + top) // 2
        candidate = _capped(node, copies, inside=False)
        most = lengths(candidate)[1]
        if most is not None and most <= high:
            best, low = candidate, copies + 1
        else:
            top = copies - 1
    return best


def _capped(node: Node, copies: int, *, inside: bool) -> Node:
    match node:
        case Concat(parts):
            return concat(_capped(part, copies, inside=inside) for part in parts)
        case Alternate(options):
            return alternate(_capped(option, copies, inside=inside) for option in options)
        case Repeat(item, low, high):
            around = high is None and lengths(item)[1] is None
            bound = min(copies, _NESTED[0] if around else _NESTED[1] if inside else copies)
            return repeat(
                _capped(item, copies, inside=inside or high is None), low, high if high is not None else max(low, bound)
            )
        case Both(left, right):
            return Both(_capped(left, copies, inside=inside), right)
        case Without(left, right):
            return Without(_capped(left, copies, inside=inside), right)
        case _:
            return node
