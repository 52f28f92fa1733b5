"""A draft model without a model: its guesses are what the fake model would say, each right with a probability."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

from sglang_lite.runtime.execution.draft_rows import row_after, rows_behind
from sglang_lite.runtime.scheduler.plan import Plan, RowPlan, RowResult, StepResult
from tests.support.fake_runner import FakeRunner, Oracle, chain


class FakeDrafter:
    """A `Runner` that adds guesses to another one's results. Those of constrained rows follow the constraint half the time.

    It has a pool of canaries of its own, through which its rows are checked as those of the fake model are.
    """

    def __init__(self, runner: FakeRunner, num_pages: int, vocab_size: int, share_right: float) -> None:
        self.num_offered = 0
        self.pool = FakeRunner(num_pages, runner.page_size, vocab_size)
        self.random = Random(0)
        self.share_right = share_right
        self._runner = runner
        self._oracle = Oracle(vocab_size)

    def poison(self, pages: Iterable[int]) -> None:
        self.pool.poison(pages)

    def run(self, plan: Plan) -> StepResult:
        result = self._runner.run(plan)
        behind = rows_behind(plan.rows, result.rows, self.pool.page_size)
        self.pool.forward(Plan(plan.step, plan.mode, tuple(behind.values()), plan.copies))
        rows = list(result.rows)
        for i, row in behind.items():
            rows[i] = self._with_guesses(plan.rows[i], row, rows[i])
        self._compute(plan, behind, rows)
        return StepResult(plan.step, tuple(rows))

    def _compute(self, plan: Plan, rows: dict[int, RowPlan], results: list[RowResult]) -> None:
        """All guesses but the last of each row, a token at a time."""
        left = [(row, results[i].guesses) for i, row in rows.items() if len(results[i].guesses) > 1]
        while left:
            left = [(row_after(row, guesses[0]), guesses[1:]) for row, guesses in left]
            self.pool.forward(Plan(plan.step, plan.mode, tuple(row for row, _ in left)))
            left = [(row, guesses) for row, guesses in left if len(guesses) > 1]

    def _with_guesses(self, row: RowPlan, behind: RowPlan, got: RowResult) -> RowResult:
        spec = row.sample
        assert spec is not None or not row.num_guesses, f"row {row.rid!r} draws nothing and is to be gone on with"
        if got.token_id is None or spec is None or not behind.num_guesses:
            return got
        num_rejected = len(row.drafts) - len(got.kept)
        known = [*spec.prompt_ids, *list(spec.output_ids)[: len(spec.output_ids) - num_rejected], got.token_id]
        assert len(known) == behind.seq_len
        grammar = (row.drafts[len(got.kept)] if num_rejected else spec).grammar
        cursor = grammar.fork() if grammar is not None and self.random.random() < 0.5 else None
        if cursor is not None:
            cursor.accept_token(got.token_id)
        guesses: list[int] = []
        hashes = chain(known)
        for _ in range(behind.num_guesses):
            if cursor is not None and (cursor.is_terminated or cursor.has_only_end):
                break
            token = self._oracle.next_token(hashes[-1], spec.params, spec.seed, len(known), cursor)
            assert token is not None, f"row {row.rid!r} goes on where nothing is allowed"
            if self.random.random() >= self.share_right:
                token = self.wrong(token)
            if cursor is not None and not cursor.accept_token(token):
                cursor = None
            guesses.append(token)
            hashes += chain([token], hashes[-1], len(known))
            known.append(token)
        self.num_offered += len(guesses)
        return got._replace(guesses=tuple(guesses))

    def wrong(self, token: int) -> int:
        """Another token."""
        return (token + 1 + self.random.randrange(self._oracle.vocab_size - 1)) % self._oracle.vocab_size
