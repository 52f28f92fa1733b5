"""schema_to_grammar as a whole: public reports, clients' schemas, layouts, errors."""

from __future__ import annotations

import pytest

from sglang_lite.grammar import (
    GrammarCompiler,
    GrammarTooLargeError,
    InvalidGrammarError,
    TokenVocab,
    UnsupportedGrammarError,
)
from sglang_lite.grammar.json_schema import SchemaOptions, schema_text, schema_to_grammar
from tests.grammar.json_schema.client_case import ClientSchema
from tests.grammar.json_schema.client_schemas import CLIENT_SCHEMAS
from tests.grammar.json_schema.reduced_cases import CASES
from tests.grammar.json_schema.report_tables import REPORTS
from tests.grammar.json_schema.verdicts import COMPACT, SPACED, accepts, written
from tests.support.grammar_oracle import recognises

# The order of members is the schema's; these schemas have no value at all, or ask for what no finite automaton can keep.
ORDER_OF_MEMBERS = "guidance-ai/llguidance#187"
REFUSED = {"mlc-ai/xgrammar#639", "guidance-ai/llguidance#206", "own:uniqueItems"}
BYTES = TokenVocab([bytes([byte]) for byte in range(256)] + [b""], eos_ids=[256])


@pytest.mark.parametrize(
    ("source", "schema", "valid", "invalid"), REPORTS, ids=lambda value: value if isinstance(value, str) else ""
)
def test_a_public_report_is_answered_rightly(
    source: str, schema: dict[str, object], valid: list[str], invalid: list[str]
) -> None:
    grammar = schema_to_grammar(schema).grammar
    assert [text for text in valid if not recognises(grammar, text)] == []
    assert [text for text in invalid if recognises(grammar, text)] == []


@pytest.mark.parametrize(("source", "schema", "text", "valid"), CASES, ids=[case[0] for case in CASES])
def test_a_reduced_case_is_answered_rightly_or_refused(
    source: str, schema: dict[str, object], text: str, valid: bool | None
) -> None:
    if source in REFUSED:
        with pytest.raises((InvalidGrammarError, UnsupportedGrammarError)):
            schema_to_grammar(schema)
    elif source == ORDER_OF_MEMBERS:
        assert not accepts(schema, text)
    elif valid is not None:
        assert accepts(schema, text) == valid


@pytest.mark.parametrize("case", CLIENT_SCHEMAS, ids=lambda case: case.name)
@pytest.mark.parametrize("whitespace", ["compact", "spaced", "any"])
def test_schemas_that_clients_send_compile_and_decide(case: ClientSchema, whitespace: str) -> None:
    grammar = schema_to_grammar(case.schema, SchemaOptions(whitespace=whitespace)).grammar  # pyright: ignore[reportArgumentType]
    separators = COMPACT if whitespace == "compact" else SPACED
    assert [value for value in case.valid if not recognises(grammar, written(value, separators))] == []
    assert [value for value in case.invalid if recognises(grammar, written(value, separators))] == []


def test_the_corpus_of_clients_has_forty_schemas() -> None:
    assert len(CLIENT_SCHEMAS) >= 40


def test_the_engine_agrees_with_the_recogniser_on_clients_schemas() -> None:
    compiler = GrammarCompiler(BYTES)
    for case in CLIENT_SCHEMAS:
        compiled = compiler.compile_json_schema(case.schema)
        assert [value for value in case.valid if not compiled.accepts(written(value))] == [], case.name
        assert [value for value in case.invalid if compiled.accepts(written(value))] == [], case.name


@pytest.mark.parametrize(
    ("schema", "place"),
    [
        ({"type": "strin"}, "#/type"),
        ({"properties": {"a": {"pattern": "("}}}, "#/properties/a/pattern"),
        ({"properties": []}, "#/properties"),
        ({"items": {"minLength": -1}}, "#/items/minLength"),
        ({"properties": {"a/b": {"enum": 3}}}, "#/properties/a~1b/enum"),
        ({"$ref": "#/$defs/missing"}, "#/$ref"),
        ({"allOf": [{"required": "a"}]}, "#/allOf/0/required"),
    ],
)
def test_a_malformed_schema_is_an_error_with_its_place(schema: dict[str, object], place: str) -> None:
    with pytest.raises(InvalidGrammarError) as caught:
        schema_to_grammar(schema)
    assert place in str(caught.value)


