"""A schema as a document: its subschemas by JSON Pointer, its identifiers and anchors, and what a reference leads to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import cast
from urllib.parse import unquote, urljoin

from sglang_lite.grammar.errors import InvalidGrammarError, UnsupportedGrammarError

Schema = Mapping[str, object] | bool

ONE_SCHEMA = frozenset(
    [
        "additionalProperties",
        "propertyNames",
        "unevaluatedProperties",
        "unevaluatedItems",
        "additionalItems",
        "contains",
        "not",
        "if",
        "then",
        "else",
        "contentSchema",
    ]
)
SCHEMA_LISTS = frozenset(["allOf", "anyOf", "oneOf", "prefixItems"])
SCHEMA_MAPS = frozenset(["properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"])


def step(pointer: str, token: object) -> str:
    """The JSON Pointer of a member of what `pointer` names."""
    return f"{pointer}/{str(token).replace('~', '~0').replace('/', '~1')}"


def subschemas(pointer: str, schema: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    """The (pointer, raw value) pairs at the places where keywords hold schemas, one level down."""
    for keyword, value in schema.items():
        at = step(pointer, keyword)
        if keyword in ONE_SCHEMA or (keyword == "items" and not isinstance(value, list)):
            yield at, value
        elif (keyword in SCHEMA_LISTS or keyword == "items") and isinstance(value, list):
            yield from ((step(at, i), item) for i, item in enumerate(cast("list[object]", value)))
        elif keyword in SCHEMA_MAPS and isinstance(value, Mapping):
            members = cast("Mapping[str, object]", value)
            # `dependencies` of older drafts may hold lists of names.
            yield from ((step(at, name), item) for name, item in members.items() if not isinstance(item, list))


class Document:
    """One root schema with the resources embedded in it. References to other documents are refused.

    Attributes:
        root: the schema.
        visited: pointer -> schema object, of all places where keywords hold schemas.
    """

    def __init__(self, root: Schema) -> None:
        self.root = root
        self.visited: dict[str, Mapping[str, object]] = {}
        self._resources: dict[str, str] = {}
        self._bases: dict[str, str] = {}
        self._anchors: dict[tuple[str, str], str] = {}
        self._dynamic: dict[str, dict[str, str]] = {}
        self._old_id = isinstance(root, Mapping) and "draft-04" in str(root.get("$schema", ""))
        self._resources[""] = ""
        self._bases[""] = ""
        self._collect(root)

    def _collect(self, root: Schema) -> None:
        pending: list[tuple[str, object, str]] = [("", root, "")]
        while pending:
            pointer, value, base = pending.pop()
            if not isinstance(value, Mapping):
                continue
            schema = cast("Mapping[str, object]", value)
            self.visited[pointer] = schema
            base = self._identify(pointer, schema, base)
            pending.extend((at, item, base) for at, item in subschemas(pointer, schema))

    def _identify(self, pointer: str, schema: Mapping[str, object], base: str) -> str:
        identifier = schema.get("$id", schema.get("id") if self._old_id else None)
        if isinstance(identifier, str):
            uri, _, fragment = identifier.partition("#")
            if uri:
                base = _join(base, uri)
                self._resources.setdefault(base, pointer)
                self._bases[pointer] = base
            if fragment and not fragment.startswith("/"):
                self._anchors[base, fragment] = pointer
        for keyword in ("$anchor", "$dynamicAnchor"):
            name = schema.get(keyword)
            if isinstance(name, str):
                self._anchors[base, name] = pointer
                if keyword == "$dynamicAnchor":
                    self._dynamic.setdefault(base, {})[name] = pointer
        return base

    def base_of(self, pointer: str) -> str:
        """The identifier of the resource that the schema at `pointer` belongs to; "" for a root without one."""
        while pointer not in self._bases:
            pointer = pointer.rpartition("/")[0]
        return self._bases[pointer]

    def dynamic_anchors(self, pointer: str) -> Mapping[str, str]:
        """Name -> pointer of the dynamic anchors in the resource of `pointer`."""
        return self._dynamic.get(self.base_of(pointer), {})

    def at(self, pointer: str) -> Schema:
        """The schema at `pointer`.

        Raises:
            InvalidGrammarError: there is nothing, or what is there is no schema.
        """
        found = self.visited.get(pointer)
        if found is not None:
            return found
        value: object = self.root
        for token in pointer.split("/")[1:]:
            name = token.replace("~1", "/").replace("~0", "~")
            if isinstance(value, Mapping) and name in value:
                value = cast("Mapping[str, object]", value)[name]
            elif isinstance(value, list) and name.isdigit() and int(name) < len(cast("list[object]", value)):
                value = cast("list[object]", value)[int(name)]
            else:
                raise InvalidGrammarError(f"reading a JSON Schema: there is nothing at #{pointer}")
        if not isinstance(value, Mapping | bool):
            raise InvalidGrammarError(
                f"reading a JSON Schema: #{pointer} is no schema, expected an object or a boolean"
            )
        return cast("Schema", value)

    def resolve(self, reference: str, pointer: str, keyword: str) -> str:
        """The pointer that the reference in the schema at `pointer` leads to.

        Raises:
            UnsupportedGrammarError: it leads to another document.
            InvalidGrammarError: it leads nowhere.
        """
        where = f"#{step(pointer, keyword)}"
        target, _, fragment = reference.partition("#")
        base = self.base_of(pointer)
        uri = _join(base, target) if target else base
        if uri not in self._resources:
            raise UnsupportedGrammarError(
                f"{keyword} at {where}: {reference!r} leads to another document, and none is fetched; "
                "copy its schema under $defs with that $id"
            )
        start = self._resources[uri]
        fragment = unquote(fragment)
        if not fragment or fragment.startswith("/"):
            found = start + fragment
            try:
                self.at(found)
            except InvalidGrammarError:
                raise InvalidGrammarError(
                    f"{keyword} at {where}: {reference!r} leads to nothing that is a schema"
                ) from None
            return found
        found_anchor = self._anchors.get((uri, fragment))
        if found_anchor is None:
            raise InvalidGrammarError(f"{keyword} at {where}: there is no anchor {fragment!r}")
        return found_anchor

    def is_dynamic(self, pointer: str, name: str) -> bool:
        """Whether `pointer` is the place of the dynamic anchor `name`."""
        return self.dynamic_anchors(pointer).get(name) == pointer


def _join(base: str, target: str) -> str:
    if ":" in target.split("/")[0]:
        return target
    return urljoin(base, target)
