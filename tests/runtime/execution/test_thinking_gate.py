"""Thinking before an answer: where it ends, what it may cost, and that the constraint begins behind it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sglang_lite.runtime.execution.thinking_gate import ThinkingGate, ThinkingGates
from tests.support.fake_grammar import FakeGrammar

# 0 ends a text, 1 and 2 are the special marks; "<e>" and "</e>" may also be spelled by ordinary tokens.
TOKENS = [b"", b"", b"", b"<", b"e", b">", b"/", b"</", b"e>", b"e>\n", b"x", b"</e>", b"\n\n", b"a", b">x"]
EOS, BEGIN, END = 0, 1, 2
SPECIAL = ("[B]", "[E]")
SPELLED = ("<e>", "</e>")


def encode(text: str) -> list[int]:
    """Longest token first, the special marks by their names."""
    ids: list[int] = []
    rest = text.encode()
    named = {b"[B]": BEGIN, b"[E]": END} | {data: i for i, data in enumerate(TOKENS) if data}
    while rest:
        data = max((data for data in named if rest.startswith(data)), key=len)
        ids.append(named[data])
        rest = rest[len(data) :]
    return ids


GATES = ThinkingGates(TOKENS, [EOS, BEGIN, END], [EOS], 40, encode)


def gate(
    marks: tuple[str, str],
    budget: int | None = None,
    prompt: str | None = None,
    inner: Any = None,
    is_held: bool = True,
) -> ThinkingGate:
    """A gate before the one token `a`, or before nothing; without `prompt` behind one that has opened the thinking."""
    held = (inner or FakeGrammar([frozenset({13})], EOS)) if is_held else None
    return GATES.make(marks, budget, encode(f"x{marks[0]}" if prompt is None else prompt), held)


def allowed(cursor: ThinkingGate) -> set[int]:
    """The tokens of the mask."""
    bitmask = np.full((2, 2), -1, np.int32)
    cursor.fill_bitmask(bitmask, 1)
    assert (bitmask[0] == -1).all(), "another row was written"
    return set(np.flatnonzero(np.unpackbits(bitmask[1].view(np.uint8), bitorder="little")).tolist())


FREE = set(range(1, len(TOKENS)))


@pytest.mark.parametrize(
    ("marks", "end"), [(SPECIAL, [END]), (SPELLED, [11]), (SPELLED, [7, 8]), (SPELLED, [3, 6, 4, 5])]
)
def test_the_constraint_begins_behind_the_end_mark_however_it_is_cut(marks: tuple[str, str], end: list[int]) -> None:
    cursor = gate(marks)
    for token in [10, 13, 3, *end]:
        assert token in allowed(cursor)
        assert cursor.accept_token(token)
    assert allowed(cursor) == {13}
    assert not cursor.accept_token(10)
    assert cursor.accept_token(13)
    assert cursor.has_only_end


def test_no_token_reaches_beyond_the_end_mark() -> None:
    """`e>` + newline would end the mark inside a token, and the constraint could not begin with a token of its own."""
    cursor = gate(SPELLED)
    assert allowed(cursor) == FREE
    assert cursor.accept_token(7)
    assert allowed(cursor) == FREE - {9}
    assert not cursor.accept_token(9)
    assert cursor.accept_token(4)
    assert allowed(cursor) == FREE - {14}
    assert cursor.accept_token(10)
    assert allowed(cursor) == FREE


def test_a_special_mark_is_its_token_and_not_its_spelling() -> None:
    cursor = GATES.make(("[B]", "[E]"), None, (BEGIN,), FakeGrammar([frozenset({13})], EOS))
    assert allowed(cursor) == FREE
    for token in encode("</e>"):
        assert cursor.accept_token(token)
    assert allowed(cursor) == FREE


def test_the_text_does_not_end_while_the_model_thinks_unless_nothing_is_held() -> None:
    held, free = gate(SPECIAL), gate(SPECIAL, 3, is_held=False)
    assert EOS not in allowed(held)
    assert not held.accept_token(EOS)
    assert EOS in allowed(free)
    assert free.accept_token(EOS)


@pytest.mark.parametrize("marks", [SPECIAL, SPELLED])
@pytest.mark.parametrize("budget", [1, 3])
def test_after_the_budget_the_end_mark_is_forced(marks: tuple[str, str], budget: int) -> None:
    cursor, end = gate(marks, budget), encode(marks[1])
    for _ in range(budget):
        assert cursor.jump_forward() == []
        assert cursor.accept_token(10)
    assert cursor.jump_forward() == end
    for token in end:
        assert allowed(cursor) == {token}
        assert not cursor.accept_token(10)
        assert cursor.accept_token(token)
    assert allowed(cursor) == {13}


def test_the_rest_of_a_half_written_end_mark_is_forced() -> None:
    cursor = gate(SPELLED, 2)
    assert cursor.accept_token(10)
    assert cursor.accept_token(7)
    assert cursor.jump_forward() == [8]
    assert cursor.accept_token(8)
    assert allowed(cursor) == {13}


@pytest.mark.parametrize("marks", [SPECIAL, SPELLED])
def test_the_begin_mark_does_not_count(marks: tuple[str, str]) -> None:
    cursor = gate(marks, 1, "x")
    for token in encode(marks[0]):
        assert cursor.accept_token(token)
        assert cursor.jump_forward() == []
    assert cursor.accept_token(10)
    assert cursor.jump_forward() == encode(marks[1])


@pytest.mark.parametrize(
    ("prompt", "block"),
    [("x", "[B]\n\n[E]"), ("x[B]", "[E]"), ("x[B]x\n\n", "[E]"), ("[B]x[E]x", "[B]\n\n[E]"), ("[B]x[E]x[B]", "[E]")],
)
def test_without_a_budget_the_block_is_empty(prompt: str, block: str) -> None:
    """Where the prompt has opened the thinking it is closed at once; where it has not, the empty block is written."""
    cursor = gate(SPECIAL, 0, prompt)
    run = cursor.jump_forward()
    assert run == encode(block)
    assert all(cursor.accept_token(token) for token in run)
    assert allowed(cursor) == {13}


def test_a_prompt_that_has_closed_the_thinking_is_followed_by_the_answer() -> None:
    assert allowed(gate(SPECIAL, 5, "x[B]\n\n[E]\n\n")) == {13}
    assert allowed(gate(SPECIAL, 5, "x[B]\n\n[E]x")) == {BEGIN, 13}, "that was in a turn before"


def test_without_a_constraint_everything_may_follow_and_nothing_ends_it() -> None:
    cursor = gate(SPECIAL, 1, is_held=False)
    for token in [10, END, 10, 3]:
        assert not cursor.has_only_end
        assert cursor.accept_token(token)
    assert allowed(cursor) == FREE | {EOS}
    assert not cursor.is_terminated


def test_a_fork_goes_its_own_way() -> None:
    cursor = gate(SPELLED, 3)
    cursor.accept_token(10)
    twin = cursor.fork()
    for token in [10, 10, 11, 13]:
        assert twin.accept_token(token)
    assert twin.has_only_end
    assert allowed(cursor) == FREE
    assert cursor.accept_token(10)
    assert cursor.jump_forward() == []


def test_forced_tokens_of_the_answer_follow_those_of_the_thinking() -> None:
    seen: list[list[int]] = []

    class Listening(FakeGrammar):
        def jump_forward(self, before: Any = ()) -> list[int]:
            seen.append(list(before))
            return super().jump_forward(before)

    cursor = gate(SPECIAL, 1, inner=Listening([frozenset({13})], EOS, [13]))
    for token in [10, END]:
        cursor.accept_token(token)
    assert cursor.jump_forward() == [13]
    assert seen == [[10, BEGIN, 10, END]], "the prompt's end and the thinking are what stands before"


def test_notes_are_about_the_answer_alone() -> None:
    class Lenient(FakeGrammar):
        def notes_on(self, text: bytes) -> tuple[str, ...]:
            return (text.decode(),)

    cursor = gate(SPECIAL, inner=Lenient([frozenset({13})], EOS))
    for token in [10, 3, END, 13]:
        cursor.accept_token(token)
    assert cursor.notes_on(b"x<a") == ("a",)
    assert gate(SPECIAL).notes_on(b"a") == ()


@pytest.mark.parametrize("budget", [None, 5])
def test_a_model_that_answers_without_its_marks_is_held_from_its_first_token_on(budget: int | None) -> None:
    """Nothing has opened the thinking: the model may open it, or begin with the answer."""
    cursor = gate(SPECIAL, budget, "x")
    assert allowed(cursor) == {BEGIN, 13}
    assert not cursor.accept_token(10)
    assert cursor.accept_token(13)
    assert cursor.has_only_end
    assert allowed(cursor) == {EOS}


@pytest.mark.parametrize("opening", [[BEGIN], [3, 4, 5], [3, 8]])
def test_a_model_that_opens_its_thinking_thinks(opening: list[int]) -> None:
    cursor = gate(SPECIAL if opening == [BEGIN] else SPELLED, None, "x")
    for token in opening:
        assert token in allowed(cursor)
        assert cursor.accept_token(token)
    assert allowed(cursor) == FREE
    assert cursor.accept_token(10)


def test_a_begin_that_may_be_either_is_decided_by_what_follows() -> None:
    """`<` begins the mark as well as the answer `<a`; `</` begins the answer alone."""

    def either() -> ThinkingGate:
        return gate(SPELLED, None, "x", FakeGrammar([frozenset({3, 7}), frozenset({13})], EOS))

    cursor = either()
    assert allowed(cursor) == {3, 7}
    assert cursor.accept_token(3)
    assert not cursor.has_only_end
    assert allowed(cursor) == {4, 8, 9, 13}
    thinking, answer = cursor.fork(), cursor.fork()
    assert thinking.accept_token(9)
    assert allowed(thinking) == FREE, "the rest of a token behind the mark is thinking"
    for token in encode("</e>"):
        assert thinking.accept_token(token)
    assert allowed(thinking) == {3, 7}, "the constraint begins anew behind the thinking"
    assert answer.accept_token(13)
    assert answer.has_only_end
    assert not cursor.accept_token(10)
    direct = either()
    assert direct.accept_token(7)
    assert allowed(direct) == {13}


def test_an_answer_without_marks_is_no_thinking_and_has_no_budget() -> None:
    cursor = gate(SPECIAL, 1, "x", is_held=False)
    for token in [12, 10, 10, 10]:
        assert cursor.accept_token(token)
        assert cursor.jump_forward() == []
    assert allowed(cursor) == FREE | {EOS}
    after_space = gate(SPECIAL, 1, "x", is_held=False)
    for token in [12, BEGIN, 10]:
        assert after_space.accept_token(token)
    assert after_space.jump_forward() == [END], "white space before the mark is neither"


def test_an_empty_begin_mark_says_that_the_model_always_thinks() -> None:
    cursor = GATES.make(("", "[E]"), 1, encode("x"), FakeGrammar([frozenset({13})], EOS))
    assert allowed(cursor) == FREE
    assert cursor.accept_token(10)
    assert cursor.jump_forward() == [END]
    assert allowed(GATES.make(("", "[E]"), 1, encode("x[E]"), FakeGrammar([frozenset({13})], EOS))) == {13}


def test_what_stands_before_a_direct_answer_is_the_prompt() -> None:
    seen: list[list[int]] = []

    class Listening(FakeGrammar):
        def jump_forward(self, before: Any = ()) -> list[int]:
            seen.append(list(before))
            return super().jump_forward(before)

        def restarted(self) -> Listening:
            return Listening(self.places, self.end_id, self.guesses)

        def notes_on(self, text: bytes) -> tuple[str, ...]:
            return (text.decode(),)

    cursor = gate(SPELLED, 1, "x", inner=Listening([frozenset({3}), frozenset({13})], EOS, [None, None]))
    for token in [3, 13]:
        assert cursor.accept_token(token)
    assert cursor.jump_forward() == []
    assert seen == [[10]]
    assert cursor.notes_on(b"<a") == ("<a",)
