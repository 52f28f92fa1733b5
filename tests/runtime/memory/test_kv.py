"""Every verb of the manager, on small pools."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from sglang_lite.runtime.memory.hold import Admission, KvHold, PageCopy
from sglang_lite.runtime.memory.kv import KvManager
from sglang_lite.runtime.memory.tree_node import TokenIds
from tests.runtime.memory.canary import Canary, chain

SIZES = pytest.mark.parametrize("page_size", [1, 4, 16])


def make(num_pages: int = 40, page_size: int = 4, num_rows: int = 4, *, enable_radix: bool = True) -> KvManager:
    return KvManager(
        num_rows=num_rows, num_pages=num_pages, page_size=page_size, max_len=200, enable_radix=enable_radix
    )


def admit(kv: KvManager, ids: TokenIds, namespace: str = "", lease: str | None = None, next_use: int = 0) -> Admission:
    admission = kv.admit(namespace, ids, match_limit=len(ids) - 1, new_len=len(ids), lease=lease, next_use=next_use)
    assert admission is not None
    return admission


def live(kv: KvManager, ids: Sequence[int], namespace: str = "") -> KvHold:
    """A row whose whole prompt is computed."""
    hold = admit(kv, ids, namespace).hold
    kv.commit(hold, len(ids))
    return hold


def remember(kv: KvManager, ids: TokenIds, namespace: str = "", lease: str | None = None, next_use: int = 0) -> None:
    hold = admit(kv, ids, namespace, lease, next_use).hold
    kv.commit(hold, len(ids))
    kv.release(hold, ids)


def known(kv: KvManager, ids: Sequence[int], namespace: str = "") -> int:
    return kv.probe(namespace, ids, len(ids))


@SIZES
def test_a_released_prompt_is_found_to_the_token(page_size: int) -> None:
    kv = make(page_size=page_size, num_pages=200)
    ids = list(range(100, 137))
    remember(kv, ids)
    assert known(kv, ids) == 37
    assert known(kv, [*ids, 1, 2]) == 37
    assert kv.probe("", ids, 20) == 20
    assert known(kv, [*ids[:30], 1]) == 30
    admission = admit(kv, ids)
    assert admission.hold.cached_len == admission.hold.committed_len == 36
    assert admission.hold.tree_len == 36 - 36 % page_size
    assert [copy.num_tokens for copy in admission.copies] == ([36 % page_size] if 36 % page_size else [])
    kv.check_ledger([admission.hold])


@pytest.mark.parametrize("length", [1, 2, 3, 4, 5, 8, 97])
def test_an_exact_repeat_leaves_one_token_to_compute(length: int) -> None:
    kv = make()
    ids = list(range(length))
    remember(kv, ids)
    assert admit(kv, ids).hold.cached_len == length - 1


def test_without_the_cache_rows_live_side_by_side_and_find_nothing() -> None:
    """Also rows of one namespace that end in the order of their start, and in the other."""
    kv = make(enable_radix=False)
    for order in (1, -1):
        holds = [live(kv, range(9)) for _ in range(3)]
        for hold in holds[::order]:
            kv.release(hold, range(9))
        kv.check_ledger([])
    assert known(kv, range(9)) == 0


@SIZES
def test_the_next_turn_finds_prompt_and_output(page_size: int) -> None:
    """The key is all tokens that were computed, not the prompt alone."""
    kv = make(page_size=page_size, num_pages=400)
    prompt, output = list(range(100)), list(range(500, 550))
    hold = admit(kv, prompt).hold
    kv.commit(hold, 100)
    assert kv.grow(hold, 150)
    kv.commit(hold, 149)
    kv.release(hold, prompt + output)
    assert admit(kv, [*prompt, *output, *range(20)]).hold.cached_len == 149


def test_a_row_array_is_as_good_as_a_list() -> None:
    kv = make()
    remember(kv, np.arange(10, dtype=np.int32))
    assert known(kv, tuple(range(10))) == 10


def test_the_head_of_a_page_is_copied_and_whole_pages_are_shared() -> None:
    kv, canary = make(), Canary(40, 4)
    ids = [1, 2, 3, 4, 5, 6, 7]
    hold = admit(kv, ids).hold
    canary.compute(hold, ids, 0, 7)
    kv.commit(hold, 7)
    first, source = hold.pages.tolist()
    kv.release(hold, ids)
    longer = [1, 2, 3, 4, 5, 6, 8, 9, 9]
    admission = admit(kv, longer)
    assert admission.copies == (PageCopy(source, int(admission.hold.pages[1]), 2),)
    assert admission.hold.pages[0] == first
    canary.copy(admission.copies)
    canary.compute(admission.hold, longer, admission.hold.cached_len, 9)
    assert canary.row(admission.hold, 9) == chain(longer)


def test_namespaces_never_mix() -> None:
    kv = make()
    remember(kv, range(9), "lora-a")
    assert known(kv, range(9), "lora-a") == 9
    assert known(kv, range(9), "lora-b") == known(kv, range(9)) == 0


def test_without_the_radix_tree_nothing_is_matched_or_kept() -> None:
    kv = make(enable_radix=False)
    hold = live(kv, range(9))
    kv.checkpoint(hold, range(9))
    assert kv.branch(hold, 8, 10) is not None
    kv.release(hold.branches[0], range(9))
    kv.release(hold, range(9))
    kv.check_ledger([])
    assert known(kv, range(9)) == 0
    assert kv.statistics().free_pages == 39


def test_uncommitted_tokens_are_never_found() -> None:
    kv = make()
    first = admit(kv, range(9)).hold
    kv.checkpoint(first, range(9))
    assert known(kv, range(9)) == 0
    kv.commit(first, 6)
    kv.checkpoint(first, range(9))
    assert known(kv, range(9)) == 4
    kv.release(first, range(9))
    assert known(kv, range(9)) == 6


def test_an_admission_that_does_not_fit_changes_nothing() -> None:
    """Also when eviction would get it half way, and when only the row is missing."""
    kv = make(num_pages=8, num_rows=2)
    hold = live(kv, range(12))
    remember(kv, range(50, 57))
    before = kv.snapshot(), kv.statistics()
    assert kv.admit("", range(50, 90), match_limit=7, new_len=20, lease="program") is None
    other = live(kv, range(80, 84))
    assert kv.admit("", [1], match_limit=0, new_len=1) is None
    kv.release(other, None)
    assert (kv.snapshot().tree, kv.statistics().evicted_pages, kv.statistics().leases) == (before[0].tree, 0, 0)
    assert known(kv, range(50, 57)) == 7
    kv.check_ledger([hold])


def test_pages_matched_inside_a_node_are_not_counted_as_evictable_for_the_same_row() -> None:
    kv = make(num_pages=8)
    hold = live(kv, range(12))
    remember(kv, range(50, 66))
    assert kv.admit("", range(50, 70), match_limit=8, new_len=20) is None
    assert known(kv, range(50, 66)) == 16
    admission = kv.admit("", range(50, 70), match_limit=8, new_len=16)
    assert admission is not None
    kv.check_ledger([hold, admission.hold])


def test_what_was_just_matched_is_not_evicted_for_the_same_row() -> None:
    kv = make(num_pages=6)
    remember(kv, range(8))
    remember(kv, range(20, 28))
    admission = kv.admit("", range(19), match_limit=8, new_len=19)
    assert admission is not None
    assert admission.hold.cached_len == 8
    assert known(kv, range(20, 28)) == 0
    kv.check_ledger([admission.hold])


def test_a_row_may_take_the_whole_pool_though_it_copies_from_a_page_of_the_tree() -> None:
    """The source page is evicted to become the destination; otherwise the row could never be admitted."""
    kv, canary = make(num_pages=4), Canary(4, 4)
    hold = admit(kv, [1, 2, 3]).hold
    canary.compute(hold, [1, 2, 3], 0, 3)
    kv.commit(hold, 3)
    kv.release(hold, [1, 2, 3])
    ids = [1, 2, *range(10)]
    admission = admit(kv, ids)
    canary.copy(admission.copies)
    canary.compute(admission.hold, ids, 2, 12)
    assert canary.row(admission.hold, 12) == chain(ids)
    kv.check_ledger([admission.hold])


def test_growing_inside_the_last_page_evicts_nothing() -> None:
    kv = make(num_pages=4)
    remember(kv, range(8))
    hold = admit(kv, [50]).hold
    for new_len in (2, 3, 4):
        assert kv.grow(hold, new_len)
    assert kv.statistics().evicted_pages == 0
    assert kv.grow(hold, 5)
    assert kv.statistics().evicted_pages == 1
    assert kv.grow(hold, 12)
    assert not kv.grow(hold, 13)
    assert (hold.allocated_len, kv.available_tokens) == (12, 0)
    kv.check_ledger([hold])


def test_a_checkpoint_gives_whole_pages_and_locks_them() -> None:
    kv = make()
    hold = live(kv, range(10))
    kv.checkpoint(hold, range(10))
    assert hold.tree_len == 8
    statistics = kv.statistics()
    assert (statistics.protected_pages, statistics.private_pages, statistics.evictable_pages) == (2, 1, 0)
    kv.check_ledger([hold])
    kv.checkpoint(hold, range(10))
    kv.release(hold, None)
    assert known(kv, range(10)) == 8
    kv.check_ledger([])


def test_two_identical_prompts_in_one_batch_end_on_the_same_pages() -> None:
    """The second one's pages are freed, reused by a third row, and its own row no longer points to them."""
    kv, canary = make(num_pages=9), Canary(9, 4)
    ids = list(range(1, 10))
    first, second = admit(kv, ids).hold, admit(kv, ids).hold
    for hold in (first, second):
        canary.compute(hold, ids, 0, 9)
        kv.commit(hold, 9)
    for hold in (first, second):
        kv.checkpoint(hold, ids)
        kv.check_ledger([first, second])
    assert first.pages[:2].tolist() == second.pages[:2].tolist()
    assert kv.statistics().duplicate_pages == 2
    third = admit(kv, [77] * 13).hold
    canary.compute(third, [77] * 13, 0, 13)
    for hold in (first, second):
        assert canary.row(hold, 9) == chain(ids)
        assert kv.grow(hold, 10)
        canary.compute(hold, [*ids, 5], 9, 10)
        kv.commit(hold, 10)
        assert canary.row(hold, 10) == chain([*ids, 5])
        kv.release(hold, [*ids, 5])
    kv.check_ledger([third])


