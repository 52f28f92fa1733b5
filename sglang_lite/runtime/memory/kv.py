"""KvManager: the only writer of rows, pages and tree locks; knows nothing of requests, batches or what KV is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sglang_lite.runtime.memory.hold import Admission, KvHold, PageCopy
from sglang_lite.runtime.memory.ledger import LedgerSnapshot, check_ledger, take_snapshot
from sglang_lite.runtime.memory.pools import Owner, PagePool, RowPool
from sglang_lite.runtime.memory.radix_cache import Match, RadixCache
from sglang_lite.runtime.memory.tree_node import LockHandle, TokenIds, TreeNode, token_key


@dataclass(frozen=True, slots=True)
class KvStatistics:
    """Counts of pages and rows now, and totals since the start."""

    total_pages: int
    free_pages: int
    evictable_pages: int
    protected_pages: int
    private_pages: int
    total_rows: int
    free_rows: int
    leases: int
    evictable_leaves: int
    admissions: int
    """Rows admitted, branches not counted."""
    cached_tokens: int
    """Tokens found at admission."""
    evicted_pages: int
    duplicate_pages: int
    """Private pages given up because the tree had the same tokens."""


class KvManager:
    """Rows, pages and the radix tree of known prefixes as one ledger.

    Lengths are tokens. Every verb either does all it says or, where it returns None or False, nothing. Pages of
    tokens that are not committed are never matchable. The token ids given for a hold must be those its KV was
    computed from. Not thread-safe: one thread owns it.

    Copies handed out by `admit` and `branch` belong in the next plan; `begin_plan` says that the next one starts.
    """

    def __init__(
        self, *, num_rows: int, num_pages: int, page_size: int, max_len: int, enable_radix: bool = True
    ) -> None:
        assert page_size >= 1 and max_len >= 1, f"page_size and max_len are at least 1, got {page_size} and {max_len}"
        self.page_size = page_size
        self.max_len = max_len
        self.enable_radix = enable_radix
        self._rows = RowPool(num_rows, -(-max_len // page_size))
        self._pages = PagePool(num_pages)
        self._tree = RadixCache(page_size)
        self._holds: dict[int, KvHold] = {}
        self._plan = 0
        self._admissions = self._cached_tokens = self._evicted_pages = self._duplicate_pages = 0

    @property
    def num_rows(self) -> int:
        """Rows, free or not."""
        return self._rows.num_rows

    @property
    def free_rows(self) -> int:
        """Rows that can be admitted or branched."""
        return self._rows.num_free

    @property
    def total_tokens(self) -> int:
        """Capacity of the pool without the sink page."""
        return (self._pages.num_pages - 1) * self.page_size

    @property
    def available_tokens(self) -> int:
        """Capacity of the free and the evictable pages together; exact, O(1)."""
        return (self._pages.num_free + self._tree.evictable_pages) * self.page_size

    def begin_plan(self) -> None:
        """The copies handed out so far are in a plan that was launched; later plans may read what they wrote.

        A caller that plans ahead of its commits says so before each plan; otherwise `commit` is enough.
        """
        self._plan += 1

    def probe(self, namespace: str, ids: TokenIds, limit: int) -> int:
        """Tokens of `ids[:limit]` that `admit` would find now. Changes nothing, not even the order of eviction."""
        match = self._match(namespace, ids, limit)
        return match.num_pages * self.page_size + match.source_tokens

    def admit(
        self,
        namespace: str,
        ids: TokenIds,
        *,
        match_limit: int,
        new_len: int,
        lease: str | None = None,
        next_use: int = 0,
    ) -> Admission | None:
        """A row with pages up to `new_len`, the known prefix of `ids[:match_limit]` in it.

        Whole pages are the tree's, locked; the head of one more page is a copy. The page that is copied from may be
        evicted at once if nothing else is left: copies read before anything of their plan is written. None: too few
        rows or pages. `lease` (made on first use) takes `next_use` as its next use and covers the row's prefixes.
        """
        self._expect_fits(new_len)
        match = self._match(namespace, ids, match_limit)
        cached = match.num_pages * self.page_size + match.source_tokens
        needed = self._page_count(max(new_len, cached)) - match.num_pages
        if not self._rows.num_free or needed > self._free_or_evictable() - match.unlocked_pages:
            return None
        lock = self._tree.lock(namespace, match, self._tree.open_lease(lease, next_use) if lease is not None else None)
        shared = [node.pages for node in self._tree.path(lock.node)]
        evicted = self._evicted_pages
        fresh = self._allocate(needed)
        copy = PageCopy(match.source_page, int(fresh[0]), match.source_tokens) if match.source_tokens else None
        hold = self._new_hold(namespace, cached, np.concatenate([*shared, fresh]), lease, copy)
        hold.lock, hold.tree_len = lock, match.num_pages * self.page_size
        hold.evicted_pages = self._evicted_pages - evicted
        self._admissions += 1
        self._cached_tokens += cached
        return Admission(hold, (copy,) if copy else ())

    def grow(self, hold: KvHold, new_len: int) -> bool:
        """Give the row pages up to `new_len`; a page that it has is enough for all its positions. False: too few."""
        self._expect_live(hold)
        self._expect_fits(new_len)
        have, want = hold.allocated_len // self.page_size, self._page_count(new_len)
        if want <= have:
            return True
        if want - have > self._free_or_evictable():
            return False
        evicted = self._evicted_pages
        hold.row_pages[have:want] = self._allocate(want - have)
        hold.evicted_pages += self._evicted_pages - evicted
        hold.allocated_len = want * self.page_size
        return True

    def commit(self, hold: KvHold, new_committed_len: int) -> None:
        """The KV of the row is computed up to there, its copies included."""
        self._expect_live(hold)
        assert hold.committed_len <= new_committed_len <= hold.allocated_len, (
            f"row {hold.row} commits {new_committed_len} tokens; it has {hold.committed_len} and room for {hold.allocated_len}"
        )
        hold.committed_len = new_committed_len
        hold.unrun_copy = None

    def checkpoint(self, hold: KvHold, ids: TokenIds) -> None:
        """Give the whole pages of `ids[:committed_len]` to the tree.

        Pages the tree has already are freed, and the row, with the branches that borrow from it, is rewritten to the
        tree's. The lock moves down before anything is let go. A branch row whose borrowed prefix is in the tree locks
        it there and leaves its parent; one whose prefix is not, stays as it is.
        """
        self._expect_live(hold)
        assert len(ids) >= hold.committed_len, f"{len(ids)} ids given for {hold.committed_len} committed tokens"
        if self.enable_radix:
            self._give_whole_pages(hold, ids, self._given_len(hold))

    def branch(self, parent: KvHold, at_len: int, new_len: int) -> Admission | None:
        """A row that continues `parent` after its first `at_len` tokens, with pages of its own up to `new_len`.

        It borrows the parent's whole pages below `at_len`, computed or not, so it may run in the batch that computes
        them. What the parent has committed of the page that `at_len` cuts is copied. The parent must outlive it, or a
        checkpoint must have put the borrowed prefix into the tree. None: too few rows or pages.
        """
        self._expect_live(parent)
        self._expect_fits(new_len)
        assert 0 <= at_len <= min(new_len, parent.allocated_len), (
            f"a branch at {at_len} of a row with {parent.allocated_len} positions, up to {new_len}"
        )
        whole = at_len // self.page_size
        needed = self._page_count(new_len) - whole
        if not self._rows.num_free or needed > self._free_or_evictable():
            return None
        evicted = self._evicted_pages
        fresh = self._allocate(needed)
        start = whole * self.page_size
        owner = parent
        while owner.parent is not None and start < owner.borrowed_len:
            owner = owner.parent
        copy, head = None, min(at_len, owner.committed_len) - start
        if head > 0:
            copy = PageCopy(self._source_of(owner, whole), int(fresh[0]), head)
        pages = np.concatenate([parent.row_pages[:whole], fresh])
        hold = self._new_hold(parent.namespace, start + max(head, 0), pages, parent.lease, copy)
        hold.borrowed_len, hold.parent = start, parent
        hold.evicted_pages = self._evicted_pages - evicted
        parent.branches.append(hold)
        return Admission(hold, (copy,) if copy else ())

    def release(self, hold: KvHold, ids: TokenIds | None) -> None:
        """End a hold. With `ids`, what is committed goes to the tree, the last page's head included; else nothing does.

        Private pages that the tree does not take are freed, the lock ends, the row is free. A branch row gives only
        if its borrowed prefix is in the tree.
        """
        self._expect_live(hold)
        assert not hold.branches, f"row {hold.row} is released while {len(hold.branches)} branches borrow its pages"
        given = 0
        if ids is not None:
            self.checkpoint(hold, ids)
            given = self._give_tail(hold, ids)
        self._pages.give(hold.pages[hold.shared_len // self.page_size + given :], Owner.PRIVATE)
        if hold.lock is not None:
            self._tree.unlock(hold.lock)
        self._leave_parent(hold)
        hold.is_released = True
        del self._holds[hold.row]
        self._rows.give(hold.row)

    def set_next_use(self, lease: str, next_use: int) -> None:
        """Change when a lease's prefixes will be needed (smaller is sooner); an unknown lease is ignored."""
        self._tree.set_next_use(lease, next_use)

    def end_lease(self, lease: str) -> None:
        """The lease's prefixes lose its priority; an unknown lease is ignored."""
        self._tree.end_lease(lease)

    def flush(self) -> bool:
        """Forget the tree; leases stay open. False, and nothing is done, if any hold is live."""
        if self._holds:
            return False
        self._pages.give(self._tree.evict(self._tree.evictable_pages), Owner.TREE)
        return True

    def snapshot(self) -> LedgerSnapshot:
        """Who owns each page and row, recomputed from scratch."""
        return take_snapshot(self._rows, self._pages, self._tree, self._holds.values(), self.page_size)

    def tree_nodes(self) -> Iterator[tuple[int, TreeNode]]:
        """(depth, node) of the radix tree, parents first; to look at, not to change."""
        for node in self._tree.nodes():
            yield len(self._tree.path(node)), node

    def check_ledger(self, holds: Iterable[KvHold]) -> None:
        """Assert the conservation law, `holds` being all that the caller knows to be live; see `ledger.check_ledger`."""
        live = list(holds)
        assert {id(hold) for hold in live} == {id(hold) for hold in self._holds.values()}, (
            f"rows held: {sorted(self._holds)}, rows the caller knows of: {sorted(hold.row for hold in live)}"
        )
        check_ledger(self._rows, self._pages, self._tree, live, self.page_size)

    def statistics(self) -> KvStatistics:
        """Counts now and since the start; O(1)."""
        pages, rows, tree = self._pages.statistics(), self._rows.statistics(), self._tree.statistics()
        return KvStatistics(
            total_pages=pages.total,
            free_pages=pages.free,
            evictable_pages=tree.evictable_pages,
            protected_pages=tree.protected_pages,
            private_pages=pages.total - pages.free - tree.evictable_pages - tree.protected_pages,
            total_rows=rows.total,
            free_rows=rows.free,
            leases=tree.leases,
            evictable_leaves=tree.evictable_leaves,
            admissions=self._admissions,
            cached_tokens=self._cached_tokens,
            evicted_pages=self._evicted_pages,
            duplicate_pages=self._duplicate_pages,
        )

    def _match(self, namespace: str, ids: TokenIds, limit: int) -> Match:
        return self._tree.match(namespace, token_key(ids, 0, max(limit, 0) if self.enable_radix else 0))

    def _page_count(self, num_tokens: int) -> int:
        return -(-num_tokens // self.page_size)

    def _free_or_evictable(self) -> int:
        return self._pages.num_free + self._tree.evictable_pages

    def _allocate(self, count: int) -> NDArray[np.int32]:
        short = count - self._pages.num_free
        if short > 0:
            self._pages.give(self._tree.evict(short), Owner.TREE)
            self._evicted_pages += short
        return self._pages.take(count)

    def _new_hold(
        self, namespace: str, cached: int, pages: NDArray[np.int32], lease: str | None, copy: PageCopy | None
    ) -> KvHold:
        row = self._rows.take()
        row_pages = self._rows.table[row]
        row_pages[: len(pages)] = pages
        hold = KvHold(
            row=row,
            namespace=namespace,
            cached_len=cached,
            committed_len=cached,
            allocated_len=len(pages) * self.page_size,
            tree_len=0,
            borrowed_len=0,
            lease=lease,
            lock=None,
            parent=None,
            row_pages=row_pages,
            page_size=self.page_size,
            unrun_copy=copy,
            unrun_plan=self._plan,
        )
        self._holds[row] = hold
        return hold

    def _source_of(self, hold: KvHold, index: int) -> int:
        """The page to read for the row's `index`-th: where its own copy is in the same plan, what that one reads."""
        page, copy = int(hold.row_pages[index]), hold.unrun_copy
        is_pending = copy is not None and hold.unrun_plan == self._plan and copy.dst == page
        return copy.src if copy is not None and is_pending else page

    def _given_len(self, hold: KvHold) -> int:
        """Committed tokens that may go to the tree: not the head of a page whose copy has not run."""
        if hold.unrun_copy is not None and hold.unrun_plan == self._plan:
            return hold.committed_len - hold.unrun_copy.num_tokens
        return hold.committed_len

    def _give_whole_pages(self, hold: KvHold, ids: TokenIds, given_len: int) -> None:
        lock = self._lock_of(hold, ids)
        stop = given_len - given_len % self.page_size
        if lock is None or stop <= hold.tree_len:
            return
        first, last = hold.tree_len // self.page_size, stop // self.page_size
        pages = hold.row_pages[first:last].copy()
        lease = self._tree.leases.get(hold.lease) if hold.lease is not None else None
        node, present, replaced = self._tree.insert(lock.node, token_key(ids, hold.tree_len, stop), pages, lease)
        self._tree.extend_lock(lock, node)
        self._pages.to_tree(pages[len(present) :])
        self._pages.give(pages[: len(present)], Owner.PRIVATE)
        self._pages.give(replaced, Owner.TREE)
        self._duplicate_pages += len(present)
        _rewrite(hold, first, present)
        hold.tree_len = stop

    def _give_tail(self, hold: KvHold, ids: TokenIds) -> int:
        """Give the head of the page after the tree's part; returns how many pages the tree took, 0 or 1."""
        given_len = self._given_len(hold)
        first = hold.tree_len // self.page_size
        if not self.enable_radix or hold.lock is None or given_len <= hold.tree_len:
            return 0
        page = hold.row_pages[first : first + 1].copy()
        lease = self._tree.leases.get(hold.lease) if hold.lease is not None else None
        key = token_key(ids, hold.tree_len, given_len)
        _, present, replaced = self._tree.insert_tail(hold.lock.node, key, page, lease)
        if len(present):
            self._duplicate_pages += 1
            return 0
        self._pages.to_tree(page)
        self._pages.give(replaced, Owner.TREE)
        return 1

    def _lock_of(self, hold: KvHold, ids: TokenIds) -> LockHandle | None:
        """The hold's lock; a branch row gets one, and leaves its parent, if the tree has the prefix it borrows."""
        if hold.lock is None:
            match = self._tree.match(hold.namespace, token_key(ids, 0, hold.borrowed_len))
            if match.num_pages * self.page_size < hold.borrowed_len:
                return None
            lease = self._tree.leases.get(hold.lease) if hold.lease is not None else None
            hold.lock = self._tree.lock(hold.namespace, match, lease)
            _rewrite(hold, 0, np.concatenate([hold.row_pages[:0]] + [n.pages for n in self._tree.path(hold.lock.node)]))
            hold.tree_len, hold.borrowed_len = hold.borrowed_len, 0
            self._leave_parent(hold)
        return hold.lock

    def _leave_parent(self, hold: KvHold) -> None:
        if hold.parent is not None:
            hold.parent.branches.remove(hold)
            hold.parent = None

    def _expect_live(self, hold: KvHold) -> None:
        assert not hold.is_released, f"the hold of row {hold.row} is used after its release"

    def _expect_fits(self, new_len: int) -> None:
        assert 1 <= new_len <= self.max_len, f"a row has 1 to {self.max_len} positions, {new_len} were asked for"


def _rewrite(hold: KvHold, first: int, pages: NDArray[np.int32]) -> None:
    """Put `pages` into the row from page `first` on, and into the rows that borrow that part."""
    hold.row_pages[first : first + len(pages)] = pages
    hold.planned = None
    for branch in hold.branches:
        borrowed = branch.borrowed_len // branch.page_size - first
        if borrowed > 0:
            _rewrite(branch, first, pages[:borrowed])
