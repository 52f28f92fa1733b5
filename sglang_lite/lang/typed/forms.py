"""What a type means in JSON: its schema, and the value that a JSON value stands for; it knows no prompt and no backend."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, cast

from sglang_lite.lang.typed.limits import broken_bound

Path: TypeAlias = tuple[str | int, ...]
"""Names and positions from the root of a JSON value to a part of it."""


class MismatchError(Exception):
    """A JSON value is none of the type. `failures`: where, and what is wrong there; at least one."""

    def __init__(self, failures: Sequence[tuple[Path, str]]) -> None:
        super().__init__("; ".join(f"{path_text(path)}: {message}" for path, message in failures))
        self.failures = tuple(failures)


def path_text(path: Path) -> str:
    """A path as it is written: `$.people[0].name`."""
    return "$" + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)


def mismatch(path: Path, value: object, expected: str) -> MismatchError:
    """The one failure of a value that is something else than expected."""
    return MismatchError([(path, f"got {value!r:.100}, expected {expected}")])


class Definitions:
    """The `$defs` of one schema: each class once, under a name of its own."""

    def __init__(self) -> None:
        self.schemas: dict[str, dict[str, Any]] = {}
        self._names: dict[int, str] = {}

    def ref(self, form: Form, wanted: str, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """A reference to the schema of `form`, which is made once."""
        name = self._names.get(id(form))
        if name is None:
            name = self._names[id(form)] = self.free_name(wanted)
            self.schemas[name] = {}  # taken: the schema may refer to itself
            self.schemas[name] = make()
        return {"$ref": f"#/$defs/{name}"}

    def free_name(self, wanted: str, schema: dict[str, Any] | None = None) -> str:
        """`wanted`, with a number where that is the name of another schema than this one."""
        name, number = wanted, 1
        while name in self.schemas and (schema is None or self.schemas[name] != schema):
            number += 1
            name = f"{wanted}{number}"
        return name


class Form(ABC):
    """One type. Forms of recursive classes refer to each other, so `parts` may have a cycle."""

    may_refuse = False
    """True where code of the type may refuse what its schema allows."""

    @abstractmethod
    def schema(self, defs: Definitions) -> dict[str, Any]:
        """The JSON schema where the type stands inside another one."""

    @abstractmethod
    def build(self, value: Any, path: Path) -> Any:
        """The value of the type that a JSON value stands for.

        Raises:
            MismatchError: there is none.
        """

    def root_schema(self) -> dict[str, Any]:
        """The whole JSON schema of the type."""
        defs = Definitions()
        schema = self.schema(defs)
        return {**schema, "$defs": defs.schemas} if defs.schemas else schema

    def part(self, key: str | int) -> Form | None:
        """The type of a member or an element; None: any JSON value."""
        return None

    def parts(self) -> Sequence[Form]:
        """The types of which it is made."""
        return ()


class AnyForm(Form):
    """Any JSON value, as plain Python."""

    def schema(self, defs: Definitions) -> dict[str, Any]:
        """No limit."""
        return {}

    def build(self, value: Any, path: Path) -> Any:
        """The value as it is."""
        return value


class ScalarForm(Form):
    """int, float, bool, str or None. A float may be written as a whole number, and a whole number as `3.0`."""

    _NAMES: Mapping[type, str] = {int: "integer", float: "number", bool: "boolean", str: "string", type(None): "null"}

    def __init__(self, kind: type) -> None:
        self.kind = kind

    def schema(self, defs: Definitions) -> dict[str, Any]:
        """Its JSON type."""
        return {"type": self._NAMES[self.kind]}

    def build(self, value: Any, path: Path) -> Any:
        """The value, a number in the type that was asked for."""
        if type(value) is self.kind:
            return value
        if self.kind is float and type(value) is int:
            return float(value)
        if self.kind is int and type(value) is float and value.is_integer():
            return int(value)
        raise mismatch(path, value, f"a JSON {self._NAMES[self.kind]}")


class ChoiceForm(Form):
    """One of given values: a `Literal` or an enum."""

    def __init__(self, values: Sequence[tuple[Any, Any]]) -> None:
        self.values = list(values)
        """Each as the JSON value and the Python value."""

    def schema(self, defs: Definitions) -> dict[str, Any]:
        """The list of values."""
        return {"enum": [written for written, _ in self.values]}

    def build(self, value: Any, path: Path) -> Any:
        """The Python value."""
        for written, meant in self.values:
            if type(written) is type(value) and written == value:
                return meant
        raise mismatch(path, value, f"one of {[written for written, _ in self.values]}")


class ListForm(Form):
    """A list of one type, given as `kind` (list, set, frozenset, tuple)."""

    def __init__(self, item: Form, kind: Callable[[list[Any]], Any] = list) -> None:
        self._item = item
        self._kind = kind

    def schema(self, defs: Definitions) -> dict[str, Any]:
        """An array."""
        return {"type": "array", "items": self._item.schema(defs)}

    def build(self, value: Any, path: Path) -> Any:
        """The elements; all that are wrong are told."""
        if not isinstance(value, list):
            raise mismatch(path, value, "a JSON array")
        return self._kind(
            build_all([(self._item, item, (*path, i)) for i, item in enumerate(cast("list[Any]", value))])
        )

    def part(self, key: str | int) -> Form | None:
        """The type of the elements."""
        return self._item

    def parts(self) -> Sequence[Form]:
        """The type of the elements."""
        return (self._item,)


class TupleForm(Form):
    """A list of fixed length, each place of its own type, given as a tuple."""

    def __init__(self, items: Sequence[Form]) -> None:
        self._items = list(items)

    def schema(self, defs: Definitions) -> dict[str, Any]:
        """An array of exactly these."""
        count = len(self._items)
        items = [item.schema(defs) for item in self._items]
        return {"type": "array", "prefixItems": items, "items": False, "minItems": count, "maxItems": count}

    def build(self, value: Any, path: Path) -> Any:
        """The elements."""
        given: list[Any] = cast("list[Any]", value) if isinstance(value, list) else []
        if not isinstance(value, list) or len(given) != len(self._items):
            raise mismatch(path, cast("Any", value), f"a JSON array of {len(self._items)}")
        items = enumerate(zip(self._items, given, strict=True))
        return tuple(build_all([(form, item, (*path, i)) for i, (form, item) in items]))

    def part(self, key: str | int) -> Form | None:
        """The type of one place."""
        return self._items[key] if isinstance(key, int) and key < len(self._items) else None

    def parts(self) -> Sequence[Form]:
        """The types of the places."""
        return self._items


class DictForm(Form):
    """An object with any names and values of one type."""

    def __init__(self, item: Form) -> None:
        self._item = item

    def schema(self, defs: Definitions) -> dict[str, Any]:
        """An object."""
        return {"type": "object", "additionalProperties": self._item.schema(defs)}

    def build(self, value: Any, path: Path) -> Any:
        """The members."""
        if not isinstance(value, dict):
            raise mismatch(path, value, "a JSON object")
        members = cast("dict[str, Any]", value)
        return dict(
            zip(members, build_all([(self._item, item, (*path, name)) for name, item in members.items()]), strict=True)
        )

    def part(self, key: str | int) -> Form | None:
        """The type of the values."""
        return self._item

    def parts(self) -> Sequence[Form]:
        """The type of the values."""
        return (self._item,)


class UnionForm(Form):
    """The first of several types that a value fits."""

    def __init__(self, options: Sequence[Form]) -> None:
        self._options = list(options)

    def schema(self, defs: Definitions) -> dict[str, Any]:
        """Any of the schemas."""
        return {"anyOf": [option.schema(defs) for option in self._options]}

    def build(self, value: Any, path: Path) -> Any:
        """The value as the first type that takes it; else what the type that came furthest says."""
        failed: list[MismatchError] = []
        for option in self._options:
            try:
                return option.build(value, path)
            except MismatchError as error:
                failed.append(error)
        raise max(failed, key=lambda error: len(error.failures[0][0]))

    def part(self, key: str | int) -> Form | None:
        """As of the only type that has such a part; None where several have it."""
        found = [part for option in self._options if (part := option.part(key)) is not None]
        return found[0] if len(found) == 1 else None

    def parts(self) -> Sequence[Form]:
        """The types."""
        return self._options


class LimitedForm(Form):
    """A type with bounds, in JSON Schema's words, on what is written."""

    def __init__(self, inner: Form, keywords: Mapping[str, Any]) -> None:
        self._inner = inner
        self._keywords = keywords

    def schema(self, defs: Definitions) -> dict[str, Any]:
        """The type's schema and the bounds."""
        return {**self._inner.schema(defs), **self._keywords}

    def build(self, value: Any, path: Path) -> Any:
        """The value, once it is within the bounds."""
        built = self._inner.build(value, path)
        if (expected := broken_bound(self._keywords, value)) is not None:
            raise mismatch(path, value, expected)
        return built

    def part(self, key: str | int) -> Form | None:
        """As of the type."""
        return self._inner.part(key)

    def parts(self) -> Sequence[Form]:
        """The type."""
        return (self._inner,)


def build_all(wanted: Sequence[tuple[Form, Any, Path]]) -> list[Any]:
    """Build several values.

    Raises:
        MismatchError: with the failures of all of them.
    """
    built: list[Any] = []
    failures: list[tuple[Path, str]] = []
    for form, value, path in wanted:
        try:
            built.append(form.build(value, path))
        except MismatchError as error:
            failures.extend(error.failures)
    if failures:
        raise MismatchError(failures)
    return built
