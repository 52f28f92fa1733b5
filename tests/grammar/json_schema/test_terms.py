"""Symbolic sets of values in their smallest form."""

from __future__ import annotations

from sglang_lite.grammar.json_schema.terms import FALSE, TRUE, Located, all_of, any_of, complement, constant

A, B = Located("/a"), Located("/b")


def test_combinations_are_flat_and_small() -> None:
    assert all_of([A, TRUE, A]) == A
    assert all_of([all_of([A, B]), B]) == all_of([B, A])
    assert all_of([A, FALSE]) == FALSE
    assert all_of([]) == TRUE
    assert any_of([A, FALSE]) == A
    assert any_of([A, any_of([A, B])]) == any_of([B, A])
    assert any_of([]) == FALSE


def test_contradictions_and_tautologies_are_seen() -> None:
    assert all_of([A, B, complement(A)]) == FALSE
    assert any_of([A, complement(A)]) == TRUE
    assert complement(complement(A)) == A
    assert complement(TRUE) == FALSE


def test_constants_are_equal_by_their_text() -> None:
    assert constant({"a": [1, None]}) == constant({"a": [1, None]})
    assert constant(1) != constant(True)