@pytest.mark.parametrize("schema", ["not json", "[]", [], 7, None, "7"])
def test_what_is_no_schema_is_an_error(schema: object) -> None:
    with pytest.raises(InvalidGrammarError):
        schema_to_grammar(schema)  # pyright: ignore[reportArgumentType]


def test_a_schema_may_be_a_text_and_keeps_its_order() -> None:
    grammar = schema_to_grammar(
        '{"properties": {"z": true, "a": true}, "required": ["a", "z"], "type": "object"}'
    ).grammar
    assert recognises(grammar, '{"z":1,"a":2}')
    assert not recognises(grammar, '{"a":2,"z":1}')


def test_the_boolean_schemas_are_everything_and_nothing() -> None:
    assert accepts(True, '[{"a":null}]')
    with pytest.raises(InvalidGrammarError, match="no value is valid"):
        schema_to_grammar(False)


def test_a_schema_that_only_an_endless_value_satisfies_is_an_error() -> None:
    with pytest.raises(InvalidGrammarError, match="no value is valid"):
        schema_to_grammar({"type": "object", "properties": {"next": {"$ref": "#"}}, "required": ["next"]})


def test_white_space_is_bounded() -> None:
    options = SchemaOptions(whitespace="any", max_whitespace=3)
    assert accepts({"type": "array"}, " [ 1\n,\t2 ]  ", options)
    assert not accepts({"type": "array"}, "[    1]", options)


def test_the_limit_on_digits_is_an_option() -> None:
    options = SchemaOptions(max_integer_digits=4)
    assert accepts({"type": "integer"}, "-9999", options)
    assert not accepts({"type": "integer"}, "10000", options)
    assert not accepts({"type": "integer"}, "1" * 33)


def test_the_text_of_a_schema_is_a_key_for_it() -> None:
    assert schema_text({"b": 1, "a": [True]}) == '{"b":1,"a":[true]}'
    with pytest.raises(InvalidGrammarError, match="no JSON text"):
        schema_text({"enum": [object()]})


def test_what_is_left_out_when_not_strict_is_noted() -> None:
    schema: dict[str, object] = {"type": "array", "items": {"type": "integer"}, "uniqueItems": True}
    with pytest.raises(UnsupportedGrammarError, match="uniqueItems at #/uniqueItems"):
        schema_to_grammar(schema)
    found = schema_to_grammar(schema, SchemaOptions(strict=False))
    assert [(note.pointer, note.keyword, note.effect) for note in found.notes] == [
        ("/uniqueItems", "uniqueItems", "unchecked")
    ]
    assert recognises(found.grammar, "[1,1]")


def test_a_compiled_schema_is_kept_by_its_text_and_options() -> None:
    compiler = GrammarCompiler(BYTES)
    schema: dict[str, object] = {"type": "object", "properties": {"a": {"format": "email", "type": "string"}}}
    compiled = compiler.compile_json_schema(schema)
    assert compiler.compile_json_schema(schema_text(schema)) is compiled
    assert [note.keyword for note in compiled.notes] == ["format"]
    spaced = compiler.compile_json_schema(schema, whitespace="spaced", formats="annotation")
    assert spaced.notes == ()
    assert spaced.accepts('{"a": "x"}')
    assert not compiled.accepts('{"a":"x"}')


def test_nesting_beyond_reason_is_an_error_of_size() -> None:
    with pytest.raises(GrammarTooLargeError, match="nested too deeply"):
        schema_to_grammar('{"items":' * 50_000 + "{}" + "}" * 50_000)
    deep: dict[str, object] = {}
    for _ in range(3_000):
        deep = {"not": deep}
    with pytest.raises(GrammarTooLargeError, match="nested too deeply"):
        schema_to_grammar(deep)


def test_huge_bounds_cost_nothing_here() -> None:
    for schema in (
        {"minLength": 10**9},
        {"minItems": 10**9},
        {"minProperties": 10**9},
        {"maxLength": 10**9, "pattern": "^(ab)*$"},
    ):
        assert schema_to_grammar(schema).grammar
    with pytest.raises(UnsupportedGrammarError):
        schema_to_grammar({"type": "array", "contains": {"const": 1}, "minContains": 10**9})
