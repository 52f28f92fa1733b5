"""What a gen or select gave on another server goes on here as the tokens that it was."""

from __future__ import annotations

import pytest

from sglang_lite.errors import RequestError
from sglang_lite.op_json import op_from_json, op_to_json
from sglang_lite.request_tree import TextOp
from sglang_lite.runtime.executor.branch import Branch
from sglang_lite.runtime.executor.gen import put_again
from sglang_lite.runtime.executor.ports import TextParts
from sglang_lite.runtime.text.chat import ChatTemplate
from tests.support.toy_text import CHATML, toy_tokenizer


@pytest.fixture
def text() -> TextParts:
    tokenizer = toy_tokenizer()
    return TextParts(tokenizer, ChatTemplate(CHATML, tokenizer.template_variables), tokenizer.visible_bytes)


def test_ids_are_kept_and_the_rest_of_a_cut_token_begins_the_next_span(text: TextParts) -> None:
    """Also special tokens, which the text does not show."""
    special = min(text.tokenizer.special_ids)
    branch = Branch(0, None)
    branch.add_text("Q", literal=False)
    put_again(TextOp(1, 0, "abx", literal=True, ids=(97, special, 98), is_models=True), branch, text)
    branch.add_text("!", literal=False)
    assert branch.flush(text.tokenizer)[-6:] == (81, 97, special, 98, 120, 33)
    assert branch.text_since_fork == ["Q", "abx", "!"]


def test_tokens_of_another_model_are_only_a_text(text: TextParts) -> None:
    branch = Branch(0, None)
    put_again(TextOp(1, 0, "ab", literal=True, ids=(99, 100)), branch, text)
    assert branch.flush(text.tokenizer)[-2:] == (97, 98)
    with pytest.raises(RequestError, match="token id 100000"):
        put_again(TextOp(1, 0, "ab", literal=True, ids=(100_000,)), branch, text)


def test_it_travels_as_json() -> None:
    op = TextOp(1, 0, "ab", literal=True, ids=(97, 98), is_models=True)
    assert op_from_json(op_to_json(op)) == op
    with pytest.raises(RequestError, match="ids"):
        op_from_json({"op": "text", "id": 1, "branch": 0, "text": "a", "ids": ["x"]})