def test_releasing_without_ids_frees_only_what_is_private() -> None:
    """A chunk that went to the tree before the row was aborted stays there and is found again."""
    kv = make()
    hold = admit(kv, range(20)).hold
    kv.commit(hold, 10)
    kv.checkpoint(hold, range(20))
    kv.release(hold, None)
    kv.check_ledger([])
    assert known(kv, range(20)) == 8
    assert kv.statistics().free_pages == 37


def test_a_longer_prompt_takes_the_place_of_the_tail_it_continues() -> None:
    kv = make()
    for length in (2, 3, 6, 7, 8, 13):
        remember(kv, range(length))
        assert known(kv, range(20)) == length
        assert len(kv.snapshot().tree) == -(-length // 4)
        kv.check_ledger([])


def test_a_hold_is_used_once() -> None:
    kv = make()
    hold = live(kv, range(5))
    kv.release(hold, None)
    for use in (
        lambda: kv.release(hold, None),
        lambda: kv.grow(hold, 9),
        lambda: kv.commit(hold, 5),
        lambda: kv.checkpoint(hold, range(5)),
        lambda: kv.branch(hold, 4, 5),
    ):
        with pytest.raises(AssertionError, match="after its release"):
            use()


def test_lengths_that_make_no_sense_are_noticed() -> None:
    kv = make()
    hold = live(kv, range(5))
    with pytest.raises(AssertionError, match="commits 4 tokens"):
        kv.commit(hold, 4)
    with pytest.raises(AssertionError, match="commits 9 tokens"):
        kv.commit(hold, 9)
    with pytest.raises(AssertionError, match="201 were asked for"):
        kv.grow(hold, 201)
    with pytest.raises(AssertionError, match="3 ids given"):
        kv.checkpoint(hold, range(3))
    with pytest.raises(AssertionError, match="a branch at 9"):
        kv.branch(hold, 9, 12)


def test_a_branch_borrows_whole_pages_and_copies_what_is_committed_of_the_cut_one() -> None:
    kv, canary = make(), Canary(40, 4)
    ids = list(range(1, 11))
    parent = admit(kv, ids).hold
    canary.compute(parent, ids, 0, 10)
    kv.commit(parent, 10)
    admission = kv.branch(parent, 10, 13)
    assert admission is not None
    branch = admission.hold
    assert (branch.borrowed_len, branch.cached_len, branch.allocated_len) == (8, 10, 16)
    assert admission.copies == (PageCopy(int(parent.pages[2]), int(branch.pages[2]), 2),)
    canary.copy(admission.copies)
    canary.compute(branch, [*ids, 7, 7, 7], 10, 13)
    assert canary.row(branch, 13) == chain([*ids, 7, 7, 7])
    assert canary.row(parent, 10) == chain(ids)
    with pytest.raises(AssertionError, match="1 branches borrow"):
        kv.release(parent, None)
    kv.check_ledger([parent, branch])
    kv.release(branch, None)
    kv.release(parent, ids)
    kv.check_ledger([])


def test_a_branch_of_a_row_that_is_still_to_be_computed_copies_nothing() -> None:
    kv = make()
    parent = admit(kv, range(10)).hold
    admission = kv.branch(parent, 10, 12)
    assert admission is not None
    assert (admission.hold.cached_len, admission.copies) == (8, ())
    child = kv.branch(admission.hold, 12, 14)
    assert child is not None
    assert child.hold.pages[:2].tolist() == parent.pages[:2].tolist()
    assert child.hold.pages[2] == admission.hold.pages[2]
    kv.check_ledger([parent, admission.hold, child.hold])


def test_a_branch_of_a_branch_copies_nothing_that_the_first_row_has_not_computed() -> None:
    """The middle row's own tokens start where it borrows; what lies before is as computed as the lender's."""
    kv = make()
    first = admit(kv, range(10)).hold
    middle = kv.branch(first, 8, 12)
    assert middle is not None
    early = kv.branch(middle.hold, 6, 9)
    assert early is not None
    assert (early.hold.cached_len, early.copies) == (4, ())
    kv.commit(first, 10)
    late = kv.branch(middle.hold, 6, 9)
    assert late is not None
    assert late.copies == (PageCopy(int(first.pages[1]), int(late.hold.pages[1]), 2),)


def test_a_branch_in_the_plan_of_its_parents_copy_reads_what_that_copy_reads() -> None:
    """Copies of a plan read before any writes, so the parent's fresh page is still empty then."""
    kv = make()
    remember(kv, range(7))
    source = kv.snapshot().tree
    parent = admit(kv, range(7))
    same_plan = kv.branch(parent.hold, 6, 9)
    kv.begin_plan()
    next_plan = kv.branch(parent.hold, 6, 9)
    assert same_plan is not None
    assert next_plan is not None
    assert same_plan.copies[0].src == parent.copies[0].src
    assert same_plan.copies[0].src in source
    assert next_plan.copies[0].src == parent.copies[0].dst


def test_the_head_of_a_page_whose_copy_never_ran_does_not_reach_the_tree() -> None:
    """An abort between admission and launch: the fresh page holds nothing yet, and its source is evicted already."""
    kv = make(num_pages=4)
    remember(kv, range(7))
    hold = admit(kv, range(7)).hold
    other = admit(kv, [90]).hold
    kv.release(hold, range(7))
    kv.check_ledger([other])
    assert known(kv, range(7)) == 4


def test_a_checkpoint_rewrites_the_rows_that_borrow() -> None:
    kv = make()
    ids = list(range(9))
    twin, parent = live(kv, ids), live(kv, ids)
    branched = kv.branch(parent, 9, 12)
    assert branched is not None
    nested = kv.branch(branched.hold, 12, 13)
    assert nested is not None
    holds = [twin, parent, branched.hold, nested.hold]
    kv.checkpoint(twin, ids)
    kv.checkpoint(parent, ids)
    for hold in holds:
        assert hold.pages[:2].tolist() == twin.pages[:2].tolist()
    kv.check_ledger(holds)


def test_a_branch_whose_prefix_reached_the_tree_can_leave_its_parent() -> None:
    kv = make()
    ids = list(range(9))
    parent = live(kv, ids)
    branched = kv.branch(parent, 9, 14)
    assert branched is not None
    branch, longer = branched.hold, [*ids, 1, 2, 3, 4]
    kv.commit(branch, 13)
    kv.checkpoint(branch, longer)
    assert branch.parent is parent
    kv.checkpoint(parent, ids)
    kv.checkpoint(branch, longer)
    assert branch.parent is None
    assert (branch.tree_len, branch.borrowed_len) == (12, 0)
    kv.release(parent, ids)
    kv.check_ledger([branch])
    kv.release(branch, longer)
    kv.check_ledger([])
    assert known(kv, longer) == 13


def test_a_branch_gives_nothing_while_its_prefix_is_the_parents() -> None:
    kv = make()
    parent = live(kv, range(9))
    branched = kv.branch(parent, 9, 12)
    assert branched is not None
    kv.commit(branched.hold, 12)
    kv.release(branched.hold, [*range(9), 1, 2, 3])
    kv.check_ledger([parent])
    assert known(kv, range(9)) == 0


def test_a_branch_that_does_not_fit_changes_nothing() -> None:
    kv = make(num_pages=4)
    parent = live(kv, range(8))
    before = kv.snapshot()
    assert kv.branch(parent, 8, 13) is None
    assert kv.snapshot() == before
    assert not parent.branches


def test_a_leased_prefix_outlives_an_unleased_one() -> None:
    kv = make(num_pages=5)
    remember(kv, [1] * 8, lease="program")
    remember(kv, [2] * 8)
    live(kv, [3] * 8)
    assert (known(kv, [1] * 8), known(kv, [2] * 8)) == (8, 0)


def test_an_ended_lease_counts_no_more() -> None:
    kv = make(num_pages=5)
    remember(kv, [1] * 8, lease="program")
    remember(kv, [2] * 8)
    kv.end_lease("program")
    live(kv, [3] * 8)
    assert (known(kv, [1] * 8), known(kv, [2] * 8)) == (0, 8)


def test_a_lease_that_ended_while_its_row_ran_is_not_revived() -> None:
    kv = make(num_pages=7)
    hold = admit(kv, [1] * 8, lease="program").hold
    kv.end_lease("program")
    kv.commit(hold, 8)
    kv.release(hold, [1] * 8)
    remember(kv, [2] * 8, lease="other")
    live(kv, [3] * 16)
    assert (known(kv, [1] * 8), known(kv, [2] * 8)) == (0, 8)
    assert kv.statistics().leases == 1


def test_a_lease_covers_what_its_row_matched() -> None:
    """The prefix was another program's; whoever leases it now keeps it."""
    kv = make(num_pages=7)
    remember(kv, [1] * 8)
    hold = admit(kv, [1] * 9, lease="program").hold
    kv.release(hold, None)
    remember(kv, [2] * 8)
    live(kv, [3] * 16)
    assert (known(kv, [1] * 8), known(kv, [2] * 8)) == (8, 0)


def test_of_leased_prefixes_the_one_needed_last_goes_first() -> None:
    kv = make(num_pages=7)
    remember(kv, [1] * 8, lease="soon", next_use=3)
    remember(kv, [2] * 8, lease="late", next_use=9)
    remember(kv, [3] * 8, lease="middle", next_use=5)
    kv.set_next_use("soon", 4)
    hold = live(kv, [4] * 8)
    assert [known(kv, [first] * 8) for first in (1, 2, 3)] == [8, 0, 8]
    kv.set_next_use("soon", 6)
    assert kv.grow(hold, 16)
    assert [known(kv, [first] * 8) for first in (1, 2, 3)] == [0, 0, 8]


def test_a_pool_smaller_than_its_leases_still_serves() -> None:
    kv = make(num_pages=4)
    for program in range(20):
        remember(kv, [program] * 12, lease=f"program {program}", next_use=program)
    assert kv.available_tokens == kv.total_tokens == 12


def test_flush_forgets_the_tree_unless_a_row_is_live() -> None:
    kv = make()
    remember(kv, range(9), lease="program")
    hold = live(kv, range(5))
    assert not kv.flush()
    assert known(kv, range(9)) == 9
    kv.release(hold, None)
    assert kv.flush()
    assert known(kv, range(9)) == 0
    assert kv.statistics().free_pages == 39
    kv.check_ledger([])


def test_the_check_notices_a_row_that_its_caller_forgot() -> None:
    kv = make()
    live(kv, range(5))
    with pytest.raises(AssertionError, match="the caller knows of"):
        kv.check_ledger([])


def test_available_tokens_is_what_one_row_can_really_get() -> None:
    kv = make(num_pages=9)
    remember(kv, range(14))
    hold = live(kv, range(6))
    assert kv.available_tokens == 24
    other = admit(kv, [9])
    assert kv.grow(other.hold, 24)
    assert not kv.grow(hold, 9)
    kv.check_ledger([hold, other.hold])


def test_a_hold_knows_what_was_evicted_for_it() -> None:
    kv = make(num_pages=7)  # 6 pages of 4 tokens
    remember(kv, range(100, 120))
    hold = admit(kv, range(200, 212)).hold
    assert hold.evicted_pages == 2
    kv.commit(hold, 12)
    assert kv.grow(hold, 17)
    assert hold.evicted_pages == 4
    branch = kv.branch(hold, 12, 16)
    assert branch is not None
    assert branch.hold.evicted_pages == 1
    assert kv.statistics().evicted_pages == 5
