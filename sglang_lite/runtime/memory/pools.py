"""Free rows and free pages as stacks, and who owns each page; knows nothing of requests, tokens or the tree."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray


class Owner(IntEnum):
    """Who may write a page: nobody (`SINK`, page 0, takes the writes of padded rows), or the one named."""

    SINK = 0
    FREE = 1
    PRIVATE = 2
    """Of exactly one hold."""
    TREE = 3
    """Of exactly one node of the radix tree; never written again."""


@dataclass(frozen=True, slots=True)
class PoolStatistics:
    """Rows, or pages without the sink."""

    total: int
    free: int


class RowPool:
    """Rows of the row table, taken and given back one at a time in O(1).

    Attributes:
        table: int32 [num_rows, max_pages], the pages of each row in order; entries beyond a row's pages have no meaning.

    """

    def __init__(self, num_rows: int, max_pages: int) -> None:
        assert num_rows >= 1 and max_pages >= 1, f"a row pool needs rows and columns, got {num_rows} x {max_pages}"
        self.table: NDArray[np.int32] = np.zeros((num_rows, max_pages), dtype=np.int32)
        self._stack = np.arange(num_rows - 1, -1, -1, dtype=np.int32)
        self._is_free = np.ones(num_rows, dtype=np.bool_)
        self._num_free = num_rows

    @property
    def num_rows(self) -> int:
        """Rows, free or not."""
        return len(self._stack)

    @property
    def num_free(self) -> int:
        """Rows that can be taken."""
        return self._num_free

    def take(self) -> int:
        """A free row; there must be one."""
        assert self._num_free > 0, f"all {self.num_rows} rows are taken: ask num_free first"
        self._num_free -= 1
        row = int(self._stack[self._num_free])
        self._is_free[row] = False
        return row

    def give(self, row: int) -> None:
        """Take a row back."""
        assert not self._is_free[row], f"row {row} is given back twice"
        self._is_free[row] = True
        self._stack[self._num_free] = row
        self._num_free += 1

    def statistics(self) -> PoolStatistics:
        """Counts now; O(1)."""
        return PoolStatistics(len(self._stack), self._num_free)

    def free_rows(self) -> NDArray[np.int32]:
        """The free rows, for the ledger check."""
        return self._stack[: self._num_free].copy()


class PagePool:
    """Pages 1 .. num_pages - 1, taken and given back in any number, O(pages moved); page 0 is never handed out.

    Every move names the owner it expects, so a double free or a free of somebody else's page fails at once.

    Attributes:
        owner: int8 [num_pages], an `Owner` for each page; read-only outside.

    """

    def __init__(self, num_pages: int) -> None:
        assert num_pages >= 2, f"a page pool needs the sink page and at least one more, got {num_pages}"
        self._stack = np.arange(num_pages - 1, 0, -1, dtype=np.int32)
        self._num_free = num_pages - 1
        self.owner: NDArray[np.int8] = np.full(num_pages, Owner.FREE, dtype=np.int8)
        self.owner[0] = Owner.SINK

    @property
    def num_pages(self) -> int:
        """Pages, the sink included."""
        return len(self.owner)

    @property
    def num_free(self) -> int:
        """Pages that can be taken."""
        return self._num_free

    def take(self, count: int) -> NDArray[np.int32]:
        """`count` free pages, int32, private from now on."""
        assert count <= self._num_free, f"{count} pages asked for, {self._num_free} are free: evict first"
        self._num_free -= count
        pages = self._stack[self._num_free : self._num_free + count].copy()
        self.owner[pages] = Owner.PRIVATE
        return pages

    def to_tree(self, pages: NDArray[np.int32]) -> None:
        """Private pages become the tree's."""
        self._expect(pages, Owner.PRIVATE, "give to the tree")
        self.owner[pages] = Owner.TREE

    def give(self, pages: NDArray[np.int32], owner: Owner) -> None:
        """Take pages back from `owner`."""
        self._expect(pages, owner, "free")
        self.owner[pages] = Owner.FREE
        self._stack[self._num_free : self._num_free + len(pages)] = pages
        self._num_free += len(pages)

    def statistics(self) -> PoolStatistics:
        """Counts now; O(1)."""
        return PoolStatistics(len(self.owner) - 1, self._num_free)

    def free_pages(self) -> NDArray[np.int32]:
        """The free pages, for the ledger check."""
        return self._stack[: self._num_free].copy()

    def _expect(self, pages: NDArray[np.int32], owner: Owner, verb: str) -> None:
        is_owned = self.owner[pages] == owner
        assert is_owned.all(), (
            f"cannot {verb} pages {pages[~is_owned].tolist()}: their owner is"
            f" {[Owner(o).name for o in self.owner[pages[~is_owned]]]}, not {owner.name}"
        )
