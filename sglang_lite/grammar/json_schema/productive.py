"""Grammars without rules that no text can end: a matcher that enters one would be stuck; knows no JSON."""

from __future__ import annotations

from collections.abc import Mapping

from sglang_lite.grammar.json_schema.languages import any_node
from sglang_lite.grammar.syntax import (
    NEVER,
    Alternate,
    Both,
    Bytes,
    Chars,
    Choices,
    Concat,
    Grammar,
    Node,
    Ref,
    Repeat,
    Without,
    concat,
    repeat,
)


def without_dead_rules(start: Node, rules: Mapping[str, Node]) -> Grammar:
    """The grammar with only rules that are reached and have texts; what refers to others is cut away."""
    reached = _reached(start, rules)
    users: dict[str, list[str]] = {name: [] for name in reached}
    for name in reached:
        for used in reached[name]:
            users[used].append(name)
    alive: set[str] = set()
    pending = list(reached)
    while pending:
        name = pending.pop()
        if name not in alive and _has_text(rules[name], alive):
            alive.add(name)
            pending.extend(users[name])
    if len(alive) == len(reached):
        return Grammar(start if _has_text(start, alive) else NEVER, {name: rules[name] for name in reached})
    cut = {name: _cut(rules[name], alive) for name in reached if name in alive}
    return Grammar(_cut(start, alive), cut)


def _reached(start: Node, rules: Mapping[str, Node]) -> dict[str, list[str]]:
    """Name -> names referred to, of the rules that `start` reaches."""
    found: dict[str, list[str]] = {}
    pending = _references(start)
    while pending:
        name = pending.pop()
        if name not in found:
            found[name] = _references(rules[name])
            pending.extend(found[name])
    return found


def _references(node: Node) -> list[str]:
    """The names that `node` refers to, each once."""
    found: dict[str, None] = {}
    pending = [node]
    while pending:
        part = pending.pop()
        match part:
            case Ref(name):
                found[name] = None
            case Concat(parts) | Alternate(parts):
                pending.extend(parts)
            case Repeat(item, _, _):
                pending.append(item)
            case Both(left, right) | Without(left, right):
                pending.extend((left, right))
            case _:
                pass
    return list(found)


def _has_text(node: Node, alive: set[str]) -> bool:
    while True:
        match node:
            case Ref(name):
                return name in alive
            case Concat(parts):
                # Words and marks first told apart, since most parts are such.
                return all(isinstance(part, Bytes | Choices) or _has_text(part, alive) for part in parts)
            case Alternate(options):
                return any(_has_text(option, alive) for option in options)
            case Repeat(item, low, _):
                if low == 0:
                    return True
                node = item
            case Chars(charset):
                return bool(charset.ranges)
            case Both(left, right):
                return _has_text(left, alive) and _has_text(right, alive)
            case Without(left, _):
                node = left
            case _:
                return True


def _cut(node: Node, alive: set[str]) -> Node:
    if not _has_text(node, alive):
        return NEVER
    match node:
        case Concat(parts):
            return concat(_cut(part, alive) for part in parts)
        case Alternate(options):
            return any_node(_cut(option, alive) for option in options)
        case Repeat(item, low, high):
            return repeat(_cut(item, alive), low, high) if _has_text(item, alive) else concat(())
        case Both(left, right):
            return Both(_cut(left, alive), _cut(right, alive))
        case Without(left, right):
            return Without(_cut(left, alive), _cut(right, alive))
        case _:
            return node
