"""Sets of arrays as grammar nodes: chains of items, counters for `contains`, used values for `uniqueItems`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import combinations, product

from sglang_lite.grammar.errors import UnsupportedGrammarError
from sglang_lite.grammar.json_schema.digits import decimal_text
from sglang_lite.grammar.json_schema.languages import any_node
from sglang_lite.grammar.json_schema.sequences import ArraySet, trimmed
from sglang_lite.grammar.json_schema.terms import FALSE, Constant, Term, all_of, complement, constant
from sglang_lite.grammar.json_schema.writer import ValueWriter
from sglang_lite.grammar.syntax import EMPTY, NEVER, Node, Ref, concat, repeat

_MAX_COUNTER_STATES = 1500
_MAX_DISTINCT = 8  # values whose sets are the states of a `uniqueItems` automaton
State = tuple[int, ...]


class ArrayWriter:
    """Writes one `ArraySet` at a time with the writer's values and rules."""

    def __init__(self, writer: ValueWriter) -> None:
        self._writer = writer

    def node(self, one: ArraySet, where: str) -> Node:
        """The JSON texts of `one`, which belongs to the schema at `where`."""
        settled = self._without_void(one)
        if settled is None:
            return NEVER
        if settled.unique and not self._is_unique_anyway(settled):
            try:
                return self._enclosed(self._unique(settled))
            except UnsupportedGrammarError as error:
                self._writer.unchecked(settled.unique, "uniqueItems", error)
        if settled.contained:
            try:
                return self._enclosed(self._counted(settled))
            except UnsupportedGrammarError as error:
                self._writer.unchecked(where, "contains", error)
        return self._plain(settled)

    def _without_void(self, one: ArraySet) -> ArraySet | None:
        """`one` with items that have no value as FALSE, so that the bounds follow."""
        is_void = self._writer.is_void
        prefix = tuple(FALSE if is_void(term) else term for term in one.prefix)
        return trimmed(replace(one, prefix=prefix, rest=FALSE if is_void(one.rest) else one.rest))

    def _enclosed(self, inner: Node) -> Node:
        return self._writer.layout.enclosed(b"[", inner, b"]")

    def _plain(self, one: ArraySet) -> Node:
        comma, value = self._writer.layout.comma, self._writer.value
        size = len(one.prefix)
        room = None if one.high is None else one.high - max(size, 1)
        tail: Node = EMPTY
        if room is None or room > 0:
            tail = repeat(concat([comma, value(one.rest)]), max(one.low - max(size, 1), 0), room)
        for index in range(size - 1, 0, -1):
            step = concat([comma, value(one.prefix[index]), tail])
            tail = step if index < one.low else repeat(step, 0, 1)
        if one.high == 0:
            return self._enclosed(EMPTY)
        filled = self._enclosed(concat([value(one.item(0)), tail]))
        return filled if one.low > 0 else any_node([self._enclosed(EMPTY), filled])

    def _is_unique_anyway(self, one: ArraySet) -> bool:
        """Whether the items differ already, being at most one or of sets without a common value."""
        if one.high is None or one.high > max(len(one.prefix), 1):
            return False
        terms = [one.item(index) for index in range(one.high)]
        return all(self._writer.is_void(all_of(pair)) for pair in combinations(terms, 2))

    def _unique(self, one: ArraySet) -> Node:
        """Items that differ, by states that are the sets of values used so far; too many values are taken in their order only."""
        terms = {*one.prefix, one.rest} - {FALSE}
        domains = {term: self._values(term) for term in terms}
        if any(domain is None for domain in domains.values()):
            raise UnsupportedGrammarError(
                f"uniqueItems at #{one.unique}: only items from a finite set of values can be kept unique; "
                "give items an enum, or set maxItems to 1"
            )
        everything = list(dict.fromkeys(text for domain in domains.values() for text in domain or ()))
        if one.contained:
            raise UnsupportedGrammarError(f"uniqueItems at #{one.unique}: it cannot be combined with contains")
        known = {term: frozenset(domain or ()) for term, domain in domains.items()}
        known[FALSE] = frozenset()
        if len(everything) > _MAX_DISTINCT:
            self._writer.note(one.unique, "uniqueItems", "narrower", "items come in ascending order")
            return self._in_order(one, everything, known)

        def moves(state: State) -> list[tuple[Term, State]]:
            allowed = known[one.item(len(state))] if one.high is None or len(state) < one.high else frozenset[str]()
            rest = [at for at, text in enumerate(everything) if at not in state and text in allowed]
            return [(Constant(everything[at]), tuple(sorted((*state, at)))) for at in rest]

        return self._machine("unique", (), moves, lambda state: len(state) >= one.low, len)

    def _in_order(self, one: ArraySet, values: list[str], known: dict[Term, frozenset[str]]) -> Node:
        cap = one.low if one.high is None else one.high
        cap = max(cap, len(one.prefix), 1)

        def moves(state: State) -> list[tuple[Term, State]]:
            begin, count = state
            if one.high is not None and count >= one.high:
                return []
            allowed = known[one.item(count)]
            follow = range(begin, len(values))
            return [(Constant(values[at]), (at + 1, min(count + 1, cap))) for at in follow if values[at] in allowed]

        return self._machine("ordered", (0, 0), moves, lambda state: state[1] >= one.low, lambda state: state[1])

    def _counted(self, one: ArraySet) -> Node:
        """Items with counters for `contains`: a state is the index so far and each demand's count, as far as they matter."""
        demands = sorted(one.contained, key=repr)
        last = max(1, len(one.prefix), one.low, one.high or 0, *(demand.start for demand in demands))

        def moves(state: State) -> list[tuple[Term, State]]:
            index, counts = state[0], state[1:]
            if one.high is not None and index >= one.high:
                return []
            found: list[tuple[Term, State]] = []
            for chosen in product((True, False), repeat=len(demands)):
                terms = [one.item(index)]
                after: list[int] = []
                for demand, count, is_counted in zip(demands, counts, chosen, strict=True):
                    if index < demand.start or (not is_counted and demand.high is None):
                        after.append(count)
                        if index < demand.start and is_counted:
                            break
                    elif not is_counted:
                        terms.append(complement(demand.term))
                        after.append(count)
                    else:
                        terms.append(demand.term)
                        after.append(min(count + 1, demand.low) if demand.high is None else count + 1)
                        if demand.high is not None and count + 1 > demand.high:
                            break
                else:
                    term = all_of(terms)
                    if not self._writer.is_void(term):
                        found.append((term, (min(index + 1, last), *after)))
            return found

        def is_end(state: State) -> bool:
            enough = all(count >= demand.low for demand, count in zip(demands, state[1:], strict=True))
            return state[0] >= one.low and enough

        return self._machine("counted", (0,) * (len(demands) + 1), moves, is_end, lambda state: state[0])

    def _machine(
        self,
        stem: str,
        start: State,
        moves: Callable[[State], list[tuple[Term, State]]],
        is_end: Callable[[State], bool],
        size: Callable[[State], int],
    ) -> Node:
        """An automaton over items as right-linear rules; `size` tells whether an item came before."""
        writer = self._writer
        names: dict[State, Ref] = {start: writer.add_rule(stem, NEVER)}
        pending = [start]
        while pending:
            state = pending.pop()
            options: list[Node] = [EMPTY] if is_end(state) else []
            for term, target in moves(state):
                if target not in names:
                    if len(names) >= _MAX_COUNTER_STATES:
                        raise UnsupportedGrammarError(f"counting items needs more than {_MAX_COUNTER_STATES} states")
                    names[target] = writer.add_rule(stem, NEVER)
                    pending.append(target)
                comma = writer.layout.comma if size(state) else EMPTY
                options.append(concat([comma, writer.value(term), names[target]]))
            writer.rules[names[state].name] = any_node(options)
        return names[start]

    def _values(self, term: Term) -> list[str] | None:
        """The JSON texts of all values of `term` if these are listed scalars; None otherwise."""
        form = self._writer.form(term)
        if form.arrays or form.objects or any(part.values is None for part in form.texts):
            return None
        words = (("null", form.null), ("true", form.true), ("false", form.false))
        found = [word for word, is_in in words if is_in]
        for part in form.numbers:
            listed = part.listed()
            if listed is None:
                return None
            found.extend(decimal_text(value) for value in sorted(listed))
        texts = {value for part in form.texts for value in part.listed() or ()}
        return [*found, *map(_text, sorted(texts))]


def _text(value: str) -> str:
    term = constant(value)
    assert isinstance(term, Constant), "a text is a constant"
    return term.text
