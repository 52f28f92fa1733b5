"""Sets of objects as grammar nodes: declared members in order, then the others by classes of names, with a count where it matters."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from sglang_lite.grammar.errors import UnsupportedGrammarError
from sglang_lite.grammar.json_schema.languages import any_node, is_empty
from sglang_lite.grammar.json_schema.members import ALL_NAMES, NameClass, ObjectSet, split_some
from sglang_lite.grammar.json_schema.spelling import STRING_RULE, quoted, quoted_others, quoted_texts
from sglang_lite.grammar.json_schema.terms import FALSE, TRUE, Term, all_of
from sglang_lite.grammar.json_schema.writer import ValueWriter
from sglang_lite.grammar.syntax import EMPTY, NEVER, Node, Ref, concat, repeat

_MAX_COUNT_STATES = 4000
_MAX_DEMANDS = 4
Place = tuple[int, int]  # declared names passed, members written as far as that matters


class ObjectWriter:
    """Writes one `ObjectSet` at a time with the writer's values and rules."""

    def __init__(self, writer: ValueWriter) -> None:
        self._writer = writer

    def node(self, one: ObjectSet, where: str) -> Node:
        """The JSON texts of `one`, which belongs to the schema at `where`."""
        return any_node(self._single(part, where) for part in split_some(one))

    def _single(self, one: ObjectSet, where: str) -> Node:
        members: list[tuple[str, Term, bool]] = []
        for name in one.known:
            term = one.value(name)
            if self._writer.is_void(term):
                if name in one.required:
                    return NEVER
            else:
                members.append((name, term, name in one.required))
        chain = _Chain(self._writer, one, members, _classes(one, self._writer), where)
        inner = chain.node()
        if inner == NEVER:
            return NEVER
        enclosed = self._writer.layout.enclosed
        if chain.may_be_empty:
            return any_node([enclosed(b"{", EMPTY, b"}"), enclosed(b"{", inner, b"}") if inner != EMPTY else NEVER])
        return enclosed(b"{", inner, b"}")


