"""A schema in a few lines for a prompt: fields in order, types, bounds, descriptions, an example; knows no grammar."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import cast

from sglang_lite.grammar.errors import InvalidGrammarError, UnsupportedGrammarError
from sglang_lite.grammar.json_schema.convert import parse_schema
from sglang_lite.grammar.json_schema.documents import Document, Schema, step

_MAX_DEPTH = 6
_BOUNDS = (
    ("minimum", "at least {}"),
    ("exclusiveMinimum", "above {}"),
    ("maximum", "at most {}"),
    ("exclusiveMaximum", "below {}"),
    ("multipleOf", "a multiple of {}"),
    ("minLength", "at least {} characters"),
    ("maxLength", "at most {} characters"),
    ("pattern", "matching {}"),
    ("format", "{}"),
    ("minItems", "at least {} items"),
    ("maxItems", "at most {} items"),
    ("uniqueItems", "no item twice"),
    ("minProperties", "at least {} members"),
    ("maxProperties", "at most {} members"),
)
_EXAMPLES: dict[str, object] = {
    "null": None,
    "boolean": True,
    "integer": 0,
    "number": 0,
    "string": "...",
    "array": [],
    "object": {},
}


def describe_schema(schema: Mapping[str, object] | bool | str) -> str:
    """A short text of `schema` that is the same whenever the schema is; it helps a model, and promises nothing.

    Raises:
        InvalidGrammarError: `schema` is no schema.
    """
    document = Document(parse_schema(schema))
    text = _Describer(document)
    lines = text.lines(document.root, "", 0)
    example = json.dumps(text.example(document.root, "", 0), ensure_ascii=False)
    return "\n".join([*lines, f"Example: {example}"])


class _Describer:
    """Walks one document down to `_MAX_DEPTH`; references are followed."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._open: list[str] = []

    def lines(self, schema: Schema, pointer: str, depth: int) -> list[str]:
        """The head line of a value, then its fields or items, indented."""
        schema, pointer = self._followed(schema, pointer)
        head = self._head(schema)
        if isinstance(schema, bool) or depth >= _MAX_DEPTH:
            return [head]
        if pointer in self._open:
            return [f"{head} (fields as above)"]
        self._open.append(pointer)
        found = [head, *("  " + line for line in self._inner(schema, pointer, depth))]
        self._open.pop()
        return found

    def _inner(self, schema: Mapping[str, object], pointer: str, depth: int) -> list[str]:
        found: list[str] = []
        required = cast("list[str]", schema.get("required", []))
        for name, child in _members(schema).items():
            at = step(step(pointer, "properties"), name)
            mark = "" if name in required else " (optional)"
            found.extend(_joined(f"{json.dumps(name, ensure_ascii=False)}{mark}: ", self.lines(child, at, depth + 1)))
        extra = schema.get("additionalProperties")
        if isinstance(extra, Mapping):
            at = step(pointer, "additionalProperties")
            found.extend(_joined("any other name: ", self.lines(cast("Schema", extra), at, depth + 1)))
        items = schema.get("items")
        if isinstance(items, Mapping):
            found.extend(_joined("each item: ", self.lines(cast("Schema", items), step(pointer, "items"), depth + 1)))
        for keyword in ("anyOf", "oneOf"):
            for at, branch in enumerate(cast("list[Schema]", schema.get(keyword, []))):
                found.extend(
                    _joined(
                        "either " if at == 0 else "or ", self.lines(branch, step(step(pointer, keyword), at), depth + 1)
                    )
                )
        return found

    def _head(self, schema: Schema) -> str:
        if isinstance(schema, bool):
            return "anything" if schema else "nothing"
        if "const" in schema:
            kind = json.dumps(schema["const"], ensure_ascii=False)
        elif "enum" in schema:
            kind = " | ".join(json.dumps(value, ensure_ascii=False) for value in cast("list[object]", schema["enum"]))
        else:
            types = schema.get("type", "object" if "properties" in schema else None)
            kind = " or ".join(cast("list[str]", types)) if isinstance(types, list) else str(types or "value")
        bounds = [
            words.format(schema[keyword])
            for keyword, words in _BOUNDS
            if keyword in schema and schema[keyword] is not False
        ]
        text = ", ".join([kind, *bounds])
        description = schema.get("description", schema.get("title"))
        return f"{text}: {description}" if isinstance(description, str) else text

    def _followed(self, schema: Schema, pointer: str) -> tuple[Schema, str]:
        seen: set[str] = set()
        while isinstance(schema, Mapping) and isinstance(schema.get("$ref"), str) and pointer not in seen:
            seen.add(pointer)
            try:
                pointer = self._document.resolve(cast("str", schema["$ref"]), pointer, "$ref")
            except (InvalidGrammarError, UnsupportedGrammarError):
                break
            schema = self._document.at(pointer)
        return schema, pointer

    def example(self, schema: Schema, pointer: str, depth: int) -> object:
        """A value in the shape of the schema: its own example where there is one, required members only."""
        schema, pointer = self._followed(schema, pointer)
        if isinstance(schema, bool) or depth >= _MAX_DEPTH:
            return None
        examples = schema.get("examples")
        if isinstance(examples, list) and examples:
            return cast("list[object]", examples)[0]
        for keyword in ("example", "const", "default"):
            if keyword in schema:
                return schema[keyword]
        if schema.get("enum"):
            return cast("list[object]", schema["enum"])[0]
        for keyword in ("anyOf", "oneOf", "allOf"):
            branches = cast("list[Schema]", schema.get(keyword, []))
            if branches and "properties" not in schema:
                return self.example(branches[0], step(step(pointer, keyword), 0), depth + 1)
        return self._typical(schema, pointer, depth)

    def _typical(self, schema: Mapping[str, object], pointer: str, depth: int) -> object:
        types = schema.get("type", "object" if "properties" in schema else "string")
        kind = cast("list[str]", types)[0] if isinstance(types, list) and types else types
        if kind == "object":
            required = cast("list[str]", schema.get("required", []))
            members = _members(schema)
            shown = [name for name in members if name in required] or list(members)
            at = step(pointer, "properties")
            return {name: self.example(members[name], step(at, name), depth + 1) for name in shown}
        if kind == "array" and isinstance(schema.get("items"), Mapping):
            return [self.example(cast("Schema", schema["items"]), step(pointer, "items"), depth + 1)]
        if kind in ("integer", "number") and isinstance(schema.get("minimum"), int | float):
            return schema["minimum"]
        return _EXAMPLES.get(str(kind), "...")


def _members(schema: Mapping[str, object]) -> Mapping[str, Schema]:
    found = schema.get("properties", {})
    return cast("Mapping[str, Schema]", found) if isinstance(found, Mapping) else {}


def _joined(prefix: str, lines: list[str]) -> list[str]:
    return [prefix + lines[0], *lines[1:]]
