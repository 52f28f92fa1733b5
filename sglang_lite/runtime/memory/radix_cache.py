"""The radix tree of known prefixes: match, lock, insert, evict; knows page numbers but owns neither pool nor rows."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sglang_lite.runtime.memory.eviction import EvictionQueue
from sglang_lite.runtime.memory.tree_node import NO_PAGES, TOKEN_BYTES, Lease, LockHandle, TreeNode, common_tokens


class Match(NamedTuple):
    """The longest known prefix of a key, token-exact: whole pages, then the head of one more page."""

    node: TreeNode | None
    """Where the whole pages end; None: the namespace is unknown."""
    inside: TreeNode | None = None
    """The child of `node` in whose middle the whole pages end ..."""
    inside_pages: int = 0
    """... after so many of its pages; 0: they end with `node`."""
    num_pages: int = 0
    """Whole pages matched."""
    unlocked_pages: int = 0
    """Those of them that no lock protects yet."""
    source: TreeNode | None = None
    """The node that has the page whose head matches; None: nothing beyond the whole pages."""
    source_page: int = 0
    source_tokens: int = 0
    """Tokens of that page that match, less than a page."""


class Insertion(NamedTuple):
    """What an insert found and did."""

    node: TreeNode
    """Where the inserted tokens end."""
    present: NDArray[np.int32]
    """int32, the pages that the tree already had for the leading tokens; the caller's own pages for them are not taken."""
    replaced: NDArray[np.int32]
    """int32, pages the tree let go of, because the inserted ones say the same and more."""


@dataclass(frozen=True, slots=True)
class RadixStatistics:
    """What the tree has now. `evictable_leaves`: lock-free leaves. `evicted_pages`: since the start."""

    namespaces: int
    leases: int
    evictable_pages: int
    protected_pages: int
    evictable_leaves: int
    evicted_pages: int


