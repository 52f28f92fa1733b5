"""The check of the conservation law over rows, pages and the tree; recomputes everything, changes nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from sglang_lite.runtime.memory.hold import KvHold
from sglang_lite.runtime.memory.pools import Owner, PagePool, RowPool
from sglang_lite.runtime.memory.radix_cache import RadixCache
from sglang_lite.runtime.memory.tree_node import TOKEN_BYTES, TreeNode, common_tokens


@dataclass(frozen=True, slots=True)
class LedgerSnapshot:
    """Pages by owner and rows by use; page 0 is in none of the sets. Lists keep repetitions, for the check to find."""

    free: tuple[int, ...]
    tree: tuple[int, ...]
    private: tuple[int, ...]
    free_rows: tuple[int, ...]
    held_rows: tuple[int, ...]


def take_snapshot(
    rows: RowPool, pages: PagePool, tree: RadixCache, holds: Iterable[KvHold], page_size: int
) -> LedgerSnapshot:
    """Walk the free stacks, the tree and the rows. O(pages)."""
    holds = list(holds)
    return LedgerSnapshot(
        free=tuple(int(page) for page in pages.free_pages()),
        tree=tuple(int(page) for node in tree.nodes() for page in node.pages),
        private=tuple(int(page) for hold in holds for page in hold.pages[hold.shared_len // page_size :]),
        free_rows=tuple(int(row) for row in rows.free_rows()),
        held_rows=tuple(hold.row for hold in holds),
    )


def check_ledger(rows: RowPool, pages: PagePool, tree: RadixCache, holds: Collection[KvHold], page_size: int) -> None:
    """Assert the conservation law, as sets and not as counts; `holds` are all live ones.

    Free, tree and private pages are disjoint and together all pages but the sink, and agree with the pool's owners;
    free and held rows likewise. A node's lock count is the number of live locks through it, a parent's no less than a
    child's; the page counters are those of the nodes; the eviction queue has the lock-free leaves and no other node.
    A row's first pages are those of its locked path, or of a live parent.
    """
    snapshot = take_snapshot(rows, pages, tree, holds, page_size)
    owned = {Owner.FREE: snapshot.free, Owner.TREE: snapshot.tree, Owner.PRIVATE: snapshot.private}
    _check_partition("pages", list(owned.values()), set(range(1, pages.num_pages)))
    _check_partition("rows", [snapshot.free_rows, snapshot.held_rows], set(range(rows.num_rows)))
    for owner, members in owned.items():
        strangers = [page for page in members if pages.owner[page] != owner]
        assert not strangers, f"pages {strangers} are {owner.name} by the walk, not by the pool"
    _check_locks(tree, holds)
    for node in tree.nodes():
        _check_node(tree, node, page_size)
    for hold in holds:
        _check_hold(tree, hold, page_size)


def _check_partition(what: str, parts: list[tuple[int, ...]], whole: set[int]) -> None:
    counts = Counter(member for part in parts for member in part)
    twice = sorted(member for member, count in counts.items() if count > 1)
    assert not twice, f"{what} {twice} have more than one owner"
    assert counts.keys() == whole, (
        f"{what} leaked: {sorted(whole - counts.keys())}, foreign: {sorted(counts.keys() - whole)}"
    )


def _check_locks(tree: RadixCache, holds: Collection[KvHold]) -> None:
    locks: Counter[int] = Counter()
    for hold in holds:
        node: TreeNode | None = None
        if hold.lock is not None:
            assert not hold.lock.is_released, f"the lock of row {hold.row} was released"
            node = hold.lock.node
        while node is not None:
            locks[id(node)] += 1
            node = node.parent
    for node in tree.nodes():
        found = locks.pop(id(node), 0)
        assert node.lock_ref == found, (
            f"a node of {len(node.pages)} pages counts {node.lock_ref} locks, {found} are live"
        )
    assert not locks, f"{len(locks)} locked nodes are not in the tree"
    protected = sum(len(node.pages) for node in tree.nodes() if node.lock_ref)
    evictable = sum(len(node.pages) for node in tree.nodes() if not node.lock_ref)
    assert (tree.protected_pages, tree.evictable_pages) == (protected, evictable), (
        f"protected and evictable pages are counted {tree.protected_pages} and {tree.evictable_pages},"
        f" they are {protected} and {evictable}"
    )
    leaves = sum(1 for node in tree.nodes() if node.stamp)
    assert tree.queue.num_leaves == leaves, f"the queue counts {tree.queue.num_leaves} leaves, {leaves} are stamped"


def _check_node(tree: RadixCache, node: TreeNode, page_size: int) -> None:
    is_free_leaf = node.parent is not None and not node.children and not node.lock_ref
    assert bool(node.stamp) == is_free_leaf, (
        f"stamp {node.stamp} on a node that is{'' if is_free_leaf else ' not'} a lock-free leaf"
    )
    assert node.parent is None or node.parent.lock_ref >= node.lock_ref, "a child has more locks than its parent"
    assert node.parent is not None or node.children or node.lock_ref, f"an empty root of {node.namespace!r} is kept"
    assert not node.is_tail or not (node.children or node.lock_ref), "a tail has children or locks"
    tokens = len(node.key) // TOKEN_BYTES
    if node.is_tail:
        assert 0 < tokens < page_size and len(node.pages) == 1, f"a tail of {tokens} tokens in {len(node.pages)} pages"
    elif node.parent is not None:
        assert 0 < tokens == len(node.pages) * page_size, f"{tokens} tokens in {len(node.pages)} whole pages"
    for lease in node.leases:
        assert tree.leases.get(lease.name) is lease and node in lease.nodes, (
            f"lease {lease.name!r} is over or one-sided"
        )
    for head, child in node.children.items():
        assert child.parent is node and child.key[: page_size * TOKEN_BYTES] == head, (
            "a child is filed under another key"
        )
    if page_size > 1:
        assert node.heads == sorted(node.children), "the sorted heads are not the children's"
    for left, right in zip(node.heads, node.heads[1:], strict=False):
        assert common_tokens(left, right) * TOKEN_BYTES < len(left), "a sibling is a prefix of another"


def _check_hold(tree: RadixCache, hold: KvHold, page_size: int) -> None:
    where = f"row {hold.row}: tree {hold.tree_len}, borrowed {hold.borrowed_len}, committed {hold.committed_len}, allocated {hold.allocated_len}"
    assert hold.shared_len <= hold.allocated_len and hold.committed_len <= hold.allocated_len, where
    assert hold.tree_len <= hold.committed_len and not (hold.tree_len and hold.borrowed_len), where
    assert not (hold.shared_len % page_size or hold.allocated_len % page_size), where
    shared = hold.pages[: hold.shared_len // page_size].tolist()
    assert all(branch.parent is hold and not branch.is_released for branch in hold.branches), where
    if hold.lock is not None:
        path = [int(page) for node in tree.path(hold.lock.node) for page in node.pages]
        assert shared == path and hold.parent is None, f"{where}: the row has {shared}, its locked path {path}"
    else:
        parent = hold.parent
        assert parent is not None and not parent.is_released and hold in parent.branches, f"{where}: no live parent"
        assert shared == parent.pages[: len(shared)].tolist(), f"{where}: the row and its parent differ"
