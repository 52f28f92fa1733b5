"""Which error counts as the run's."""

from __future__ import annotations

from sglang_lite.lang.faults import Faults


def test_the_first_error_of_a_branch_that_was_not_given_up_counts() -> None:
    faults = Faults()
    assert faults.first is None
    one, two, three = ValueError("1"), ValueError("2"), ValueError("3")
    faults.note(4, one)
    faults.note(0, two)
    faults.note(None, three)
    assert faults.first is one
    faults.excuse([4, 5])
    assert faults.first is two
    faults.excuse([0])
    assert faults.first is three