class RadixCache:
    """A tree keyed by (namespace, tokens) whose nodes hold pages of KV.

    Whole pages are shared; the head of a page is matched to the token, to be copied by the caller. Siblings differ in
    their first page, and none is a prefix of another. Eviction takes lock-free leaves, trimmed from their end page by
    page: what is freed is exactly what was asked for, and the rest of the leaf stays. Costs: O(key) bytes compared and
    O(log siblings) for each node passed.

    Attributes:
        evictable_pages: pages of nodes with no lock; all of them can be evicted.
        protected_pages: pages of locked nodes.

    """

    def __init__(self, page_size: int) -> None:
        self.page_size = page_size
        self.roots: dict[str, TreeNode] = {}
        self.leases: dict[str, Lease] = {}
        self.queue = EvictionQueue()
        self.evictable_pages = 0
        self.protected_pages = 0
        self._evicted_pages = 0
        self._page_bytes = page_size * TOKEN_BYTES
        self._clock = 0

    def match(self, namespace: str, key: bytes) -> Match:
        """The longest prefix of `key` that is known. Changes nothing."""
        node = self.roots.get(namespace)
        if node is None:
            return Match(None)
        pos = num_pages = unlocked = 0
        while True:
            child = node.children.get(key[pos : pos + self._page_bytes])
            if child is None or child.is_tail:
                source, tokens = self._best_head(node, key[pos : pos + self._page_bytes])
                page = int(source.pages[0]) if source else 0
                return Match(node, None, 0, num_pages, unlocked, source, page, tokens)
            part = key[pos : pos + len(child.key)]
            if part != child.key:
                pages, tokens = divmod(common_tokens(part, child.key), self.page_size)
                unlocked += 0 if child.lock_ref else pages
                source, page = (child, int(child.pages[pages])) if tokens else (None, 0)
                return Match(node, child, pages, num_pages + pages, unlocked, source, page, tokens)
            node = child
            pos += len(part)
            num_pages += len(child.pages)
            unlocked += 0 if child.lock_ref else len(child.pages)

    def lock(self, namespace: str, match: Match, lease: Lease | None = None) -> LockHandle:
        """Lock the path of the whole pages just matched, put it under `lease`, and mark the source as used."""
        node = match.node
        if node is None:
            node = self.roots[namespace] = TreeNode(b"", NO_PAGES, None, self._tick(), namespace=namespace)
        if match.inside is not None:
            node = self._split(match.inside, match.inside_pages)
        if match.source is not None:
            self.touch(match.source)
        self._lock_up(node, None)
        if lease is not None:
            for above in self.path(node):
                self._join(above, lease)
        return LockHandle(node)

    def extend_lock(self, handle: LockHandle, node: TreeNode) -> None:
        """Move a lock down to `node`, which lies below its place; nothing is unprotected in between."""
        self._lock_up(node, handle.node)
        handle.node = node

    def unlock(self, handle: LockHandle) -> None:
        """End a lock; a handle is used once."""
        assert not handle.is_released, f"the lock on a node of {len(handle.node.pages)} pages is released twice"
        handle.is_released = True
        now = self._tick()
        node: TreeNode | None = handle.node
        while node is not None:
            parent = node.parent
            assert node.lock_ref > 0, f"a node of {len(node.pages)} pages is unlocked without a lock"
            node.lock_ref -= 1
            node.last_use = now
            if not node.lock_ref:
                self.protected_pages -= len(node.pages)
                self.evictable_pages += len(node.pages)
                self._settle(node)
            node = parent

    def insert(self, start: TreeNode, key: bytes, pages: NDArray[np.int32], lease: Lease | None) -> Insertion:
        """Put whole pages below `start`: `key` continues the tokens that end there, `pages` (int32) hold their KV.

        The tree takes `pages[len(present):]`; the array is kept, so the caller must not write to it afterwards.
        """
        assert len(key) == len(pages) * self._page_bytes, f"{len(pages)} pages do not hold a key of {len(key)} bytes"
        node, pos, present = start, 0, list[NDArray[np.int32]]()
        while pos < len(key):
            child = node.children.get(key[pos : pos + self._page_bytes])
            if child is None:
                break
            part = key[pos : pos + len(child.key)]
            if part != child.key:
                child = self._split(child, common_tokens(part, child.key) // self.page_size)
            self._join(child, lease)
            present.append(child.pages)
            node = child
            pos += len(child.key)
        replaced = NO_PAGES
        if pos < len(key):
            node, replaced = self._add(node, key[pos:], pages[pos // self._page_bytes :], lease, is_tail=False)
        return Insertion(node, np.concatenate(present) if present else NO_PAGES, replaced)

    def insert_tail(self, start: TreeNode, key: bytes, page: NDArray[np.int32], lease: Lease | None) -> Insertion:
        """Put a page of which only the tokens `key` are known below `start`. `page`: int32 [1]."""
        assert 0 < len(key) < self._page_bytes, f"a tail is part of a page, got {len(key) // TOKEN_BYTES} tokens"
        i = bisect_left(start.heads, key)
        if i < len(start.heads) and start.heads[i].startswith(key):
            longer = start.children[start.heads[i]]
            self._join(longer, lease)
            self.touch(longer)
            return Insertion(longer, longer.pages[:1], NO_PAGES)
        node, replaced = self._add(start, key, page, lease, is_tail=True)
        return Insertion(node, NO_PAGES, replaced)

    def evict(self, count: int) -> NDArray[np.int32]:
        """Forget exactly `count` pages; returns them, int32. There must be so many evictable ones."""
        assert count <= self.evictable_pages, f"{count} pages to evict, {self.evictable_pages} are evictable"
        self._evicted_pages += count
        freed: list[NDArray[np.int32]] = []
        while count > 0:
            node = self.queue.first()
            kept = len(node.pages) - count
            if kept > 0:
                freed.append(node.pages[kept:])
                node.pages = node.pages[:kept]
                node.key = node.key[: kept * self._page_bytes]
                self.evictable_pages -= count
                break
            freed.append(node.pages)
            count -= len(node.pages)
            self._remove(node)
        return np.concatenate(freed) if freed else NO_PAGES

    def open_lease(self, name: str, next_use: int) -> Lease:
        """The lease of that name, made if it is not there, with a new next use."""
        lease = self.leases.get(name)
        if lease is None:
            lease = self.leases[name] = Lease(name, next_use)
        else:
            self.set_next_use(name, next_use)
        return lease

    def set_next_use(self, name: str, next_use: int) -> None:
        """Change when a lease's prefixes will be needed; an unknown lease is ignored. O(nodes of the lease)."""
        lease = self.leases.get(name)
        if lease is not None and lease.next_use != next_use:
            lease.next_use = next_use
            self._requeue(lease)

    def end_lease(self, name: str) -> None:
        """The lease's nodes lose its priority; an unknown lease is ignored. O(nodes of the lease)."""
        lease = self.leases.pop(name, None)
        if lease is not None:
            for node in lease.nodes:
                node.leases.discard(lease)
            self._requeue(lease)

    def touch(self, node: TreeNode) -> None:
        """`node` was used just now."""
        node.last_use = self._tick()
        if node.stamp:
            self.queue.push(node)

    def statistics(self) -> RadixStatistics:
        """Counts now; O(1)."""
        return RadixStatistics(
            len(self.roots),
            len(self.leases),
            self.evictable_pages,
            self.protected_pages,
            self.queue.num_leaves,
            self._evicted_pages,
        )

    def path(self, node: TreeNode) -> list[TreeNode]:
        """The nodes from below the root down to `node`."""
        nodes: list[TreeNode] = []
        while node.parent is not None:
            nodes.append(node)
            node = node.parent
        return nodes[::-1]

    def nodes(self) -> Iterator[TreeNode]:
        """Every node, roots included, parents first."""
        stack = list(self.roots.values())
        while stack:
            node = stack.pop()
            yield node
            stack.extend(node.children.values())

    def _tick(self) -> int:
        self._clock += 1
        return self._clock

    def _best_head(self, node: TreeNode, query: bytes) -> tuple[TreeNode | None, int]:
        """The child whose first page shares the most leading tokens with `query`: a neighbour of `query` in order."""
        best, most = None, 0
        i = bisect_left(node.heads, query)
        for head in node.heads[max(i - 1, 0) : i + 1]:
            tokens = common_tokens(head, query)
            if tokens > most:
                best, most = node.children[head], tokens
        return best, most

    def _lock_up(self, node: TreeNode, stop: TreeNode | None) -> None:
        """Add one lock to `node` and all above it, below `stop` (None: the root included)."""
        now = self._tick()
        step: TreeNode | None = node
        while step is not stop:
            assert step is not None, "a lock can move only down its own path"
            if not step.lock_ref:
                self.evictable_pages -= len(step.pages)
                self.protected_pages += len(step.pages)
                self.queue.drop(step)
            step.lock_ref += 1
            step.last_use = now
            step = step.parent

    def _split(self, node: TreeNode, num_pages: int) -> TreeNode:
        """Cut a node after `num_pages`: a new node takes the first part above it, with its locks and leases."""
        parent, cut = node.parent, num_pages * self._page_bytes
        assert parent is not None and 0 < num_pages < len(node.pages), f"cannot cut {len(node.pages)} at {num_pages}"
        upper = TreeNode(node.key[:cut], node.pages[:num_pages], parent, node.last_use, lock_ref=node.lock_ref)
        for lease in node.leases:
            self._join(upper, lease)
        parent.children[node.key[: self._page_bytes]] = upper
        node.key, node.pages, node.parent = node.key[cut:], node.pages[num_pages:], upper
        self._link(upper, node)
        return upper

    def _link(self, parent: TreeNode, child: TreeNode) -> None:
        head = child.key[: self._page_bytes]
        parent.children[head] = child
        if self.page_size > 1:
            parent.heads.insert(bisect_left(parent.heads, head), head)

    def _unlink(self, parent: TreeNode, child: TreeNode) -> None:
        head = child.key[: self._page_bytes]
        del parent.children[head]
        if self.page_size > 1:
            del parent.heads[bisect_left(parent.heads, head)]

    def _add(
        self, parent: TreeNode, key: bytes, pages: NDArray[np.int32], lease: Lease | None, *, is_tail: bool
    ) -> tuple[TreeNode, NDArray[np.int32]]:
        """A new leaf; the tail that is a prefix of it goes (at most one is, and it sorts just before). Returns its page."""
        node = TreeNode(key, pages, parent, self._tick(), is_tail)
        i = bisect_left(parent.heads, key[: self._page_bytes])
        shorter = parent.children[parent.heads[i - 1]] if i else None
        self._link(parent, node)
        self.queue.drop(parent)
        self.evictable_pages += len(pages)
        self._join(node, lease)
        replaced = NO_PAGES
        if shorter is not None and shorter.is_tail and key.startswith(shorter.key):
            for inherited in shorter.leases:
                self._join(node, inherited)
            replaced = shorter.pages
            self._remove(shorter)
        self.queue.push(node)
        return node, replaced

    def _remove(self, node: TreeNode) -> None:
        """Take a lock-free leaf out of the tree; its parent may become one."""
        parent = node.parent
        assert parent is not None and not node.lock_ref and not node.children, "only lock-free leaves are removed"
        self._unlink(parent, node)
        self.queue.drop(node)
        self.evictable_pages -= len(node.pages)
        for lease in node.leases:
            lease.nodes.discard(node)
        self._settle(parent)

    def _settle(self, node: TreeNode) -> None:
        """Queue a node that has become a lock-free leaf; forget such a root."""
        if node.children or node.lock_ref:
            return
        if node.parent is None:
            del self.roots[node.namespace]
        else:
            self.queue.push(node)

    def _join(self, node: TreeNode, lease: Lease | None) -> None:
        if lease is not None:
            node.leases.add(lease)
            lease.nodes.add(node)

    def _requeue(self, lease: Lease) -> None:
        for node in lease.nodes:
            if node.stamp:
                self.queue.push(node)