class _Chain:
    """The members of one kind of object: an automaton over the declared names and a count, written from its end.

    The count stops at `cap`: without bounds at 1, which is only whether a comma is needed.
    """

    def __init__(
        self,
        writer: ValueWriter,
        one: ObjectSet,
        members: list[tuple[str, Term, bool]],
        classes: list[tuple[NameClass, Term]],
        where: str,
    ) -> None:
        needed = sum(1 for _, _, is_required in members if is_required)
        self._writer = writer
        self._members = members
        self._classes = classes
        self._some = sorted(one.some, key=repr)
        self._where = where
        self._low = one.low if one.low > needed else 0
        self._high = None if not classes and one.high is not None and one.high >= len(members) else one.high
        self._cap = max(1, self._low if self._high is None else self._high)
        self._known = frozenset(one.known)
        self._other: Node | None = None
        if len(members) * self._cap > _MAX_COUNT_STATES:
            writer.unchecked(
                where,
                "maxProperties",
                UnsupportedGrammarError(
                    f"minProperties or maxProperties at #{where}: counting {len(members)} members up to {self._cap} is too large"
                ),
            )
            self._low, self._high, self._cap = 0, None, 1

    @property
    def may_be_empty(self) -> bool:
        """Whether no member at all will do."""
        return self._low == 0 and not self._some and not any(is_required for _, _, is_required in self._members)

    def node(self) -> Node:
        """The members with their commas; the empty object is left to the caller where `may_be_empty` holds."""
        if self._high == 0:
            return EMPTY if self.may_be_empty else NEVER
        uses = self._uses()
        built: dict[Place, Node] = {}
        for place in sorted(uses, reverse=True):
            node = self._place(place, built)
            if uses[place] > 1 and node not in (EMPTY, NEVER) and not isinstance(node, Ref):
                node = self._writer.add_rule(f"{self._where}~{place[0]}", node)
            built[place] = node
        return built[0, 0]

    def _uses(self) -> Counter[Place]:
        """How often the rest of an object from each place on is needed."""
        uses: Counter[Place] = Counter({(0, 0): 1})
        pending = [(0, 0)]
        while pending:
            at, count = pending.pop()
            if at == len(self._members):
                continue
            for target in {(at + 1, self._next(count)), *([] if self._members[at][2] else [(at + 1, count)])}:
                if self._high is not None and target[1] > self._high:
                    continue
                uses[target] += 1
                if uses[target] == 1:
                    pending.append(target)
        return uses

    def _next(self, count: int) -> int:
        return count + 1 if self._high is not None else min(count + 1, self._cap)

    def _place(self, place: Place, built: dict[Place, Node]) -> Node:
        at, count = place
        if at == len(self._members):
            return self._others(count)
        name, term, is_required = self._members[at]
        comma = self._writer.layout.comma if count else EMPTY
        after = built.get((at + 1, self._next(count)), NEVER)
        member = concat([comma, quoted_texts([name]), self._writer.layout.colon, self._writer.value(term)])
        written = NEVER if after == NEVER else concat([member, after])
        if is_required:
            return written
        skipped = built[at + 1, count]
        if skipped == after:
            return NEVER if after == NEVER else concat([repeat(member, 0, 1), after])
        # The rest of an object that has no member yet is empty only where the whole object is; the caller writes that one.
        return any_node([written, skipped if count or skipped != EMPTY else NEVER])

    def _others(self, count: int) -> Node:
        """Members that are not declared, after `count` others."""
        need = max(self._low - count, 0)
        room = None if self._high is None else self._high - count
        if self._some:
            return self._demanded(count)
        if not self._classes or room == 0:
            return NEVER if need else EMPTY
        if self._other is None:
            self._other = self._writer.add_rule(
                f"{self._where}~other", any_node(self._member(names, term) for names, term in self._classes)
            )
        more = concat([self._writer.layout.comma, self._other])
        if count:
            return repeat(more, need, room)
        return concat([self._other, repeat(more, max(need - 1, 0), None if room is None else room - 1)])

    def _member(self, names: NameClass, term: Term) -> Node:
        barred = names.barred | self._known
        if not names.within and not names.outside:
            key = quoted_others(barred) if barred else Ref(STRING_RULE)
        else:
            key = quoted(replace(names, barred=frozenset()).minus(barred))
        return concat([key, self._writer.layout.colon, self._writer.value(term)])

    def _demanded(self, count: int) -> Node:
        """Undeclared members among which each demand of `some` is met; a state is the set of demands met so far and the count."""
        if len(self._some) > _MAX_DEMANDS:
            error = UnsupportedGrammarError(
                f"at #{self._where}: more than {_MAX_DEMANDS} demands that some member under any name has a certain value"
            )
            self._writer.unchecked(self._where, "not", error)
            self._some = []
            return self._others(count)
        everything = 2 ** len(self._some) - 1
        steps = {chosen: self._narrowed(chosen) for chosen in range(everything + 1)}
        names = {(0, count): self._writer.add_rule(f"{self._where}~some", NEVER)}
        pending = [(0, count)]
        while pending:
            state = met, so_far = pending.pop()
            comma = self._writer.layout.comma if so_far else EMPTY
            options: list[Node] = [EMPTY] if met == everything and so_far >= self._low else []
            after = self._next(so_far)
            for chosen in steps if self._high is None or after <= self._high else ():
                target = (met | chosen, after)
                if steps[chosen] and target not in names:
                    names[target] = self._writer.add_rule(f"{self._where}~some", NEVER)
                    pending.append(target)
                options.extend(concat([comma, self._member(kind, term), names[target]]) for kind, term in steps[chosen])
            self._writer.rules[names[state].name] = any_node(options)
        return names[0, count]

    def _narrowed(self, chosen: int) -> list[tuple[NameClass, Term]]:
        """The classes of undeclared names, each met with the demands in the bit set `chosen`."""
        found = self._classes
        for bit, (names, term) in enumerate(self._some):
            if chosen >> bit & 1:
                found = [(kind.meet(names), all_of((value, term))) for kind, value in found]
        return [
            (kind, value)
            for kind, value in found
            if not self._writer.is_void(value) and not is_empty(kind.minus(self._known))
        ]


def _classes(one: ObjectSet, writer: ValueWriter) -> list[tuple[NameClass, Term]]:
    """The undeclared names, parted by the rules that hold for them, with what their values are in."""
    known = frozenset(one.known)
    found: list[tuple[NameClass, Term]] = [(ALL_NAMES, TRUE)]
    for names, term in sorted(one.rules, key=repr):
        if not names.within and not names.outside and names.barred <= known:
            found = [(kind, all_of((value, term))) for kind, value in found]
            continue
        parted: list[tuple[NameClass, Term]] = []
        for kind, value in found:
            parted.append((kind.meet(names), all_of((value, term))))
            parted.append((kind.apart(names), value))
        found = [(kind, value) for kind, value in parted if value != FALSE and not is_empty(kind.minus(known))]
    return [(kind, value) for kind, value in found if not writer.is_void(value)]
