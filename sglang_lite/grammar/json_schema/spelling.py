r"""Characters, strings and languages of characters as JSON writes them; knows no schema.

The canonical spelling of a character is the character itself where JSON allows that, else its short escape, else `\u00xx` in lower
case. A free string may use every legal escape but lone surrogates. A language that restricts its characters is spelled canonically:
so each text has one spelling, and differences of languages stay exact.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import lru_cache

from sglang_lite.grammar.charset import ANY, MAX_CODE_POINT, CharSet
from sglang_lite.grammar.errors import UnsupportedGrammarError
from sglang_lite.grammar.json_schema.languages import any_node
from sglang_lite.grammar.syntax import (
    NEVER,
    Alternate,
    Both,
    Bytes,
    Chars,
    Choices,
    Concat,
    Node,
    Paths,
    Ref,
    Repeat,
    Without,
    alternate,
    choices,
    concat,
    repeat,
)

CHAR_RULE, STRING_RULE, ESCAPE_RULE = "char", "string", "escape"
REST_RULE = "string_rest"
QUOTE = Bytes(b'"')
_SURROGATES = range(0xD800, 0xE000)
_SPECIAL = CharSet.of([(0x00, 0x1F), (ord('"'), ord('"')), (ord("\\"), ord("\\"))])
_RAW = CharSet.of([(0x20, 0x21), (0x23, 0x5B), (0x5D, MAX_CODE_POINT)])


def spelled(node: Node, *, free: bool = True) -> Node:
    """The inner spelling (without quotes) of the texts of a language of characters.

    With `free`, a character that may be any character is written in every legal way.
    """
    match node:
        case Bytes(data):
            return Bytes(spelled_text(data.decode())[1:-1])
        case Choices(texts):
            return choices(spelled_text(text.decode())[1:-1] for text in texts)
        case Chars(charset):
            return Ref(CHAR_RULE) if free and charset == ANY else _canonical(charset)
        case Concat(parts):
            return concat(spelled(part, free=free) for part in parts)
        case Alternate(options):
            return alternate(spelled(option, free=free) for option in options)
        case Repeat(item, low, high):
            return repeat(spelled(item, free=free), low, high)
        case Both(left, right):
            return Both(spelled(left, free=free), spelled(right, free=free))
        case Without(left, right):
            # An escape that only one side knows would slip through, so both have one spelling for each text.
            return Without(spelled(left, free=False), spelled(right, free=False))
        case _:
            raise UnsupportedGrammarError(f"spelling a text in JSON: {type(node).__name__} is no set of characters")


def quoted(node: Node, *, free: bool = True) -> Node:
    """The JSON strings whose texts are in a language of characters."""
    return concat([QUOTE, spelled(node, free=free), QUOTE])


def spelled_text(text: str) -> bytes:
    """The canonical JSON string of `text`, quotes included.

    Raises:
        UnsupportedGrammarError: `text` holds a lone surrogate, which no UTF-8 text can.
    """
    try:
        return json.dumps(text, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise UnsupportedGrammarError(f"the text {text!r} holds a lone surrogate, which cannot be written") from None


def quoted_texts(texts: Iterable[str]) -> Node:
    """The canonical JSON strings of some texts; NEVER of none."""
    found = [spelled_text(text) for text in texts if not any(0xD800 <= ord(char) <= 0xDFFF for char in text)]
    return choices(found) if found else NEVER


def quoted_others(texts: Iterable[str]) -> Node:
    """The canonical JSON strings of all texts but the given ones.

    A tree with one state for each beginning of a text, so that no product of automata is needed.
    """
    tree: list[dict[str, int]] = [{}]  # of each beginning, the next characters and where they lead
    whole: set[int] = set()
    for text in set(texts):
        at = 0
        for char in text:
            if char not in tree[at]:
                tree[at][char] = len(tree)
                tree.append({})
            at = tree[at][char]
        whole.add(at)
    apart = len(tree)  # behind a character that no text has there
    arrows: list[tuple[int, Node, int]] = [(apart, Ref(REST_RULE), apart + 1)]
    for at, branches in enumerate(tree):
        arrows += [(at, _char(char), end) for char, end in branches.items() if ord(char) not in _SURROGATES]
        arrows += [(at, node, apart) for node in _elsewhere(frozenset(branches))]
        if at not in whole:
            arrows.append((at, QUOTE, apart + 1))
    return concat([QUOTE, Paths(apart + 2, tuple(arrows), open_to=_RAW)])


@lru_cache(maxsize=4096)
def _char(char: str) -> Node:
    return Bytes(spelled_text(char)[1:-1])


@lru_cache(maxsize=4096)
def _elsewhere(chars: frozenset[str]) -> tuple[Node, ...]:
    """The characters that are none of `chars`, the closing quote aside."""
    raw = Chars(_minus(_RAW, _set_of(chars)))
    if any(ord(char) in _SPECIAL for char in chars):
        return raw, _escapes(_minus(_SPECIAL, _set_of(chars)))
    return raw, Ref(ESCAPE_RULE)


def base_rules() -> dict[str, Node]:
    """The rules that spelled nodes refer to."""
    char = _any_spelling()
    return {
        CHAR_RULE: char,
        STRING_RULE: concat([QUOTE, Repeat(char, 0, None), QUOTE]),
        ESCAPE_RULE: _escapes(_SPECIAL),
        REST_RULE: concat([Repeat(_canonical(ANY), 0, None), QUOTE]),
    }


@lru_cache(maxsize=4096)
def _canonical(charset: CharSet) -> Node:
    outside = charset.negate()
    raw, special = _minus(_RAW, outside), _minus(_SPECIAL, outside)
    escaped = NEVER if not special.ranges else Ref(ESCAPE_RULE) if special == _SPECIAL else _escapes(special)
    return any_node([Chars(raw) if raw.ranges else NEVER, escaped])


def _escapes(special: CharSet) -> Node:
    codes = [code for low, high in special.ranges for code in range(low, high + 1)]
    return choices(spelled_text(chr(code))[1:-1] for code in codes)


def _minus(left: CharSet, right: CharSet) -> CharSet:
    return left.negate().union(right).negate()


def _set_of(chars: Iterable[str]) -> CharSet:
    return CharSet.of([(ord(char), ord(char)) for char in chars])


def _any_spelling() -> Node:
    digit = Chars(CharSet.of([(0x30, 0x39), (0x41, 0x46), (0x61, 0x66)]))
    no_surrogate = alternate(
        [
            concat(
                [
                    Chars(CharSet.of([(0x30, 0x39), (0x41, 0x43), (0x45, 0x46), (0x61, 0x63), (0x65, 0x66)])),
                    repeat(digit, 3, 3),
                ]
            ),
            concat([_one_of("dD"), _one_of("01234567"), digit, digit]),
        ]
    )
    pair = [
        _one_of("dD"),
        _one_of("89abAB"),
        digit,
        digit,
        Bytes(b"\\u"),
        _one_of("dD"),
        _one_of("cdefCDEF"),
        digit,
        digit,
    ]
    escape = alternate([_one_of('"\\/bfnrt'), concat([Bytes(b"u"), alternate([no_surrogate, concat(pair)])])])
    return alternate([Chars(_RAW), concat([Bytes(b"\\"), escape])])


def _one_of(letters: str) -> Node:
    return Chars(_set_of(letters))
