"""The form of a Python type, found by its annotations."""

from __future__ import annotations

import dataclasses
import enum
import inspect
import json
import types
import typing
from collections.abc import Mapping, MutableMapping, MutableSequence, Sequence
from collections.abc import Set as AbstractSet
from typing import Annotated, Any, Literal, NotRequired, Required, TypeVar, Union, get_args, get_origin

from sglang_lite.errors import RequestError, UnsupportedError
from sglang_lite.lang.typed.forms import (
    AnyForm,
    ChoiceForm,
    DictForm,
    Form,
    LimitedForm,
    ListForm,
    ScalarForm,
    TupleForm,
    UnionForm,
)
from sglang_lite.lang.typed.limits import keywords_of
from sglang_lite.lang.typed.objects import Member, ModelForm, ObjectForm

_LISTS: dict[Any, Any] = {
    list: list,
    Sequence: list,
    MutableSequence: list,
    set: set,
    AbstractSet: set,
    frozenset: frozenset,
}
_DICTS = (dict, Mapping, MutableMapping)
_ALLOWED = (
    "int, float, bool, str, None, an enum, Literal, Optional and Union, list, set, tuple, dict[str, ...], a dataclass, "
    "TypedDict, NamedTuple, a pydantic model, or Any"
)


def form_of(annotation: Any) -> Form:
    """The form of a type.

    Raises:
        UnsupportedError: a type that has no JSON form here; names it and where it stands.
        RequestError: an annotation that cannot be resolved.
    """
    return _Reader().read(annotation)


