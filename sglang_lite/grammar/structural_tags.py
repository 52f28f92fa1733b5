"""Free text in which triggers begin tagged parts with a grammar of their own: tool calls, reasoning, function tags.

A text is free until the first trigger is complete. From there one of the tags whose `begin` starts with that trigger must be
finished, content and end, before the text is free again. Free text therefore never holds a trigger outside a tag.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sglang_lite.grammar.charset import ANY
from sglang_lite.grammar.errors import InvalidGrammarError
from sglang_lite.grammar.syntax import (
    EMPTY,
    Alternate,
    Both,
    Bytes,
    Chars,
    Concat,
    Grammar,
    Node,
    Paths,
    Ref,
    Repeat,
    Special,
    Whole,
    Without,
    alternate,
    choices,
    concat,
    repeat,
    whole,
    without,
)

_TEXT = Repeat(Chars(ANY), 0, None)
_SOME_TEXT = Repeat(Chars(ANY), 1, None)


@dataclass(frozen=True)
class StructuralTag:
    """One kind of tagged part.

    Attributes:
        begin: text that begins it, or the id of a special token.
        content: what stands inside.
        end: text or special token id that ends it; "" for none. Content that may hold the end text is ambiguous, both readings count.
    """

    begin: str | int
    content: Node | Grammar
    end: str | int = ""


def structural_tag_grammar(
    tags: Sequence[StructuralTag],
    triggers: Sequence[str | int] | None = None,
    *,
    at_least_one: bool = False,
    stop_after_first: bool = False,
) -> Grammar:
    """The grammar of free text with tagged parts.

    Args:
        tags: at least one; several may begin alike.
        triggers: texts, each a begin of a tag's `begin`, or special token ids that are a tag's `begin`. None: the begins themselves.
        at_least_one: a text without a tag is not accepted.
        stop_after_first: the text ends with the first tag, if there is one.

    Raises:
        InvalidGrammarError: no tags, an empty trigger, a trigger of no tag, or a tag without a trigger.
    """
    if not tags:
        raise InvalidGrammarError("compiling structural tags: there are no tags; give at least one")
    starts = list(dict.fromkeys(tag.begin for tag in tags) if triggers is None else triggers)
    _check(tags, starts)
    rules: dict[str, Node] = {}
    bodies = [imported(tag.content, f"tag {index}: ", rules) for index, tag in enumerate(tags)]
    texts = [start.encode() for start in starts if isinstance(start, str)]
    free = without(_TEXT, concat([_TEXT, choices(texts), _TEXT])) if texts else _TEXT
    parts: list[Node] = []
    for start in starts:
        endings = [
            concat([_behind(tag.begin, start), body, _literal(tag.end)])
            for tag, body in zip(tags, bodies, strict=True)
            if _belongs(tag.begin, start, starts)
        ]
        if endings:
            parts.append(concat([_up_to(start, texts, free), alternate(endings)]))
    tagged = alternate(parts)
    if stop_after_first:
        return Grammar(tagged if at_least_one else alternate([tagged, free]), rules)
    return Grammar(concat([repeat(tagged, 1 if at_least_one else 0, None), free]), rules)


def _check(tags: Sequence[StructuralTag], starts: Sequence[str | int]) -> None:
    for start in starts:
        if start == "":
            raise InvalidGrammarError("compiling structural tags: a trigger or begin is the empty text")
        if not any(_belongs(tag.begin, start, [start]) for tag in tags):
            raise InvalidGrammarError(f"compiling structural tags: no tag begins with the trigger {start!r}")
    for tag in tags:
        if not any(_belongs(tag.begin, start, [start]) for start in starts):
            raise InvalidGrammarError(f"compiling structural tags: no trigger begins the tag {tag.begin!r}")


def _belongs(begin: str | int, start: str | int, starts: Sequence[str | int]) -> bool:
    """Whether a tag with `begin` is the business of the trigger `start`: the shortest one that begins it."""
    if isinstance(begin, int) or isinstance(start, int):
        return begin == start and type(begin) is type(start)
    shorter = any(isinstance(other, str) and len(other) < len(start) and begin.startswith(other) for other in starts)
    return begin.startswith(start) and not shorter


def _up_to(start: str | int, texts: list[bytes], free: Node) -> Node:
    """Free text and the trigger `start` at its end, where no trigger is complete before."""
    if isinstance(start, int):
        return concat([free, Special(start)])
    return without(concat([_TEXT, Bytes(start.encode())]), concat([_TEXT, choices(texts), _SOME_TEXT]))


def _behind(begin: str | int, start: str | int) -> Node:
    """What is left of `begin` behind the trigger."""
    return EMPTY if isinstance(begin, int) or isinstance(start, int) else Bytes(begin[len(start) :].encode())


def _literal(text: str | int) -> Node:
    return Special(text) if isinstance(text, int) else Bytes(text.encode())


def imported(content: Node | Grammar, prefix: str, rules: dict[str, Node]) -> Node:
    """`content` as a node of its own; the rules of a grammar go into `rules` under new names."""
    if not isinstance(content, Grammar):
        return whole(content)
    for name, node in content.rules.items():
        rules[prefix + name] = _renamed(node, prefix)
    return whole(_renamed(content.start, prefix))


def _renamed(node: Node, prefix: str) -> Node:
    match node:
        case Ref(name):
            return Ref(prefix + name)
        case Concat(parts):
            return Concat(tuple(_renamed(part, prefix) for part in parts))
        case Alternate(options):
            return Alternate(tuple(_renamed(option, prefix) for option in options))
        case Paths(size, arrows, open_to):
            renamed = ((begin, _renamed(inner, prefix), end) for begin, inner, end in arrows)
            return Paths(size, tuple(renamed), open_to)
        case Repeat(item, low, high):
            return Repeat(_renamed(item, prefix), low, high)
        case Whole(item):
            return Whole(_renamed(item, prefix))
        case Both(left, right):
            return Both(_renamed(left, prefix), _renamed(right, prefix))
        case Without(left, right):
            return Without(_renamed(left, prefix), _renamed(right, prefix))
        case _:
            return node
