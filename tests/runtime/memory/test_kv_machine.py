"""Random lives of rows against a model: known prefixes as a set of sequences, KV contents as a hash canary."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from sglang_lite.runtime.memory.hold import Admission, KvHold, PageCopy
from sglang_lite.runtime.memory.kv import KvManager
from tests.runtime.memory.canary import Canary, chain

NAMESPACES = ("", "lora")
LEASES = (None, "a", "b")
seeds = st.integers(0, 7)
picks = st.integers(0, 63)


@dataclass(eq=False)
class Row:
    """A live row: `computed` tokens have their KV after the launched plans, `launched` once its copies have run."""

    hold: KvHold
    ids: list[int]
    computed: int
    launched: bool = False


def tokens(seed: int, count: int) -> list[int]:
    return Random(seed).choices((1, 2, 3), k=count)


class KvMachine(RuleBasedStateMachine):
    """Plans are launched by a rule of their own, so that several verbs meet inside one plan, and commits come late."""

    page_size = 4

    @initialize(num_rows=st.integers(2, 5), num_pages=st.sampled_from([4, 7, 12, 80]))
    def start(self, num_rows: int, num_pages: int) -> None:
        self.max_len = 6 * self.page_size + 5
        self.kv = KvManager(num_rows=num_rows, num_pages=num_pages, page_size=self.page_size, max_len=self.max_len)
        self.canary = Canary(num_pages, self.page_size)
        self.rows: list[Row] = []
        self.copies: list[PageCopy] = []
        self.known: dict[str, set[tuple[int, ...]]] = {name: set() for name in NAMESPACES}
        self.was_evicted = False

    def longest_known(self, namespace: str, ids: list[int]) -> int:
        lengths = [0]
        for known in self.known[namespace]:
            common = 0
            while common < min(len(known), len(ids)) and known[common] == ids[common]:
                common += 1
            lengths.append(common)
        return max(lengths)

    def sequence(self, namespace: str, pick: int, cut: int, seed: int, length: int) -> list[int]:
        """A known sequence or a live one cut somewhere, then something else."""
        bases = [list(known) for known in sorted(self.known[namespace])] + [row.ids for row in self.rows] + [[]]
        base = bases[pick % len(bases)]
        ids = base[: cut * len(base) // 8] + tokens(seed, length)
        return ids[: self.max_len]

    def pick_row(self, pick: int) -> Row:
        return self.rows[pick % len(self.rows)]

    def expect_untouched(self, before: object) -> None:
        assert (self.kv.snapshot(), self.kv.statistics()) == before, "a refused request changed the ledger"

    def add(self, admission: Admission, ids: list[int]) -> Row:
        row = Row(admission.hold, ids, admission.hold.cached_len)
        self.copies += admission.copies
        self.rows.append(row)
        return row

    @rule(
        namespace=st.sampled_from(NAMESPACES),
        pick=picks,
        cut=st.integers(0, 8),
        seed=seeds,
        length=st.integers(1, 20),
        lease=st.sampled_from(LEASES),
        next_use=st.integers(0, 3),
    )
    def admit(
        self, namespace: str, pick: int, cut: int, seed: int, length: int, lease: str | None, next_use: int
    ) -> None:
        ids = self.sequence(namespace, pick, cut, seed, length * self.page_size // 4 + 1)
        before = self.kv.snapshot(), self.kv.statistics()
        available, free_rows = self.kv.available_tokens // self.page_size, self.kv.free_rows
        limit = len(ids) - 1
        found = self.kv.probe(namespace, ids, limit)
        known = self.longest_known(namespace, ids[:limit])
        assert found <= known if self.was_evicted else found == known
        admission = self.kv.admit(namespace, ids, match_limit=limit, new_len=len(ids), lease=lease, next_use=next_use)
        if admission is None:
            assert not free_rows or -(-len(ids) // self.page_size) > available, "refused though it fits"
            self.expect_untouched(before)
            return
        hold = admission.hold
        assert hold.cached_len == hold.committed_len == found
        assert len(ids) <= hold.allocated_len < len(ids) + self.page_size
        assert hold.tree_len == found - found % self.page_size
        assert sum(copy.num_tokens for copy in admission.copies) == found - hold.tree_len
        self.note_evictions(before[1].evicted_pages)
        self.add(admission, ids)

    def note_evictions(self, evicted_before: int) -> None:
        statistics = self.kv.statistics()
        if statistics.evicted_pages > evicted_before:
            assert statistics.free_pages == 0, "more was evicted than was needed"
            self.was_evicted = True

    @precondition(lambda self: self.rows)
    @rule(pick=picks, seed=seeds, extra=st.integers(1, 9))
    def grow(self, pick: int, seed: int, extra: int) -> None:
        row = self.pick_row(pick)
        new_len = min(len(row.ids) + extra, self.max_len)
        before = self.kv.snapshot(), self.kv.statistics()
        needed = -(-new_len // self.page_size) - row.hold.allocated_len // self.page_size
        fits = needed * self.page_size <= self.kv.available_tokens
        assert self.kv.grow(row.hold, new_len) == fits
        if not fits:
            self.expect_untouched(before)
            return
        assert row.hold.allocated_len >= new_len
        self.note_evictions(before[1].evicted_pages)
        row.ids = row.ids + tokens(seed, new_len - len(row.ids))

    @precondition(lambda self: self.rows)
    @rule(pick=picks, cut=st.integers(0, 8), seed=seeds, extra=st.integers(1, 9))
    def branch(self, pick: int, cut: int, seed: int, extra: int) -> None:
        parent = self.pick_row(pick)
        at_len = cut * len(parent.ids) // 8
        ids = (parent.ids[:at_len] + tokens(seed, extra))[: self.max_len]
        before = self.kv.snapshot(), self.kv.statistics()
        needed = -(-len(ids) // self.page_size) - at_len // self.page_size
        admission = self.kv.branch(parent.hold, at_len, len(ids))
        if admission is None:
            assert not before[1].free_rows or needed * self.page_size > self.kv.available_tokens
            self.expect_untouched(before)
            return
        hold, floor = admission.hold, at_len - at_len % self.page_size
        assert hold.borrowed_len == floor
        owner = parent.hold
        while owner.parent is not None and floor < owner.borrowed_len:
            owner = owner.parent
        assert hold.cached_len == max(floor, min(at_len, owner.committed_len))
        self.note_evictions(before[1].evicted_pages)
        self.add(admission, ids)

    @rule(is_late=st.booleans(), share=st.integers(1, 4))
    def launch(self, is_late: bool, share: int) -> None:
        """Copies, then every row computes a share of what it lacks, parents first; their commits may come later."""
        self.canary.copy(self.copies)
        self.copies = []
        by_row = {row.hold.row: row for row in self.rows}
        for row in self.rows:
            parent = by_row[row.hold.parent.row] if row.hold.parent is not None else None
            if parent is not None and not (parent.launched and parent.computed >= row.hold.borrowed_len):
                continue  # a branch runs no earlier than its parent gets there
            stop = row.computed + -(-(len(row.ids) - row.computed) * share // 4)
            self.canary.compute(row.hold, row.ids, row.computed, stop)
            row.computed, row.launched = stop, True
        self.kv.begin_plan()
        if not is_late:
            self.commit()

    @rule()
    def commit(self) -> None:
        for row in self.rows:
            if row.launched:
                self.kv.commit(row.hold, row.computed)

    def note_known(self, row: Row, is_release: bool) -> None:
        """What a checkpoint or a release with ids must make known, asked before it happens."""
        hold = row.hold
        length = hold.committed_len
        if not row.launched and (copied := length % self.page_size):
            length -= copied
        if not is_release:
            length -= length % self.page_size
        is_given = hold.parent is None or self.kv.probe(hold.namespace, row.ids, hold.borrowed_len) == hold.borrowed_len
        if is_given:
            self.known[hold.namespace].add(tuple(row.ids[:length]))

    @precondition(lambda self: self.rows)
    @rule(pick=picks)
    def checkpoint(self, pick: int) -> None:
        row = self.pick_row(pick)
        self.note_known(row, is_release=False)
        self.kv.checkpoint(row.hold, row.ids)

    @precondition(lambda self: any(not row.hold.branches for row in self.rows))
    @rule(pick=picks, with_ids=st.booleans())
    def release(self, pick: int, with_ids: bool) -> None:
        """The copies of a row that dies before its plan is launched stay in the plan and must not harm."""
        free = [row for row in self.rows if not row.hold.branches]
        row = free[pick % len(free)]
        self.rows.remove(row)
        if with_ids:
            self.note_known(row, is_release=True)
        self.kv.release(row.hold, row.ids if with_ids else None)

    @rule(length=st.integers(1, 29), seed=seeds)
    def evict_pressure(self, length: int, seed: int) -> None:
        ids = [9, *tokens(seed, min(length * self.page_size // 4, self.max_len - 1))]
        before = self.kv.statistics().evicted_pages
        admission = self.kv.admit("pressure", ids, match_limit=0, new_len=len(ids))
        if admission is not None:
            self.note_evictions(before)
            self.kv.release(admission.hold, None)

    @rule(lease=st.sampled_from(["a", "b"]), next_use=st.none() | st.integers(0, 9))
    def change_lease(self, lease: str, next_use: int | None) -> None:
        if next_use is None:
            self.kv.end_lease(lease)
        else:
            self.kv.set_next_use(lease, next_use)

    @rule()
    def flush(self) -> None:
        assert self.kv.flush() == (not self.rows)
        if not self.rows:
            assert self.kv.available_tokens == self.kv.total_tokens
            assert self.kv.statistics().free_pages * self.page_size == self.kv.total_tokens
            self.known = {name: set() for name in NAMESPACES}
            self.was_evicted = False

    @invariant()
    def the_ledger_balances(self) -> None:
        if hasattr(self, "kv"):
            self.kv.check_ledger(row.hold for row in self.rows)

    @invariant()
    def every_row_reads_its_own_tokens(self) -> None:
        """Free pages are poisoned, but for those that a copy of the plan in the making will read."""
        if hasattr(self, "kv"):
            self.canary.poison(set(self.kv.snapshot().free) - {copy.src for copy in self.copies})
            for row in self.rows:
                if row.launched:
                    assert self.canary.row(row.hold, row.computed) == chain(row.ids[: row.computed])

    def teardown(self) -> None:
        """Whatever happened, releasing all rows leaves a pool that one row can have to itself."""
        if not hasattr(self, "kv"):
            return
        while self.rows:
            self.release(0, with_ids=False)
        self.kv.check_ledger([])
        statistics = self.kv.statistics()
        assert statistics.private_pages == statistics.protected_pages == 0
        assert self.kv.available_tokens == self.kv.total_tokens
        assert self.kv.flush()


@pytest.mark.parametrize("page_size", [1, 4, 16])
def test_random_lives_of_rows_keep_the_ledger_and_the_kv(page_size: int) -> None:
    machine = type(f"KvMachine{page_size}", (KvMachine,), {"page_size": page_size})
    run_state_machine_as_test(machine, settings=settings(max_examples=60, stateful_step_count=40, deadline=None))
