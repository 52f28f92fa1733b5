"""Which forms are proven to have no value; asks for forms of terms, knows no keyword."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from sglang_lite.grammar.json_schema.forms import Form
from sglang_lite.grammar.json_schema.members import ObjectSet
from sglang_lite.grammar.json_schema.sequences import ArraySet
from sglang_lite.grammar.json_schema.terms import FALSE, Anything, Constant, Term, all_of

_MAX_DEPTH = 8


class Emptiness:
    """Remembers what was found out about terms. `form_of` gives the form of a term."""

    def __init__(self, form_of: Callable[[Term], Form]) -> None:
        self._form_of = form_of
        self._known: dict[Term, bool] = {}
        self._depth = 0

    def is_void(self, term: Term) -> bool:
        """True if `term` is proven to have no value; False where it has one, or the search gave up."""
        if isinstance(term, Anything | Constant):
            return term == FALSE
        known = self._known.get(term)
        if known is not None:
            return known
        if self._depth >= _MAX_DEPTH:
            return False
        self._known[term] = False  # the answer inside itself, and where the search gives up
        self._depth += 1
        try:
            found = self.without_void(self._form_of(term)).is_bare
        finally:
            self._depth -= 1
        self._known[term] = found
        return found

    def without_void(self, form: Form) -> Form:
        """`form` without the alternatives that are proven to have no value."""
        return replace(
            form,
            numbers=tuple(part for part in form.numbers if not part.is_empty),
            texts=tuple(part for part in form.texts if not part.is_empty),
            arrays=tuple(part for part in form.arrays if not self._is_void_array(part)),
            objects=tuple(part for part in form.objects if not self._is_void_object(part)),
        )

    def _is_void_array(self, one: ArraySet) -> bool:
        needed = max(
            [one.low, *(demand.start + demand.low for demand in one.contained if demand.low)],
        )
        if one.high is not None and needed > one.high:
            return True
        if any(self.is_void(one.item(i)) for i in range(min(needed, len(one.prefix)))):
            return True
        if needed > len(one.prefix) and self.is_void(one.rest):
            return True
        for demand in one.contained:
            if demand.high is not None and demand.low > demand.high:
                return True
            terms = [one.rest, *one.prefix[demand.start :]]
            if demand.low and all(self.is_void(all_of((term, demand.term))) for term in terms):
                return True
        return False

    def _is_void_object(self, one: ObjectSet) -> bool:
        if any(self.is_void(one.value(name)) for name in one.required):
            return True
        return any(self.is_void(term) for _, term in one.some)
