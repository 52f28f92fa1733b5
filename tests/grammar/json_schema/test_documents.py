"""Places, identifiers and references."""

from __future__ import annotations

import pytest

from sglang_lite.grammar import InvalidGrammarError, UnsupportedGrammarError
from sglang_lite.grammar.json_schema.documents import Document, step

ROOT = {
    "$id": "http://a/root.json",
    "$defs": {
        "x/y": {"$id": "inner.json", "$anchor": "here", "$defs": {"z": {"$dynamicAnchor": "far"}}},
        "plain": {"const": {"$id": "not-a-schema"}},
        "list": {"items": [True, {"$anchor": "second"}]},
    },
}


def test_references_are_resolved_against_the_nearest_identifier() -> None:
    document = Document(ROOT)
    assert document.resolve("#/$defs/plain", "", "$ref") == "/$defs/plain"
    assert document.resolve("inner.json#here", "", "$ref") == "/$defs/x~1y"
    assert document.resolve("http://a/inner.json#/$defs/z", "", "$ref") == "/$defs/x~1y/$defs/z"
    assert document.resolve("#far", "/$defs/x~1y/$defs/z", "$dynamicRef") == "/$defs/x~1y/$defs/z"
    assert document.resolve("root.json#second", "/$defs/x~1y", "$ref") == "/$defs/list/items/1"
    assert document.base_of("/$defs/x~1y/$defs/z") == "http://a/inner.json"


def test_dynamic_anchors_belong_to_their_resource() -> None:
    document = Document(ROOT)
    assert document.dynamic_anchors("/$defs/x~1y") == {"far": "/$defs/x~1y/$defs/z"}
    assert document.dynamic_anchors("") == {}
    assert document.is_dynamic("/$defs/x~1y/$defs/z", "far")


@pytest.mark.parametrize("reference", ["#/$defs/none", "#nowhere", "#/$id"])
def test_a_reference_that_leads_nowhere_is_an_error(reference: str) -> None:
    with pytest.raises(InvalidGrammarError, match=r"#/p/\$ref"):
        Document(ROOT).resolve(reference, "/p", "$ref")


def test_other_documents_are_refused_even_if_named_in_a_constant() -> None:
    for reference in ("other.json", "not-a-schema", "urn:uuid:1"):
        with pytest.raises(UnsupportedGrammarError, match="none is fetched"):
            Document(ROOT).resolve(reference, "", "$ref")


def test_pointers_escape_their_tokens() -> None:
    assert step("/a", "x/~") == "/a/x~1~0"
    assert Document(ROOT).at("/$defs/x~1y")
