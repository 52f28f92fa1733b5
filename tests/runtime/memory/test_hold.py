"""Derived lengths of a hold."""

from __future__ import annotations

from sglang_lite.runtime.memory.kv import KvManager


def test_pages_is_a_view_of_the_granted_part_of_the_row() -> None:
    kv = KvManager(num_rows=1, num_pages=6, page_size=4, max_len=20)
    admission = kv.admit("", [1, 2, 3], match_limit=2, new_len=3)
    assert admission is not None
    hold = admission.hold
    assert (hold.pages.dtype.name, len(hold.pages), hold.allocated_len) == ("int32", 1, 4)
    first = hold.pages[0]
    assert kv.grow(hold, 9)
    assert len(hold.pages) == 3
    assert hold.pages[0] == first


def test_what_is_not_the_holds_own_is_the_trees_or_the_parents() -> None:
    kv = KvManager(num_rows=2, num_pages=8, page_size=4, max_len=20)
    admission = kv.admit("", list(range(9)), match_limit=8, new_len=9)
    assert admission is not None
    hold = admission.hold
    kv.commit(hold, 9)
    assert hold.shared_len == 0
    kv.checkpoint(hold, list(range(9)))
    branched = kv.branch(hold, 6, 9)
    assert branched is not None
    branch = branched.hold
    assert (hold.shared_len, hold.tree_len, hold.borrowed_len) == (8, 8, 0)
    assert (branch.shared_len, branch.tree_len, branch.borrowed_len) == (4, 0, 4)
