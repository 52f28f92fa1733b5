"""Special tokens in given texts are told from the template's own, whatever a template does with the texts."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sglang_lite.runtime.text.chat_pieces import GUARD, NO_GUARD, SpecialGuard, tail_of

GUARDS = SpecialGuard(["<|a|>", "<|ab|>", "[X]"])
TEXTS = st.lists(st.sampled_from(["<|a|>", "<|ab|>", "[X]", "<|", "a", "|>", " ", GUARD]), max_size=6).map("".join)


@given(TEXTS, TEXTS)
def test_what_is_given_is_never_parsed_and_what_the_template_writes_is(template: str, given_text: str) -> None:
    template = template.replace(GUARD, "")
    pieces = GUARDS.pieces(template + GUARDS.guarded(given_text))
    assert "".join(text for text, _ in pieces) == template + given_text.replace(GUARD, "")
    parsed = "".join(text for text, parse in pieces if parse)
    whole = [special for special in ("<|a|>", "<|ab|>", "[X]") if special in given_text and special not in template]
    assert not any(special in text for special in whole for text, parse in pieces if parse), (pieces, parsed)


def test_guards_reach_into_data_and_change_nothing_else() -> None:
    data = {"a": ["[X]", 1, None], "b": {"c": "plain"}}
    guarded = GUARDS.guarded(data)
    assert guarded == {"a": [f"[{GUARD}X]", 1, None], "b": {"c": "plain"}}
    assert data["a"][0] == "[X]"
    assert NO_GUARD.guarded("[X]") == "[X]"


def test_a_tail_keeps_what_is_parsed() -> None:
    pieces = [("ab", True), ("cd", False), ("e", True)]
    assert tail_of(pieces, 3) == [("d", False), ("e", True)]
    assert tail_of(pieces, 0) == pieces
    assert tail_of(pieces, 9) == []
