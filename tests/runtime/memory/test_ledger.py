"""The check finds what it is there to find: each test damages one book and expects the sentence about it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from sglang_lite.runtime.memory.hold import KvHold
from sglang_lite.runtime.memory.ledger import check_ledger
from sglang_lite.runtime.memory.pools import Owner, PagePool, RowPool
from sglang_lite.runtime.memory.radix_cache import RadixCache
from sglang_lite.runtime.memory.tree_node import token_key


class Books:
    """One row of two tree pages, one private page and a leased sibling leaf, built without the manager."""

    def __init__(self) -> None:
        self.rows, self.pages, self.tree = RowPool(2, 4), PagePool(8), RadixCache(2)
        root = self.tree.lock("", self.tree.match("", b""))
        taken = self.pages.take(5)
        lease = self.tree.open_lease("program", 0)
        self.tree.insert(root.node, token_key([1, 2, 3, 4], 0, 4), taken[:2], lease)
        self.sibling = self.tree.insert_tail(root.node, token_key([9], 0, 1), taken[3:4], None).node
        self.node = self.tree.insert(root.node, token_key([5, 6], 0, 2), taken[4:5], None).node
        self.pages.to_tree(taken[[0, 1, 3, 4]])
        self.lock = self.tree.lock("", self.tree.match("", token_key([1, 2, 3, 4], 0, 4)))
        self.tree.unlock(root)
        row = self.rows.take()
        self.rows.table[row, :3] = taken[:3]
        self.hold = KvHold(row, "", 4, 5, 6, 4, 0, None, self.lock, None, self.rows.table[row], 2, None, 0)

    def check(self) -> None:
        check_ledger(self.rows, self.pages, self.tree, [self.hold], 2)


def free_a_tree_page(books: Books) -> None:
    books.pages.give(books.sibling.pages, Owner.TREE)


def leak_a_page(books: Books) -> None:
    books.pages.take(1)


def share_a_private_page(books: Books) -> None:
    books.hold.row_pages[2] = books.node.pages[0]


def leak_a_row(books: Books) -> None:
    books.rows.take()


def mislabel_a_page(books: Books) -> None:
    books.pages.owner[books.sibling.pages] = Owner.PRIVATE


def forget_a_lock(books: Books) -> None:
    books.lock.node.lock_ref -= 1


def lock_once_too_often(books: Books) -> None:
    books.tree.lock("", books.tree.match("", token_key([5, 6], 0, 2)))


def end_the_lock(books: Books) -> None:
    books.tree.unlock(books.lock)


def miscount_evictable_pages(books: Books) -> None:
    books.tree.evictable_pages += 1


def unqueue_a_leaf(books: Books) -> None:
    books.tree.queue.drop(books.node)


def stamp_without_the_queue(books: Books) -> None:
    books.node.stamp = 0


def let_the_row_differ_from_its_path(books: Books) -> None:
    books.hold.row_pages[:2] = books.hold.row_pages[[1, 0]]


def overrun_the_pages(books: Books) -> None:
    books.hold.committed_len = 7


def file_under_another_key(books: Books) -> None:
    books.node.key = token_key([5, 7], 0, 2)


def break_the_order_of_heads(books: Books) -> None:
    parent = books.node.parent
    assert parent is not None
    parent.heads.reverse()


def keep_an_ended_lease(books: Books) -> None:
    del books.tree.leases["program"]


def hold_a_cut_page(books: Books) -> None:
    books.hold.allocated_len = 7


def lose_the_parent(books: Books) -> None:
    books.hold.lock = None


DAMAGES: list[tuple[Callable[[Books], None], str]] = [
    (free_a_tree_page, "more than one owner"),
    (leak_a_page, "pages leaked"),
    (share_a_private_page, "more than one owner"),
    (leak_a_row, "rows leaked"),
    (mislabel_a_page, "not by the pool"),
    (forget_a_lock, "locks"),
    (lock_once_too_often, "counts 2 locks, 1 are live"),
    (end_the_lock, "was released"),
    (miscount_evictable_pages, "evictable pages are counted"),
    (unqueue_a_leaf, "stamp"),
    (stamp_without_the_queue, "queue counts"),
    (let_the_row_differ_from_its_path, "locked path"),
    (overrun_the_pages, "committed 7"),
    (file_under_another_key, "another key"),
    (break_the_order_of_heads, "sorted heads"),
    (keep_an_ended_lease, "lease 'program'"),
    (hold_a_cut_page, "allocated 7"),
    (lose_the_parent, "locks"),
]


def test_books_in_order_pass() -> None:
    Books().check()


@pytest.mark.parametrize(("damage", "sentence"), DAMAGES, ids=lambda case: getattr(case, "__name__", ""))
def test_every_kind_of_damage_is_found(damage: Callable[[Books], None], sentence: str) -> None:
    books = Books()
    damage(books)
    with pytest.raises(AssertionError, match=sentence):
        books.check()


def test_page_numbers_are_those_of_the_pool() -> None:
    books = Books()
    books.node.pages = np.array([99], dtype=np.int32)
    with pytest.raises(AssertionError, match=r"foreign: \[99\]"):
        books.check()
