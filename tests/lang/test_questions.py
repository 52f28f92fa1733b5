from __future__ import annotations

from sglang_lite.errors import ExecutionError, ValidationError
from sglang_lite.lang.choices import token_length_normalized
from sglang_lite.lang.questions import Questions


def test_a_question_is_open_until_its_op_has_ended() -> None:
    questions = Questions()
    assert not questions
    questions.undecided[1] = token_length_normalized
    questions.held.add(2)
    questions.forget(1)
    assert len(questions) == 1
    questions.forget(2)
    questions.forget(2)
    assert not questions


def test_a_refusal_that_comes_back_is_what_it_was_refused_for() -> None:
    questions, error, other = Questions(), ValidationError("x"), ExecutionError("something else")
    questions.refuse("no try was good", error)
    assert questions.cause_of(ExecutionError("no try was good")) is error
    assert questions.cause_of(other) is other
