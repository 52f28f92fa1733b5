"""The official test suite and the sample of MaskBench, with scores that may only rise; and random schemas against `jsonschema`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sglang_lite.grammar import GrammarError, InvalidGrammarError
from sglang_lite.grammar.json_schema import SchemaOptions, schema_to_grammar
from sglang_lite.grammar.syntax import NEVER, Grammar
from tests.grammar.json_schema.verdicts import written
from tests.support.grammar_oracle import recognises

SUITE, SAMPLE = "json-schema-test-suite", "maskbench"
Group = tuple[Any, list[tuple[Any, bool]]]


def _score(groups: Iterator[Group], options: SchemaOptions) -> tuple[int, int, list[str]]:
    """Groups that are wholly right, groups refused, and the texts accepted though invalid."""
    right = refused = 0
    wrongly: list[str] = []
    for schema, tests in groups:
        grammar = _grammar(schema, options)
        if grammar is None:
            refused += 1
            continue
        verdicts = [(recognises(grammar, written(data)), valid, data) for data, valid in tests]
        wrongly += [
            f"{written(schema)[:200]} {written(data)[:200]}" for found, valid, data in verdicts if found and not valid
        ]
        right += all(found == valid for found, valid, _ in verdicts)
    return right, refused, wrongly


@pytest.mark.data(SUITE)
def test_the_official_suite_has_no_false_accept_and_keeps_its_score(data_dir: Path) -> None:
    files = sorted((data_dir / SUITE / "draft2020-12").glob("*.json"))
    groups: list[Group] = [
        (group["schema"], [(test["data"], test["valid"]) for test in group["tests"]])
        for path in files
        for group in json.loads(path.read_text(encoding="utf-8"))
    ]
    right, refused, wrongly = _score(iter(groups), SchemaOptions(formats="annotation"))
    assert wrongly == []
    assert (len(groups), right >= 339, refused <= 28) == (383, True, True), (right, refused)


@pytest.mark.data(SAMPLE)
def test_the_sample_of_maskbench_has_no_false_accept_and_keeps_its_score(data_dir: Path) -> None:
    rows = [json.loads(line) for line in (data_dir / SAMPLE / "sample.jsonl").read_text(encoding="utf-8").splitlines()]
    scores: dict[str, tuple[int, int]] = {}
    for part in ("anchor150", "more"):
        groups: list[Group] = [
            (row["schema"], [(test["data"], test["valid"]) for test in row["tests"]])
            for row in rows
            if row["part"] == part
        ]
        right, refused, wrongly = _score(iter(groups), SchemaOptions())
        assert wrongly == []
        scores[part] = right, refused
    assert scores["anchor150"][0] >= 141, scores
    assert scores["anchor150"][1] <= 2, scores
    assert sum(right for right, _ in scores.values()) >= 398, scores


def _grammar(schema: Any, options: SchemaOptions) -> Grammar | None:
    """The grammar of `schema`, one without a text where no value is valid; None where it is refused."""
    try:
        return schema_to_grammar(schema, options).grammar
    except InvalidGrammarError as error:
        return Grammar(NEVER) if "no value is valid" in str(error) else None
    except GrammarError:
        return None


SCALARS = st.sampled_from([None, True, False, 0, 1, 2, 5, -3, 0.5, 2.25, "", "a", "ab", "b", "é"])
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b", "xa"]), inner, max_size=2),
    max_leaves=5,
)
LEAVES = st.one_of(
    st.booleans(),
    st.builds(
        lambda kind: {"type": kind},
        st.sampled_from(["null", "boolean", "integer", "number", "string", "array", "object"]),
    ),
    st.builds(lambda low: {"minimum": low}, st.sampled_from([0, 1, 0.5, -2])),
    st.builds(lambda high: {"exclusiveMaximum": high}, st.sampled_from([1, 2.25, 5])),
    st.builds(lambda unit: {"multipleOf": unit}, st.sampled_from([2, 0.5, 3])),
    st.builds(lambda size: {"maxLength": size}, st.integers(0, 2)),
    st.builds(lambda pattern: {"pattern": pattern}, st.sampled_from(["^a", "b", "^[ab]*$"])),
    st.builds(lambda values: {"enum": values}, st.lists(SCALARS, min_size=1, max_size=3)),
    st.builds(lambda names: {"required": names}, st.lists(st.sampled_from(["a", "b"]), max_size=2)),
    st.builds(lambda count: {"minProperties": count}, st.integers(0, 1)),
    st.builds(lambda count: {"maxItems": count}, st.integers(0, 2)),
)


def _bigger(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    pair = st.lists(inner, min_size=1, max_size=2)
    return st.one_of(
        st.builds(
            lambda keyword, parts: {keyword: parts}, st.sampled_from(["allOf", "anyOf", "oneOf", "prefixItems"]), pair
        ),
        st.builds(
            lambda keyword, part: {keyword: part},
            st.sampled_from(["not", "items", "contains", "additionalProperties", "propertyNames"]),
            inner,
        ),
        st.builds(lambda a, b: {"properties": {"a": a, "b": b}}, inner, inner),
        st.builds(lambda a, rest: {"properties": {"a": a}, "additionalProperties": rest}, inner, inner),
        st.builds(lambda a, rest: {"patternProperties": {"^x": a}, "unevaluatedProperties": rest}, inner, inner),
        st.builds(lambda a, b, c: {"if": a, "then": b, "else": c}, inner, inner, inner),
        st.builds(lambda a: {"dependentSchemas": {"a": a}}, inner),
        st.builds(lambda a, b: {**a, **b} if isinstance(a, dict) and isinstance(b, dict) else a, inner, inner),
    )


def _is_plain(value: Any) -> bool:
    """Whether there is one order of members only."""
    if isinstance(value, dict):
        return len(value) <= 1 and all(map(_is_plain, value.values()))
    return all(map(_is_plain, value)) if isinstance(value, list) else True


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.recursive(LEAVES, _bigger, max_leaves=6), st.lists(VALUES, min_size=4, max_size=10))
def test_random_schemas_agree_with_the_validator(schema: Any, values: list[Any]) -> None:
    """What is accepted is valid; what is valid is accepted, but for the order of members."""
    validator = jsonschema.Draft202012Validator(schema)
    grammar = _grammar(schema, SchemaOptions())
    if grammar is None:
        return
    for value in values:
        found, valid = recognises(grammar, written(value)), validator.is_valid(value)
        assert valid or not found, f"{schema} accepts {written(value)}"
        assert found or not valid or not _is_plain(value), f"{schema} rejects {written(value)}"
