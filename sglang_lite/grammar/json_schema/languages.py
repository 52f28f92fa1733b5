"""Decisions on small regular languages of characters by derivatives: membership, emptiness, lengths; knows no JSON.

Source: Brzozowski, Derivatives of Regular Expressions (1964). Literal bytes stand for the characters they spell in UTF-8.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from sglang_lite.grammar.charset import ANY, MAX_CODE_POINT, CharSet
from sglang_lite.grammar.errors import UnsupportedGrammarError
from sglang_lite.grammar.syntax import (
    EMPTY,
    NEVER,
    Alternate,
    Both,
    Bytes,
    Chars,
    Choices,
    Concat,
    Node,
    Repeat,
    Without,
    alternate,
    repeat,
)

ANY_CHAR = Chars(ANY)
ANY_TEXT = Repeat(ANY_CHAR, 0, None)
_EMPTINESS_STEPS = 400  # derivatives tried before the answer is "not known to be empty"


def matches(node: Node, text: str) -> bool:
    """Whether `text` as a whole is in the language."""
    for char in text:
        node = _derive(node, ord(char))
        if node == NEVER:
            return False
    return _nullable(node)


def union(options: Iterable[Node]) -> Node:
    """The union of any number of languages."""
    parts: dict[Node, None] = {}
    for option in options:
        for part in option.options if isinstance(option, Alternate) else (option,):
            if part != NEVER:
                parts[part] = None
    if not parts:
        return NEVER
    return next(iter(parts)) if len(parts) == 1 else Alternate(tuple(parts))


def any_node(options: Iterable[Node]) -> Node:
    """The union of any number of nodes, not compared with each other: comparing large ones costs more than it saves."""
    kept = [option for option in options if option != NEVER]
    return alternate(kept) if kept else NEVER


def intersection(parts: Iterable[Node]) -> Node:
    """The intersection of any number of languages; of none, all texts."""
    found = ANY_TEXT
    for part in dict.fromkeys(parts):
        found = _both(found, part)
    return found


def difference(left: Node, right: Node) -> Node:
    """The texts of `left` that are not in `right`."""
    if NEVER in (left, right):
        return left
    if isinstance(left, Bytes | Choices):
        return literals(text for text in _texts(left) if not matches(right, text))
    return NEVER if right in (left, ANY_TEXT) else Without(left, right)


def literals(texts: Iterable[str]) -> Node:
    """The language of some texts."""
    found = sorted({text.encode() for text in texts})
    if not found:
        return NEVER
    return Bytes(found[0]) if len(found) == 1 else Choices(tuple(found))


def is_empty(node: Node) -> bool:
    """True if the language is proven empty within a bounded search; False where it is not, or the search gave up."""
    if _is_plain(node):
        return False
    seen = {node}
    pending = [node]
    while pending:
        current = pending.pop()
        if _nullable(current):
            return False
        for code in _representatives(current):
            after = _derive(current, code)
            if after == NEVER or after in seen:
                continue
            if _is_plain(after):
                return False
            if len(seen) >= _EMPTINESS_STEPS:
                return False
            seen.add(after)
            pending.append(after)
    return True


def lengths(node: Node) -> tuple[int, int | None]:
    """Bounds of the number of characters in a text of `node`; the upper one is None where there is none."""
    match node:
        case Bytes(data):
            return len(data.decode()), len(data.decode())
        case Chars():
            return 1, 1
        case Concat(parts):
            found = [lengths(part) for part in parts]
            highs = [high for _, high in found if high is not None]
            return sum(low for low, _ in found), sum(highs) if len(highs) == len(found) else None
        case Choices(texts):
            sizes = [len(text.decode()) for text in texts]
            return min(sizes), max(sizes)
        case Alternate(options):
            found = [lengths(option) for option in options]
            highs = [high for _, high in found if high is not None]
            return min(low for low, _ in found), max(highs) if len(highs) == len(found) else None
        case Repeat(item, low, high):
            least, most = lengths(item)
            return least * low, None if high is None or most is None else most * high
        case Both(left, right):
            (least, most), (other_least, other_most) = lengths(left), lengths(right)
            highs = [high for high in (most, other_most) if high is not None]
            return max(least, other_least), min(highs, default=None)
        case Without(left, _):
            return lengths(left)
        case _:
            raise _foreign(node)


def _is_plain(node: Node) -> bool:
    """Whether the language is seen at once not to be empty."""
    match node:
        case Bytes() | Choices():
            return True
        case Chars(charset):
            return any(not (low >= 0xD800 and high <= 0xDFFF) for low, high in charset.ranges)
        case Concat(parts):
            return all(map(_is_plain, parts))
        case Alternate(options):
            return any(map(_is_plain, options))
        case Repeat(item, low, _):
            return low == 0 or _is_plain(item)
        case _:
            return False


def _nullable(node: Node) -> bool:
    match node:
        case Bytes(data):
            return not data
        case Chars():
            return False
        case Concat(parts):
            return all(map(_nullable, parts))
        case Alternate(options):
            return any(map(_nullable, options))
        case Choices(texts):
            return not texts[0]
        case Repeat(item, low, _):
            return low == 0 or _nullable(item)
        case Both(left, right):
            return _nullable(left) and _nullable(right)
        case Without(left, right):
            return _nullable(left) and not _nullable(right)
        case _:
            raise _foreign(node)


@lru_cache(maxsize=20_000)
def _derive(node: Node, code: int) -> Node:
    """What may follow the character `code` in texts of `node`."""
    match node:
        case Bytes(data):
            spelled = chr(code).encode(errors="surrogatepass")
            return Bytes(data[len(spelled) :]) if data.startswith(spelled) else NEVER
        case Chars(charset):
            return EMPTY if code in charset else NEVER
        case Concat(parts):
            options: list[Node] = []
            for at, part in enumerate(parts):
                options.append(_sequence((_derive(part, code), *parts[at + 1 :])))
                if not _nullable(part):
                    break
            return union(options)
        case Alternate(parts):
            return union(_derive(option, code) for option in parts)
        case Choices(texts):
            spelled = chr(code).encode(errors="surrogatepass")
            rests = tuple(text[len(spelled) :] for text in texts if text.startswith(spelled))
            if not rests:
                return NEVER
            return Bytes(rests[0]) if len(rests) == 1 else Choices(rests)
        case Repeat(item, low, high):
            rest = repeat(item, max(low - 1, 0), None if high is None else high - 1)
            return _sequence((_derive(item, code), rest))
        case Both(left, right):
            return _both(_derive(left, code), _derive(right, code))
        case Without(left, right):
            return difference(_derive(left, code), _derive(right, code))
        case _:
            raise _foreign(node)


def _texts(node: Bytes | Choices) -> list[str]:
    return [node.data.decode()] if isinstance(node, Bytes) else [text.decode() for text in node.texts]


def _sequence(parts: tuple[Node, ...]) -> Node:
    if NEVER in parts:
        return NEVER
    flat: list[Node] = []
    for part in parts:
        flat.extend(part.parts if isinstance(part, Concat) else () if part == EMPTY else (part,))
    if not flat:
        return EMPTY
    return flat[0] if len(flat) == 1 else Concat(tuple(flat))


def _both(left: Node, right: Node) -> Node:
    if NEVER in (left, right):
        return NEVER
    if left in (right, ANY_TEXT):
        return right
    for one, other in ((left, right), (right, left)):
        if isinstance(one, Bytes | Choices):
            return literals(text for text in _texts(one) if matches(other, text))
    return left if right == ANY_TEXT else Both(left, right)


def _first_sets(node: Node) -> set[CharSet]:
    """Character sets that together tell apart all characters with different derivatives."""
    match node:
        case Bytes(data):
            return {CharSet.single(ord(data.decode()[0]))} if data else set()
        case Chars(charset):
            return {charset}
        case Concat(parts):
            found: set[CharSet] = set()
            for part in parts:
                found |= _first_sets(part)
                if not _nullable(part):
                    break
            return found
        case Choices(texts):
            return {CharSet.single(ord(text.decode()[0])) for text in texts if text}
        case Alternate(options):
            return set[CharSet]().union(*map(_first_sets, options))
        case Repeat(item, _, _):
            return _first_sets(item)
        case Both(left, right) | Without(left, right):
            return _first_sets(left) | _first_sets(right)
        case _:
            raise _foreign(node)


def _representatives(node: Node) -> list[int]:
    """One code point of each class of characters that `node` tells apart."""
    edges = {0, 0xE000}
    for charset in _first_sets(node):
        for low, high in charset.ranges:
            edges.update((low, high + 1))
    return [code for code in edges if code <= MAX_CODE_POINT and not 0xD800 <= code <= 0xDFFF]


def _foreign(node: Node) -> UnsupportedGrammarError:
    return UnsupportedGrammarError(f"deciding about a pattern: {type(node).__name__} has no place in a set of texts")
