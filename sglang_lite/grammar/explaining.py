"""Why a text is not in a grammar, and what became of each keyword of a schema; for people, not for the engine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sglang_lite.grammar.charset import Range
from sglang_lite.grammar.compiled import CompiledGrammar
from sglang_lite.grammar.errors import GrammarError
from sglang_lite.grammar.json_schema import SchemaNote, SchemaOptions, schema_to_grammar
from sglang_lite.grammar.json_schema.documents import step
from sglang_lite.grammar.json_schema.formats import KNOWN_FORMATS

ANNOTATIONS = frozenset(
    {"title", "description", "default", "examples", "example", "$schema", "$id", "$comment", "$anchor", "$dynamicAnchor", "$vocabulary"}
    | {"discriminator", "deprecated", "readOnly", "writeOnly", "externalDocs", "xml", "contentMediaType", "contentEncoding", "contentSchema"}
)  # fmt: skip
_NAMED = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_LISTED = ("allOf", "anyOf", "oneOf", "prefixItems")
_SINGLE = (
    "items", "additionalProperties", "propertyNames", "contains", "not", "if", "then", "else", "unevaluatedItems", "unevaluatedProperties",
)  # fmt: skip
_KNOWN = frozenset(
    {"type", "enum", "const", "required", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength", "maxLength"}
    | {"pattern", "format", "minItems", "maxItems", "uniqueItems", "minContains", "maxContains", "minProperties", "maxProperties"}
    | {"dependentRequired", "dependencies", "additionalItems", "$ref", "$dynamicRef", "$recursiveRef", "nullable"}
    | {*_NAMED, *_LISTED, *_SINGLE}
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class TextFailure:
    """The place at which a text leaves a grammar.

    Attributes:
        offset: bytes that could be read.
        expected: the bytes that could stand there, as ranges; none where the text had to end.
        may_end: whether the text could have ended there.
    """

    offset: int
    expected: tuple[Range, ...]
    may_end: bool


@dataclass(frozen=True, slots=True)
class KeywordEffect:
    """What became of a keyword: `exact`, `narrower`, `unchecked`, `annotation` or `ignored` (an unknown name), with a detail."""

    pointer: str
    keyword: str
    effect: str
    detail: str


def first_failure(compiled: CompiledGrammar, text: str | bytes) -> TextFailure | None:
    """Where `text` leaves the grammar, at its end included; None if it belongs to it."""
    data = text.encode(errors="surrogatepass") if isinstance(text, str) else text
    state, offset = compiled.start_state, 0
    while offset < len(data):
        following = compiled.advance_bytes(state, data[offset : offset + 1])
        if following < 0:
            break
        state, offset = following, offset + 1
    if offset == len(data) and compiled.is_accepting(state):
        return None
    bytes_on = [byte for byte in range(256) if compiled.advance_bytes(state, bytes([byte])) >= 0]
    expected: list[Range] = []
    for byte in bytes_on:
        if expected and expected[-1][1] == byte - 1:
            expected[-1] = (expected[-1][0], byte)
        else:
            expected.append((byte, byte))
    return TextFailure(offset, tuple(expected), compiled.is_accepting(state))


def explain_schema(schema: Mapping[str, Any] | bool, options: SchemaOptions) -> list[KeywordEffect]:
    """Every keyword of `schema`, in its order, and what became of it. A refusal is in the list too, as `refused` at the end.

    Keywords that the start does not reach count as exact.
    """
    refused: GrammarError | None = None
    notes: tuple[SchemaNote, ...] = ()
    try:
        notes = schema_to_grammar(schema, options).notes
    except GrammarError as error:
        refused = error
    by_keyword = {(_parent(note), note.keyword): note for note in notes}
    found: list[KeywordEffect] = []
    _look(schema, "", by_keyword, options, found)
    if refused is not None:
        found.append(KeywordEffect("", "", "refused", str(refused)))
    return found


def _parent(note: SchemaNote) -> str:
    suffix = step("", note.keyword)
    return note.pointer.removesuffix(suffix)


def _is_enforced(name: Any, options: SchemaOptions) -> bool:
    return options.formats == "assert" and name in KNOWN_FORMATS


def _look(
    schema: Any,
    pointer: str,
    notes: Mapping[tuple[str, str], SchemaNote],
    options: SchemaOptions,
    found: list[KeywordEffect],
) -> None:
    if not isinstance(schema, Mapping):
        return
    for keyword, value in schema.items():
        at = step(pointer, keyword)
        note = notes.get((pointer, keyword))
        if note is not None:
            found.append(KeywordEffect(at, keyword, note.effect, note.detail))
        elif keyword in ANNOTATIONS or (keyword == "format" and not _is_enforced(value, options)):
            found.append(KeywordEffect(at, keyword, "annotation", ""))
        else:
            known = keyword in _KNOWN
            found.append(KeywordEffect(at, keyword, "exact" if known else "ignored", ""))
        if keyword in _NAMED and isinstance(value, Mapping):
            for name, inner in value.items():
                _look(inner, step(at, str(name)), notes, options, found)
        elif keyword in _LISTED and isinstance(value, list):
            for index, inner in enumerate(value):
                _look(inner, step(at, str(index)), notes, options, found)
        elif keyword in _SINGLE:
            _look(value, at, notes, options, found)
