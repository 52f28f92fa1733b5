"""Objects as grammar nodes: size of chains, demands on some member, counts."""

from __future__ import annotations

from sglang_lite.grammar.json_schema import schema_to_grammar
from sglang_lite.grammar.json_schema.productive import without_dead_rules
from sglang_lite.grammar.rules import parts_of
from tests.grammar.json_schema.verdicts import check, written
from tests.support.grammar_oracle import recognises


def _size(schema: dict[str, object]) -> int:
    grammar = schema_to_grammar(schema).grammar
    assert without_dead_rules(grammar.start, grammar.rules) == grammar
    return sum(1 for node in (grammar.start, *grammar.rules.values()) for _ in parts_of(node))


def test_a_chain_of_optional_members_is_linear() -> None:
    small, large = (
        _size(
            {
                "type": "object",
                "properties": {f"p{i:03}": {"type": "string"} for i in range(count)},
                "additionalProperties": False,
            }
        )
        for count in (20, 200)
    )
    assert large < 12 * small


def test_every_subset_of_optional_members_is_a_text() -> None:
    names = "abcd"
    schema: dict[str, object] = {
        "type": "object",
        "properties": {name: {"const": 1} for name in names},
        "required": ["c"],
        "additionalProperties": False,
    }
    grammar = schema_to_grammar(schema).grammar
    for bits in range(16):
        value = {name: 1 for at, name in enumerate(names) if bits >> at & 1}
        assert recognises(grammar, written(value)) == ("c" in value)


def test_a_member_under_some_name_may_be_demanded() -> None:
    some = {"not": {"additionalProperties": {"not": {"const": 7}}}}
    check(
        [
            (
                {"type": "object", **some, "maxProperties": 2},
                [{"x": 7}, {"x": 1, "y": 7}],
                [{}, {"x": 1}, {"x": 7, "y": 7, "z": 7}],
            ),
            (
                {"type": "object", "not": {"propertyNames": {"maxLength": 1}}, "minProperties": 2},
                [{"a": 1, "bb": 2}],
                [{"a": 1, "b": 2}, {"bb": 1}],
            ),
        ]
    )


def test_a_declared_member_may_meet_the_demand() -> None:
    schema = {"type": "object", "properties": {"a": True}, "not": {"patternProperties": {"^[ab]$": {"type": "string"}}}}
    check([(schema, [{"a": 1}, {"b": 1}, {"a": "x", "b": 2}], [{}, {"a": "x"}, {"a": "x", "b": "y"}, {"c": 1}])])
