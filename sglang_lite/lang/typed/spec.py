"""A type as a gen uses it: the constraint on the text, and the value of a whole text; it knows no attempts."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any, NoReturn, get_args, get_origin

from sglang_lite.errors import RequestError, ValidationError
from sglang_lite.lang.ir import REGEX_TYPED_BOOL, REGEX_TYPED_FLOAT, REGEX_TYPED_INT
from sglang_lite.lang.typed.forms import ChoiceForm, Form, MismatchError, Path, ScalarForm, path_text
from sglang_lite.lang.typed.objects import ModelForm
from sglang_lite.lang.typed.of_type import form_of

_REGEXES: dict[type, str] = {
    int: REGEX_TYPED_INT,
    float: REGEX_TYPED_FLOAT,
    bool: REGEX_TYPED_BOOL,
    type(None): r"(null|None)",
}
_NUMBER_STOPS = (" ", "\n")
_WORDS = {"true": True, "false": False, "null": None, "none": None}


@dataclass(frozen=True, slots=True)
class Typed:
    """A type, its constraint (at most one of `regex`, `choices`, `json_schema`; none: free text), and its values.

    `stop`: texts that end a bare number. `may_refuse`: there are checks beyond the constraint.
    """

    name: str
    form: Form
    regex: str | None = None
    choices: tuple[str, ...] | None = None
    json_schema: str | None = None
    stop: tuple[str, ...] = ()
    check: Callable[[Any], Any] | None = None

    @property
    def is_free(self) -> bool:
        """True for text without a form."""
        return self.regex is None and self.choices is None and self.json_schema is None

    @property
    def may_refuse(self) -> bool:
        """True where a text may fit the constraint and yet be no value."""
        return self.check is not None or any(form.may_refuse for form in all_forms(self.form))

    def parse(self, text: str) -> Any:
        """The value that a whole text means.

        Raises:
            ValidationError: it means none; what is wrong, and where.
        """
        try:
            value = self._value(text)
        except MismatchError as error:
            self.refuse(text, error)
        if self.check is not None:
            try:
                self.check(value)
            except (ValueError, AssertionError) as error:  # how validators say no
                self.refuse(text, MismatchError([((), str(error) or type(error).__name__)]))
        return value

    def _value(self, text: str) -> Any:
        if self.json_schema is not None:
            if isinstance(self.form, ModelForm):
                return self.form.build_text(text, ())
            return self.form.build(parse_json(text, ()), ())
        if isinstance(self.form, ScalarForm) and self.form.kind is str:
            return text
        if self.choices is not None:
            return _meant(self.form, text)
        return self.form.build(_bare(text), ())

    def refuse(self, text: str, error: MismatchError) -> NoReturn:
        """Say that a text is no value.

        Raises:
            ValidationError: always.
        """
        failures = tuple((path_text(path), message) for path, message in error.failures)
        raise ValidationError(
            f"reading a {self.name}: " + "; ".join(f"{path}: {message}" for path, message in failures),
            text=text,
            failures=failures,
        ) from error


def all_forms(form: Form) -> Iterator[Form]:
    """A form and those of its parts, each once."""
    seen: dict[int, Form] = {}
    left = [form]
    while left:
        found = left.pop()
        if id(found) not in seen:
            seen[id(found)] = found
            left.extend(found.parts())
            yield found


def parse_json(text: str, path: Path) -> Any:
    """A JSON text as plain Python.

    Raises:
        MismatchError: it is no JSON.
    """

    def refuse(word: str) -> NoReturn:
        raise ValueError(f"{word} is no JSON number")

    try:
        return json.loads(text, parse_constant=refuse)
    except (ValueError, RecursionError) as error:
        raise MismatchError([(path, f"no JSON: {error}")]) from error


def _bare(text: str) -> Any:
    """A scalar that stands alone in a text, in Python's or JSON's words."""
    stripped = text.strip()
    if stripped.lower() in _WORDS:
        return _WORDS[stripped.lower()]
    if re.fullmatch(r"[-+]?[0-9]+", stripped):
        return int(stripped)
    if re.fullmatch(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?", stripped):
        return float(stripped)
    return text


def _written(form: ChoiceForm) -> list[tuple[str, Any]]:
    """Each value of a choice as it stands alone in a text: without quotes."""
    return [
        (value if isinstance(value, str) else json.dumps(value, ensure_ascii=False), meant)
        for value, meant in form.values
    ]


def _meant(form: Form, text: str) -> Any:
    assert isinstance(form, ChoiceForm), f"choices for a {type(form).__name__}"
    for written, meant in _written(form):
        if written == text:
            return meant
    for written, meant in _written(form):
        if written.strip() == text.strip():
            return meant
    raise MismatchError([((), f"got {text!r:.100}, expected one of {[written for written, _ in _written(form)]}")])


def name_of(annotation: Any) -> str:
    """A type as messages show it."""
    if get_origin(annotation) is Annotated:
        return name_of(get_args(annotation)[0])
    return annotation.__name__ if inspect.isclass(annotation) else str(annotation).replace("typing.", "")


def typed(annotation: Any, *, regex: str | None = None, check: Callable[[Any], Any] | None = None) -> Typed:
    """What a gen of this type is held to. Scalars, enums and Literals stand bare in the text, all else as JSON.

    Args:
        regex: in place of the one for a bare scalar.
        check: raises `ValueError` (or fails an `assert`) where a value is not good.

    Raises:
        UnsupportedError: a type that has no form here.
        RequestError: two choices that are written alike; a regex where the type brings another constraint.
    """
    form, name = form_of(annotation), name_of(annotation)
    if isinstance(form, ScalarForm):
        stop = _NUMBER_STOPS if form.kind in (int, float) and regex is None else ()
        return Typed(name, form, regex or _REGEXES.get(form.kind), stop=stop, check=check)
    if regex is not None:
        raise RequestError(f"making a gen of type {name}: got regex={regex!r}, too; the type has its own constraint")
    if isinstance(form, ChoiceForm):
        choices = tuple(written for written, _ in _written(form))
        if len(set(choices)) < len(choices) or "" in choices:
            raise RequestError(
                f"making a gen of type {name}: its values are written {list(choices)}, expected texts that differ, none "
                "of them empty"
            )
        return Typed(name, form, choices=choices, check=check)
    schema = json.dumps(form.root_schema(), ensure_ascii=False)
    return Typed(name, form, json_schema=schema, check=check)
