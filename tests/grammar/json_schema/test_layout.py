"""White space."""

from __future__ import annotations

from sglang_lite.grammar.json_schema.layout import Layout
from sglang_lite.grammar.syntax import EMPTY, Bytes, Grammar, concat
from tests.support.grammar_oracle import recognises


def test_fixed_layouts_have_one_text() -> None:
    for whitespace, text in (("compact", "[1,1]"), ("spaced", "[1, 1]")):
        layout = Layout(whitespace, 20)  # pyright: ignore[reportArgumentType]
        node = layout.enclosed(b"[", concat([Bytes(b"1"), layout.comma, Bytes(b"1")]), b"]")
        assert node == Bytes(text.encode())
        assert layout.gap == EMPTY


def test_free_white_space_is_bounded_at_every_gap() -> None:
    layout = Layout("any", 2)
    grammar = Grammar(layout.enclosed(b"{", concat([Bytes(b"k"), layout.colon, Bytes(b"v")]), b"}"))
    assert recognises(grammar, "{ \nk\t :v }")
    assert not recognises(grammar, "{   k:v}")
    assert recognises(Grammar(layout.enclosed(b"{", EMPTY, b"}")), "{  }")
