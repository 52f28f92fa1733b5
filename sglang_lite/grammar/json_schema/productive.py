"""Grammars without rules that no text can end: a matcher that enters one would be stuck; knows no JSON."""

from __future__ import annotations

from collections.abc import Mapping

from sglang_lite.grammar.facts import Facts, facts_of
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
    alive = _alive(reached, rules)
    if len(alive) == len(reached):
        return Grammar(start if _has_text(start, alive) else NEVER, {name: rules[name] for name in reached})
    cut = {name: _cut(rules[name], alive) for name in reached if name in alive}
    return Grammar(_cut(start, alive), cut)


def _reached(start: Node, rules: Mapping[str, Node]) -> dict[str, Facts]:
    """The facts of the rules that `start` reaches."""
    found: dict[str, Facts] = {}
    pending = list(facts_of(start).uses)
    while pending:
        name = pending.pop()
        if name not in found:
            found[name] = facts_of(rules[name])
            pending.extend(found[name].uses)
    return found


def _alive(reached: Mapping[str, Facts], rules: Mapping[str, Node]) -> set[str]:
    """The rules that have a text."""
    users: dict[str, list[str]] = {name: [] for name in reached}
    missing: dict[str, int] = {}  # of rules in which nothing could be without texts: names in it not known to be alive
    for name, facts in reached.items():
        for used in facts.uses:
            users[used].append(name)
        if not facts.has_never and not facts.has_combinations:
            missing[name] = len(facts.uses)
    alive = {name for name, count in missing.items() if not count}
    waiting = list(alive)
    pending = dict.fromkeys(name for name in reached if name not in alive)
    while pending or waiting:
        while waiting:
            for user in users[waiting.pop()]:
                if user in alive:
                    continue
                if user in missing:
                    missing[user] -= 1
                    if not missing[user]:
                        alive.add(user)
                        waiting.append(user)
                        continue
                pending[user] = None
        # What is left recurses, or has a part without texts.
        if pending:
            name, _ = pending.popitem()
            if name not in alive and _has_text(rules[name], alive):
                alive.add(name)
                waiting.append(name)
    return alive


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
