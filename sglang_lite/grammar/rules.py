"""The rules of a grammar looked at as a whole: which are used, which recurse, which can stand in place of their references."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from sglang_lite.grammar.errors import InvalidGrammarError, UnsupportedGrammarError
from sglang_lite.grammar.facts import Facts, facts_of, size_of
from sglang_lite.grammar.syntax import (
    NEVER,
    Alternate,
    Both,
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
    concat,
    repeat,
    whole,
)

_SMALL = 12  # states, with those of rules inside; a rule of this size stands in place of its references, however many there are
_MAX_DEPTH = 20  # rules within rules in place of references; keeps recursion over syntax far from Python's limit


@dataclass(frozen=True)
class RulePlan:
    """`start` and `rules` as they are to be built: rules in `inlined` stand in place of their references, those in `called` are entered."""

    start: Node
    inlined: Mapping[str, Node]
    called: Mapping[str, Node]
    sizes: Mapping[str, int]  # states of rules, where known


def plan_rules(grammar: Grammar) -> RulePlan:
    """What to build of `grammar`: rules that the start reaches, left recursion of a rule on itself made a loop.

    Raises:
        InvalidGrammarError: a reference names no rule.
        UnsupportedGrammarError: an intersection, a difference or a part with position tests refers to a recursive rule.
    """
    start = facts_of(grammar.start)
    if not start.uses:
        return RulePlan(grammar.start, {}, {}, {})
    looked = _reached(grammar, start)
    uses = Counter(start.uses)
    rules = {name: grammar.rules[name] for name in looked}
    for name, found in looked.items():
        uses.update(found.uses)
        if name in found.uses:
            rules[name] = _without_left_recursion(name, rules[name])
            looked[name] = facts_of(rules[name])
        if looked[name].has_tests:
            rules[name] = whole(rules[name])
    edges = {name: set(found.uses) for name, found in looked.items()}
    recursive = {name for group in components(edges) for name in group if len(group) > 1 or name in edges[name]}
    combined = [(name, rules[name]) for name, found in looked.items() if found.has_combinations]
    if start.has_combinations:
        combined.append(("the start", grammar.start))
    if combined:
        reaching = _reaching(edges, recursive)
        for name, node in combined:
            _check_regular(name, node, reaching)
    depth: dict[str, int] = {}
    size: dict[str, int] = {}
    inlined: set[str] = set()
    # Groups come with those they refer to first, so that a rule's own depth is known when it is its turn.
    for name in (name for group in components(edges) for name in group):
        depth[name] = 1 + max((depth[inner] for inner in edges[name] if inner in inlined), default=0)
        size[name] = size_of(rules[name], lambda inner: size[inner] if inner in inlined else 1)
        small = uses[name] == 1 or size[name] <= _SMALL
        if name not in recursive and small and depth[name] <= _MAX_DEPTH:
            inlined.add(name)
    return RulePlan(
        grammar.start,
        {name: node for name, node in rules.items() if name in inlined},
        {name: node for name, node in rules.items() if name not in inlined},
        size,
    )


def parts_of(node: Node) -> Iterator[Node]:
    """`node` and all nodes inside it; what references name is not entered."""
    waiting = [node]
    while waiting:
        part = waiting.pop()
        yield part
        match part:
            case Concat(inner) | Alternate(inner):
                waiting += inner
            case Paths(_, arrows):
                waiting += [node for _, node, _ in arrows]
            case Repeat(item, _, _) | Whole(item):
                waiting.append(item)
            case Both(left, right) | Without(left, right):
                waiting += (left, right)
            case _:
                pass


def components(edges: Mapping[str, set[str]]) -> list[list[str]]:
    """The strongly connected groups of a graph (Tarjan), each after those it reaches."""
    number: dict[str, int] = {}
    lowest: dict[str, int] = {}
    open_names: list[str] = []
    groups: list[list[str]] = []
    for root in edges:
        if root in number:
            continue
        number[root] = lowest[root] = len(number)
        open_names.append(root)
        path = [(root, iter(sorted(edges[root])))]
        while path:
            name, targets = path[-1]
            target = next(targets, None)
            if target is None:
                path.pop()
                if path:
                    lowest[path[-1][0]] = min(lowest[path[-1][0]], lowest[name])
                if lowest[name] == number[name]:
                    at = open_names.index(name)
                    groups.append(open_names[at:])
                    for member in open_names[at:]:
                        lowest[member] = len(edges)
                    del open_names[at:]
            elif target not in number:
                number[target] = lowest[target] = len(number)
                open_names.append(target)
                path.append((target, iter(sorted(edges[target]))))
            else:
                lowest[name] = min(lowest[name], number[target] if lowest[target] < len(edges) else len(edges))
    return groups


def _reached(grammar: Grammar, start: Facts) -> dict[str, Facts]:
    """The rules that the start reaches, in the order in which they are met."""
    found: dict[str, Facts] = {}
    waiting = [start]
    while waiting:
        for name in waiting.pop().uses:
            if name not in grammar.rules:
                raise InvalidGrammarError(f"building a grammar: the rule {name!r} is referred to, but there is none")
            if name not in found:
                found[name] = facts_of(grammar.rules[name])
                waiting.append(found[name])
    return found


def _reaching(edges: Mapping[str, set[str]], goals: set[str]) -> set[str]:
    """Names from which a goal is reached."""
    found = set(goals)
    while more := {name for name, targets in edges.items() if name not in found and targets & found}:
        found |= more
    return found


def _check_regular(rule: str, node: Node, recursive: set[str]) -> None:
    """Refuse recursion and special tokens where only regular languages can be."""
    for part in parts_of(node):
        if isinstance(part, Both | Without):
            for inner in parts_of(part):
                if isinstance(inner, Special):
                    raise UnsupportedGrammarError(
                        f"building a grammar: in {rule}, an intersection or difference holds a special token, which is not text"
                    )
                if isinstance(inner, Ref) and inner.name in recursive:
                    raise UnsupportedGrammarError(
                        f"building a grammar: in {rule}, an intersection or difference refers to {inner.name!r}, which is recursive"
                    )


def _without_left_recursion(name: str, node: Node) -> Node:
    """`a: a x | y` as `a: y x*`; other left recursion is left as it is, to be refused by name."""
    options = node.options if isinstance(node, Alternate) else (node,)
    tails: list[Node] = []
    bases: list[Node] = []
    for option in options:
        if option == Ref(name):
            continue
        if isinstance(option, Concat) and option.parts[0] == Ref(name):
            tails.append(concat(option.parts[1:]))
        else:
            bases.append(option)
    if not tails and len(bases) == len(options):
        return node
    base = alternate(bases) if bases else NEVER
    return concat([base, repeat(alternate(tails), 0, None)]) if tails else base
