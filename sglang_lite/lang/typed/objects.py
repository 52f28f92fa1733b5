"""Types with named members: dataclasses, TypedDicts, NamedTuples, and classes that validate themselves (pydantic's)."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from sglang_lite.lang.typed.forms import Definitions, Form, MismatchError, Path, build_all, mismatch

_FRAGMENTS = "$defs"


@dataclass(frozen=True, slots=True)
class Member:
    """One named member. `default`: a JSON value for the schema, in a list; empty: there is none to show."""

    name: str
    form: Form
    is_required: bool
    default: Sequence[Any] = ()


class ObjectForm(Form):
    """A class whose members are known; `make` gets them by name. `members` are filled in once all types are known."""

    def __init__(
        self, name: str, make: Callable[..., Any], *, may_refuse: bool, description: str | None = None
    ) -> None:
        self._name = name
        self._make = make
        self._description = description
        self.members: dict[str, Member] = {}
        self.may_refuse = may_refuse

    def schema(self, defs: Definitions) -> dict[str, Any]:
        """A reference to the object's schema."""
        return defs.ref(self, self._name, lambda: self._object(defs))

    def root_schema(self) -> dict[str, Any]:
        """The object itself: some readers of schemas take no reference at the root."""
        defs = Definitions()
        schema = self._object(defs)
        return {**schema, _FRAGMENTS: defs.schemas} if defs.schemas else schema

    def _object(self, defs: Definitions) -> dict[str, Any]:
        found: dict[str, Any] = {"type": "object"}
        if self._description:
            found["description"] = self._description
        found["properties"] = {
            member.name: {**member.form.schema(defs), **({"default": member.default[0]} if member.default else {})}
            for member in self.members.values()
        }
        found["required"] = [member.name for member in self.members.values() if member.is_required]
        found["additionalProperties"] = False
        return found

    def build(self, value: Any, path: Path) -> Any:
        """An object of the class; what its own code refuses is a failure of the whole object."""
        if not isinstance(value, dict):
            raise mismatch(path, value, f"a JSON object ({self._name})")
        given = cast("dict[str, Any]", value)
        failures: list[tuple[Path, str]] = [
            ((*path, name), f"expected no such member; {self._name} has {list(self.members)}")
            for name in given
            if name not in self.members
        ]
        failures += [
            ((*path, name), "is missing")
            for name, member in self.members.items()
            if member.is_required and name not in given
        ]
        names = [name for name in given if name in self.members]
        try:
            parts = build_all([(self.members[name].form, given[name], (*path, name)) for name in names])
        except MismatchError as error:
            raise MismatchError([*failures, *error.failures]) from error
        if failures:
            raise MismatchError(failures)
        try:
            return self._make(**dict(zip(names, parts, strict=True)))
        except ValueError as error:
            raise MismatchError([(path, str(error))]) from error

    def part(self, key: str | int) -> Form | None:
        """The type of a member."""
        member = self.members.get(str(key))
        return None if member is None else member.form

    def parts(self) -> Sequence[Form]:
        """The types of the members."""
        return [member.form for member in self.members.values()]


class ModelForm(Form):
    """A class that has a schema and validates JSON by itself, by pydantic's methods.

    Args:
        form_of: gives the form of a member's type, for reading a value that is not complete.
    """

    may_refuse = True

    def __init__(self, model: Any, form_of: Callable[[Any], Form]) -> None:
        self._model = model
        self._form_of = form_of

    def schema(self, defs: Definitions) -> dict[str, Any]:
        """A reference to the class's own schema, whose `$defs` become part of the whole; names that clash get a number."""
        own: dict[str, Any] = self._model.model_json_schema()
        inner: dict[str, Any] = own.pop(_FRAGMENTS, {})
        renamed: dict[str, str] = {}
        new: list[Any] = [own]
        for name, part in inner.items():
            taken = defs.free_name(name, part)
            renamed[f"#/$defs/{name}"] = f"#/$defs/{taken}"
            if taken not in defs.schemas:
                defs.schemas[taken] = part
                new.append(part)
        for part in new:
            _rename(part, renamed)
        if set(own) == {"$ref"}:  # a class that contains itself is one of its own definitions
            return own
        name = defs.free_name(self._model.__name__, own)
        defs.schemas[name] = own
        return {"$ref": f"#/$defs/{name}"}

    def root_schema(self) -> dict[str, Any]:
        """The class's own schema."""
        return self._model.model_json_schema()

    def build(self, value: Any, path: Path) -> Any:
        """What the class's own validation makes of the JSON text."""
        return self.build_text(json.dumps(value, ensure_ascii=False), path)

    def build_text(self, text: str, path: Path) -> Any:
        """As `build`, of the text itself: validators see what was written."""
        try:
            return self._model.model_validate_json(text)
        except ValueError as error:
            raise MismatchError(_own_failures(error, path)) from error

    def part(self, key: str | int) -> Form | None:
        """The type of the field of that name or alias."""
        for name, info in self._model.model_fields.items():
            if key in (name, info.alias):
                return self._form_of(info.annotation)
        return None


def _rename(schema: Any, renamed: dict[str, str]) -> None:
    if isinstance(schema, dict):
        members = cast("dict[str, Any]", schema)
        if members.get("$ref") in renamed:
            members["$ref"] = renamed[members["$ref"]]
        for part in members.values():
            _rename(part, renamed)
    elif isinstance(schema, list):
        for part in cast("list[Any]", schema):
            _rename(part, renamed)


def _own_failures(error: ValueError, path: Path) -> list[tuple[Path, str]]:
    """What pydantic's error lists; the message of another one."""
    errors: Callable[[], list[dict[str, Any]]] | None = getattr(error, "errors", None)
    if errors is None:
        return [(path, str(error))]
    return [((*path, *found["loc"]), str(found["msg"])) for found in errors()]
