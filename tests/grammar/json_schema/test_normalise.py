"""Terms to forms: what is computed once, what is refused, what is seen."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from sglang_lite.grammar import InvalidGrammarError
from sglang_lite.grammar.json_schema.documents import Document
from sglang_lite.grammar.json_schema.forms import EVERYTHING, NOTHING
from sglang_lite.grammar.json_schema.normalise import Normaliser
from sglang_lite.grammar.json_schema.options import SchemaOptions
from sglang_lite.grammar.json_schema.terms import FALSE, TRUE, Located, NotIn, all_of, any_of


def _normaliser(schema: Mapping[str, object], **options: bool) -> Normaliser:
    return Normaliser(Document(schema), SchemaOptions(**options))  # pyright: ignore[reportArgumentType]


def test_the_simple_terms() -> None:
    normaliser = _normaliser({})
    assert normaliser.form(TRUE) == EVERYTHING
    assert normaliser.form(FALSE) == NOTHING
    assert normaliser.form(Located("")) == EVERYTHING


def test_combined_terms_follow_their_parts() -> None:
    normaliser = _normaliser({"$defs": {"a": {"type": ["null", "boolean"]}, "b": {"const": True}}})
    a, b = Located("/$defs/a"), Located("/$defs/b")
    assert normaliser.form(all_of([a, b])) == normaliser.form(b)
    assert normaliser.form(any_of([a, b])) == normaliser.form(a)
    rest = normaliser.form(all_of([a, NotIn(b)]))
    assert (rest.null, rest.true, rest.false) == (True, False, True)


def test_a_schema_that_is_only_itself_is_an_error() -> None:
    for schema in ({"$ref": "#"}, {"allOf": [{"$ref": "#"}]}, {"not": {"$ref": "#"}}):
        with pytest.raises(InvalidGrammarError, match="defined by nothing but itself"):
            _normaliser(schema).form(Located(""))


def test_what_has_been_seen_is_kept_only_where_it_is_asked_for() -> None:
    normaliser = _normaliser({"properties": {"a": True}, "prefixItems": [True]})
    plain, tracked = normaliser.form(Located("")), normaliser.form(Located(""), track=True)
    assert not plain.objects[0].has_seen
    assert tracked.objects[0].seen == {"a"}
    assert tracked.arrays[0].seen == 1


def test_a_keyword_left_out_is_noted_and_cannot_be_negated() -> None:
    schema: dict[str, object] = {"$defs": {"a": {"$ref": "http://x"}}, "not": {"$ref": "#/$defs/a"}}
    normaliser = _normaliser(schema, strict=False)
    form = normaliser.form(Located(""))
    assert form.inexact
    assert [note.keyword for note in normaliser.notes] == ["$ref", "not"]
