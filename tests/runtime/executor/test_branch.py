from __future__ import annotations

import pytest

from sglang_lite.errors import RequestError
from sglang_lite.runtime.executor.branch import Branch
from tests.support.toy_text import START, toy_text

TEXT = toy_text()
TOKENIZER, CHAT = TEXT.tokenizer, TEXT.chat


def test_pieces_of_a_span_are_tokenised_as_one_text() -> None:
    branch = Branch(0, None)
    for piece in ("<|im", "_start|>", "x"):
        branch.add_text(piece, literal=False)
    assert branch.flush(TOKENIZER) == (*b"<|im_start|>x",)  # a special token never spans two pieces of the program
    whole = Branch(0, None)
    whole.add_text("<|im_start|>x", literal=False)
    assert whole.flush(TOKENIZER) == (START, ord("x"))


def test_an_empty_branch_has_nothing_to_continue() -> None:
    with pytest.raises(RequestError, match="no tokens, expected at least one; append text first"):
        Branch(0, None).flush(TOKENIZER)
    with_bos = toy_text(add_bos=True).tokenizer
    assert Branch(0, None).flush(with_bos) == (START,)


def test_a_child_takes_over_everything_and_then_goes_its_own_way() -> None:
    parent = Branch(0, None)
    parent.begin_role("user", CHAT)
    parent.add_text("a", literal=False)
    child = Branch(1, parent)
    assert not child.is_born
    child.copy_from(parent, TOKENIZER)
    child.add_text("b", literal=False)
    child.end_role(CHAT)
    parent.add_text("c", literal=False)
    assert child.is_born
    assert child.path == (0, 1)
    common = parent.ids[: len(child.ids) - 0]
    assert child.flush(TOKENIZER)[: len(common)] == tuple(common)
    assert bytes(i for i in child.flush(TOKENIZER)[len(common) :] if i < 256) == b"b\n"
    assert child.text_since_fork == ["b", "<|im_end|>\n"]


def test_a_template_that_begins_the_text_decides_about_the_begin_token() -> None:
    with_bos = toy_text(add_bos=True)
    branch = Branch(0, None)
    branch.begin_role("user", with_bos.chat)
    branch.add_text("x", literal=False)
    assert branch.flush(with_bos.tokenizer).count(START) == 2  # the system turn's and the user turn's, no third one


def test_the_place_of_a_branch_is_its_number_among_its_parents_children_not_its_id() -> None:
    root = Branch(0, None)
    root.add_text("a", literal=False)
    children = [Branch(number, root) for number in (7, 3, 5)]
    for child in children:
        child.copy_from(root, TOKENIZER)
    grandchild = Branch(4, children[2])
    grandchild.copy_from(children[2], TOKENIZER)
    assert [branch.place for branch in (root, *children, grandchild)] == [(), (0,), (1,), (2,), (2, 0)]
