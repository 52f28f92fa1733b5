"""Sets of JSON values as unions by type: the normal form that all keywords are brought to, and its algebra; knows no keyword."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from typing import TypeVar

from sglang_lite.grammar.errors import GrammarTooLargeError
from sglang_lite.grammar.hashing import Hashed, hashed_once
from sglang_lite.grammar.json_schema.members import ALL_OBJECTS, ObjectSet, complement_objects, meet_objects
from sglang_lite.grammar.json_schema.numeric import (
    ALL_NUMBERS,
    NumberSet,
    complement_numbers,
    meet_numbers,
    number_values,
)
from sglang_lite.grammar.json_schema.sequences import ALL_ARRAYS, ArraySet, complement_arrays, meet_arrays
from sglang_lite.grammar.json_schema.texts import ALL_TEXTS, TextSet, complement_texts, meet_texts, text_values

MAX_ALTERNATIVES = 512
Part = TypeVar("Part", NumberSet, TextSet, ArraySet, ObjectSet)
Container = TypeVar("Container", ArraySet, ObjectSet)


@hashed_once
@dataclass(frozen=True, slots=True)
class Form(Hashed):
    """A set of JSON values: for each type a union of sets; an empty tuple is no value of the type.

    `inexact` says that a keyword was left out on the way (never so in strict mode), so the form is too wide.
    """

    null: bool = False
    true: bool = False
    false: bool = False
    numbers: tuple[NumberSet, ...] = ()
    texts: tuple[TextSet, ...] = ()
    arrays: tuple[ArraySet, ...] = ()
    objects: tuple[ObjectSet, ...] = ()
    inexact: bool = False

    @property
    def is_bare(self) -> bool:
        """Whether no alternative is left at all."""
        return not (self.null or self.true or self.false or self.numbers or self.texts or self.arrays or self.objects)


EVERYTHING = Form(True, True, True, (ALL_NUMBERS,), (ALL_TEXTS,), (ALL_ARRAYS,), (ALL_OBJECTS,))
NOTHING = Form()


def intersect(left: Form, right: Form) -> Form:
    """The values in both.

    Raises:
        GrammarTooLargeError: the union has more than `MAX_ALTERNATIVES` parts.
    """
    if left == EVERYTHING or right == EVERYTHING:
        return right if left == EVERYTHING else left
    return Form(
        left.null and right.null,
        left.true and right.true,
        left.false and right.false,
        _meet(left.numbers, right.numbers, meet_numbers),
        _meet(left.texts, right.texts, meet_texts),
        _meet(left.arrays, right.arrays, meet_arrays),
        _meet(left.objects, right.objects, meet_objects),
        left.inexact or right.inexact,
    )


def unite(forms: Iterable[Form]) -> Form:
    """The values in one of `forms` at least."""
    parts = list(forms)
    return Form(
        any(form.null for form in parts),
        any(form.true for form in parts),
        any(form.false for form in parts),
        _join_numbers([part for form in parts for part in form.numbers]),
        _join_texts([part for form in parts for part in form.texts]),
        _seeing([part for form in parts for part in form.arrays], ALL_ARRAYS),
        _seeing([part for form in parts for part in form.objects], ALL_OBJECTS),
        any(form.inexact for form in parts),
    )


def negate(form: Form) -> Form:
    """The values that are not in `form`.

    Raises:
        UnsupportedGrammarError, GrammarTooLargeError: the complement has no finite form.
    """
    return Form(
        not form.null,
        not form.true,
        not form.false,
        _outside(form.numbers, ALL_NUMBERS, complement_numbers, meet_numbers),
        _outside(form.texts, ALL_TEXTS, complement_texts, meet_texts),
        _outside(form.arrays, ALL_ARRAYS, complement_arrays, meet_arrays),
        _outside(form.objects, ALL_OBJECTS, complement_objects, meet_objects),
        form.inexact,
    )


def _meet(left: Sequence[Part], right: Sequence[Part], meet: Callable[[Part, Part], Part | None]) -> tuple[Part, ...]:
    if len(left) * len(right) > MAX_ALTERNATIVES * 8:
        raise _too_many()
    found: dict[Part, None] = {}
    for one, other in product(left, right):
        met = meet(one, other)
        if met is not None:
            found[met] = None
    if len(found) > MAX_ALTERNATIVES:
        raise _too_many()
    return tuple(found)


def _outside(
    parts: Sequence[Part],
    everything: Part,
    contrary: Callable[[Part], list[Part]],
    meet: Callable[[Part, Part], Part | None],
) -> tuple[Part, ...]:
    found: tuple[Part, ...] = (everything,)
    for part in parts:
        found = _meet(found, contrary(part), meet)
    return found


def _distinct(parts: list[Part], everything: Part) -> tuple[Part, ...]:
    return (everything,) if everything in parts else tuple(dict.fromkeys(parts))


def _seeing(parts: list[Container], everything: Container) -> tuple[Container, ...]:
    # What a part has seen matters to an enclosing `unevaluated...`, even where its members are in another part as well.
    return tuple(dict.fromkeys(parts)) if any(part.has_seen for part in parts) else _distinct(parts, everything)


def _join_numbers(parts: list[NumberSet]) -> tuple[NumberSet, ...]:
    values = [part.values for part in parts if part.values is not None]
    others = [part for part in parts if part.values is None]
    if len(values) > 1:
        return _distinct([number_values(frozenset[Fraction]().union(*values)), *others], ALL_NUMBERS)
    return _distinct(parts, ALL_NUMBERS)


def _join_texts(parts: list[TextSet]) -> tuple[TextSet, ...]:
    values = [part.values for part in parts if part.values is not None and not part.offered]
    others = [part for part in parts if part.values is None or part.offered]
    if len(values) > 1:
        return _distinct([text_values(frozenset[str]().union(*values)), *others], ALL_TEXTS)
    return _distinct(parts, ALL_TEXTS)


def _too_many() -> GrammarTooLargeError:
    return GrammarTooLargeError(
        f"combining schemas: more than {MAX_ALTERNATIVES} alternatives of one type; "
        "state the common parts once, outside anyOf, oneOf, not and if"
    )
