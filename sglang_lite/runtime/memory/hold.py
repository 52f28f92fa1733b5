"""What one request holds of the KV pool, and the page copies it waits for; pure data, changed by `KvManager` only."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from sglang_lite.runtime.memory.tree_node import LockHandle


@dataclass(frozen=True, slots=True)
class PageCopy:
    """Copy the KV of the first `num_tokens` tokens of page `src` to page `dst`.

    All copies of a plan read before any of them writes, and before the step's forward; they write in order.
    """

    src: int
    dst: int
    num_tokens: int


@dataclass(eq=False, slots=True)
class KvHold:
    """One row and its pages.

    Positions of the row, all bounds in tokens::

        0            tree_len (or borrowed_len)     committed_len         allocated_len          max_len
        |   not ours   |          private             |      private        |       no page        |
        |  read only   |  KV computed, ours to give   |  capacity: KV of    |  `grow` puts pages   |
        |              |  to the tree (checkpoint)    |  the next steps     |  here                |
        ^ whole pages  ^ a page boundary              ^ any position        ^ a page boundary

    The part that is not ours is the tree's (`tree_len`, protected by `lock`) or, in a branch row, the parent hold's
    (`borrowed_len`, protected because the parent must outlive the branch); one of the two lengths is 0. A checkpoint
    moves `tree_len` up to the last whole page below `committed_len`.

    Attributes:
        row: row of the row table, this hold's alone.
        namespace: of the radix tree.
        cached_len: tokens whose KV was there at admission, the head of a copied page included.
        committed_len: tokens whose KV is known to be computed; starts at `cached_len`. In a branch row it says nothing
            about the borrowed part, which is as committed as the parent's.
        allocated_len: positions that have a page.
        lease: the program lease that the hold's prefixes join.
        lock: the lock on the tree's part; None for a branch row.
        parent: the hold a branch row borrows from. `branches`: those that borrow from this one.
        unrun_copy: the copy of the matched head as long as no commit has shown that it ran; handed out in plan number
            `unrun_plan`.
        evicted_pages: pages that the tree had to give up for this hold.

    """

    row: int
    namespace: str
    cached_len: int
    committed_len: int
    allocated_len: int
    tree_len: int
    borrowed_len: int
    lease: str | None
    lock: LockHandle | None
    parent: KvHold | None
    row_pages: NDArray[np.int32]
    page_size: int
    unrun_copy: PageCopy | None
    unrun_plan: int
    branches: list[KvHold] = field(default_factory=list["KvHold"])
    is_released: bool = False
    evicted_pages: int = 0
    planned: NDArray[np.int32] | None = None
    """What `plan_pages` gave last; dropped where the row is rewritten."""

    def plan_pages(self, count: int) -> NDArray[np.int32]:
        """The first `count` pages, int32, as they are now: an array that is never written, for plans in flight."""
        planned = self.planned
        if planned is None or len(planned) != count:
            planned = self.planned = self.row_pages[:count].copy()
        return planned

    @property
    def pages(self) -> NDArray[np.int32]:
        """int32 [allocated_len / page_size], a view of the row: copy it to keep it over the next change of the hold."""
        return self.row_pages[: self.allocated_len // self.page_size]

    @property
    def shared_len(self) -> int:
        """Tokens, whole pages, that are not the hold's own: the tree's or the parent's."""
        return self.tree_len or self.borrowed_len


@dataclass(frozen=True, slots=True)
class Admission:
    """A new hold, and the copies that the next plan must carry for it."""

    hold: KvHold
    copies: tuple[PageCopy, ...] = ()
