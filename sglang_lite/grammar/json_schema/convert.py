"""A JSON Schema to a grammar: the front door of the package."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import cast

from sglang_lite.grammar.errors import GrammarTooLargeError, InvalidGrammarError
from sglang_lite.grammar.json_schema.checking import check_document
from sglang_lite.grammar.json_schema.documents import Document, Schema
from sglang_lite.grammar.json_schema.emit import Emitter
from sglang_lite.grammar.json_schema.normalise import Normaliser
from sglang_lite.grammar.json_schema.options import SchemaGrammar, SchemaOptions
from sglang_lite.grammar.json_schema.productive import without_dead_rules
from sglang_lite.grammar.json_schema.terms import FALSE, TRUE, Located
from sglang_lite.grammar.syntax import NEVER, concat

DEFAULT_OPTIONS = SchemaOptions()


def schema_to_grammar(
    schema: Mapping[str, object] | bool | str, options: SchemaOptions = DEFAULT_OPTIONS
) -> SchemaGrammar:
    """The grammar of the JSON texts whose value is valid under `schema`, in the layout that `options` ask for.

    Every text of the grammar is valid. Not every valid text is in it: members come in the order of the schema, declared ones first;
    a declared name comes once; names and restricted strings are spelled canonically; whole numbers have no point and no exponent;
    bounded numbers have no exponent; listed numbers are spelled one way; digits are limited; the escape of a lone surrogate is
    never offered. What else is left out is in the notes. Names that are not declared may come twice in one object, and `minProperties`
    then counts both. OpenAPI's `nullable` beside `type` adds null. Keywords beside `$ref` count in every draft.

    Args:
        schema: an object, a boolean, or the JSON text of one.
        options: see `SchemaOptions`.

    Raises:
        InvalidGrammarError: the schema is malformed, or no value is valid; names the JSON Pointer.
        UnsupportedGrammarError: a keyword cannot be enforced; names it and its JSON Pointer.
        GrammarTooLargeError: it needs too many alternatives, rules or levels.
    """
    document = Document(parse_schema(schema))
    check_document(document)
    normaliser = Normaliser(document, options)
    emitter = Emitter(normaliser)
    root = document.root
    if isinstance(root, bool):
        term = TRUE if root else FALSE
    else:
        term = Located("", tuple(sorted(document.dynamic_anchors("").items())))
    try:
        start = emitter.value(term)
    except RecursionError:
        raise GrammarTooLargeError("reading a JSON Schema: it is nested too deeply") from None
    gap = emitter.layout.gap
    grammar = without_dead_rules(concat([gap, start, gap]), emitter.rules)
    if grammar.start == NEVER:
        raise InvalidGrammarError("reading a JSON Schema: no value is valid under it")
    return SchemaGrammar(grammar, tuple(normaliser.notes))


def parse_schema(schema: Mapping[str, object] | bool | str) -> Schema:
    """`schema` itself, or the schema in a JSON text.

    Raises:
        InvalidGrammarError: a text that is not JSON, or something that is no schema.
    """
    found: object = schema
    if isinstance(schema, str):
        try:
            found = json.loads(schema)
        except ValueError as error:
            raise InvalidGrammarError(f"reading a JSON Schema: the text is not JSON ({error})") from None
        except RecursionError:
            raise GrammarTooLargeError("reading a JSON Schema: the text is nested too deeply") from None
    if not isinstance(found, Mapping | bool):
        raise InvalidGrammarError(f"reading a JSON Schema: got {type(found).__name__}, expected an object or a boolean")
    return cast("Schema", found)


def schema_text(schema: Mapping[str, object] | bool | str) -> str:
    """The JSON text of `schema`, with its members in their order, for keys and for keeping.

    Raises:
        InvalidGrammarError: it is no schema, or has something in it that JSON has no text for.
    """
    try:
        return json.dumps(parse_schema(schema), separators=(",", ":"))
    except RecursionError:
        raise GrammarTooLargeError("reading a JSON Schema: it is nested too deeply") from None
    except (TypeError, ValueError) as error:
        if isinstance(error, InvalidGrammarError):
            raise
        raise InvalidGrammarError(f"reading a JSON Schema: it has no JSON text ({error})") from None