class _Reader:
    """Reads one type; each class in it once, so that a class may contain itself."""

    def __init__(self) -> None:
        self._classes: dict[Any, Form] = {}
        self._where: list[str] = []

    def read(self, annotation: Any) -> Form:
        """The form of an annotation at the place where the reader is."""
        origin, args = get_origin(annotation), get_args(annotation)
        if origin is Annotated:
            return self._annotated(args[0], args[1:])
        if origin in (Required, NotRequired):
            return self.read(args[0])
        if origin is Literal:
            return ChoiceForm([(self._plain(value, annotation), value) for value in args])
        if origin in (Union, types.UnionType):
            return UnionForm([self.read(arg) for arg in args])
        if isinstance(annotation, typing.NewType):
            return self.read(annotation.__supertype__)
        if (container := self._container(annotation, origin or annotation, args)) is not None:
            return container
        if annotation in (Any, object):
            return AnyForm()
        if annotation in (int, float, bool, str, None, type(None)):
            return ScalarForm(type(None) if annotation is None else annotation)
        return self._class(annotation)

    def _annotated(self, inner: Any, metadata: Sequence[object]) -> Form:
        form = self.read(inner)
        is_list = isinstance(form, ListForm)
        keywords = keywords_of(metadata, is_list)
        return LimitedForm(form, keywords) if keywords else form

    def _container(self, annotation: Any, base: Any, args: tuple[Any, ...]) -> Form | None:
        if base in _LISTS:
            return ListForm(self._inner(args, 0), _LISTS[base])
        if base in _DICTS:
            if args and args[0] is not str:
                raise self._unsupported(annotation, "a dict with names of str: JSON has no others")
            return DictForm(self._inner(args, 1))
        if base is not tuple:
            return None
        if len(args) == 2 and args[1] is Ellipsis:
            return ListForm(self.read(args[0]), tuple)
        if not args and annotation is tuple:
            return ListForm(AnyForm(), tuple)
        return TupleForm([self.read(arg) for arg in args])

    def _inner(self, args: tuple[Any, ...], index: int) -> Form:
        return self.read(args[index]) if len(args) > index else AnyForm()

    def _class(self, annotation: Any) -> Form:
        if not inspect.isclass(annotation):
            raise self._unsupported(annotation)
        if annotation in self._classes:
            return self._classes[annotation]
        if issubclass(annotation, enum.Enum):
            return ChoiceForm([(self._plain(member.value, annotation), member) for member in annotation])
        if hasattr(annotation, "model_json_schema") and hasattr(annotation, "model_validate_json"):
            form = ModelForm(annotation, form_of)
            self._classes[annotation] = form
            return form
        if dataclasses.is_dataclass(annotation):
            return self._dataclass(annotation)
        if typing.is_typeddict(annotation):
            return self._object(annotation, self._keys(annotation), dict)
        defaults: dict[str, Any] | None = getattr(annotation, "_field_defaults", None)  # a NamedTuple's
        if defaults is not None:
            shown = {name: (name not in defaults, _as_json(defaults, name)) for name in self._hints(annotation)}
            return self._object(annotation, shown, annotation)
        raise self._unsupported(annotation)

    def _keys(self, cls: Any) -> Mapping[str, tuple[bool, Sequence[Any]]]:
        """The keys of a TypedDict; where its annotations are texts, it does not know its own marks."""
        required: frozenset[str] = cls.__required_keys__
        origins = {name: get_origin(hint) for name, hint in self._hints(cls).items()}
        return {
            name: (origin is Required or (origin is not NotRequired and name in required), ())
            for name, origin in origins.items()
        }

    def _dataclass(self, cls: Any) -> Form:
        shown: dict[str, tuple[bool, Sequence[Any]]] = {}
        for field in dataclasses.fields(cls):
            if field.init:
                is_required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
                shown[field.name] = (is_required, _as_json({"": field.default}, ""))
        return self._object(cls, shown, cls)

    def _object(self, cls: type, shown: Mapping[str, tuple[bool, Sequence[Any]]], make: Any) -> Form:
        """A class with these members: whether each is required, and its default."""
        has_checks = hasattr(cls, "__post_init__") or hasattr(cls, "__pydantic_validator__")
        form = ObjectForm(cls.__name__, make, may_refuse=has_checks, description=_description(cls))
        self._classes[cls] = form
        hints = self._hints(cls)
        for name, (is_required, default) in shown.items():
            self._where.append(f"{cls.__name__}.{name}")
            form.members[name] = Member(name, self.read(hints[name]), is_required, default)
            self._where.pop()
        return form

    def _hints(self, cls: type) -> dict[str, Any]:
        try:
            return typing.get_type_hints(cls, include_extras=True)
        except (NameError, TypeError) as error:
            raise RequestError(
                f"reading the type {cls.__name__}: its annotations cannot be resolved: {error}; define the classes that "
                "they name at the top of a module"
            ) from error

    def _plain(self, value: Any, annotation: Any) -> Any:
        if value is None or type(value) in (int, float, bool, str):
            return value
        if isinstance(value, enum.Enum):
            return self._plain(value.value, annotation)
        if isinstance(value, str | int):  # a member of a StrEnum or IntEnum keeps its plain value
            return str(value) if isinstance(value, str) else int(value)
        raise self._unsupported(annotation, f"values that are texts, numbers, bools or None, not {value!r}")

    def _unsupported(self, annotation: Any, expected: str = _ALLOWED) -> UnsupportedError:
        where = f" ({self._where[-1]})" if self._where else ""
        name = annotation.__name__ if isinstance(annotation, type | TypeVar) else repr(annotation)
        return UnsupportedError(f"reading the type {name}{where}: it has no JSON form here, expected {expected}")


def _as_json(values: Mapping[str, Any], name: str) -> Sequence[Any]:
    """The value in a tuple, if there is one and JSON can say it."""
    value = values.get(name, dataclasses.MISSING)
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        return ()
    return (value,)


def _description(cls: type) -> str | None:
    """The class's own docstring, not one that a decorator wrote."""
    text = cls.__dict__.get("__doc__")
    if not isinstance(text, str) or text.startswith(f"{cls.__name__}("):
        return None
    return inspect.cleandoc(text)
