"""The fake model on a device: a plan's KV is written and read when it is launched, its rows answer when they sample."""

from __future__ import annotations

from collections.abc import Sequence

from sglang_lite.runtime.execution.fake_runner import Chain
from sglang_lite.runtime.scheduler.plan import FUTURE_TOKEN, Plan, RowPlan, StepResult
from tests.support.fake_runner import FakeRunner


class FakeDevice(FakeRunner):
    """An `AsyncRunner` over the pool of canaries. Tokens in flight are kept by request, for the next plan only."""

    def __init__(self, num_pages: int, page_size: int, vocab_size: int, fail_rids: Sequence[str] = ()) -> None:
        super().__init__(num_pages, page_size, vocab_size, fail_rids)
        self.stash: dict[str, int] | None = {}
        """What the last plan's rows draw; None: it has not been told how to sample."""

    def launch(self, plan: Plan) -> FakeFlight:
        assert self.stash is not None, f"plan {plan.step} is launched before the one ahead of it samples"
        rows = tuple(self._with_token(row, self.stash) for row in plan.rows)
        self.stash = None
        filled = Plan(plan.step, plan.mode, rows, plan.copies)
        return FakeFlight(self, filled, self.forward(filled))

    def _with_token(self, row: RowPlan, stash: dict[str, int]) -> RowPlan:
        if not row.is_future:
            assert FUTURE_TOKEN not in row.input_ids, f"row {row.rid!r} has a placeholder and is no future row"
            return row
        assert row.input_ids == (FUTURE_TOKEN,), f"row {row.rid!r} has a token in flight beside {row.input_ids}"
        assert row.rid in stash, f"row {row.rid!r} reads a token that no row has drawn, there are {sorted(stash)}"
        return row._replace(input_ids=(stash[row.rid],))


class FakeFlight:
    """A launched plan and what its rows found in their slots."""

    def __init__(self, device: FakeDevice, plan: Plan, chains: list[Chain]) -> None:
        self._device = device
        self._plan = plan
        self._chains = chains
        self._result: StepResult | None = None

    def sample(self, plan: Plan) -> None:
        assert (plan.step, len(plan.rows)) == (self._plan.step, len(self._plan.rows))
        for row, launched in zip(plan.rows, self._plan.rows, strict=True):
            if row.sample is not None:
                assert row.input_ids == launched.input_ids, f"row {row.rid!r} ran with a token that was not drawn"
            assert (row.prefix_len, *row.pages) == (launched.prefix_len, *launched.pages)
        answers = tuple(self._device.answer(row, found) for row, found in zip(plan.rows, self._chains, strict=True))
        self._device.stash = {
            row.rid: answer.token_id or 0
            for row, answer in zip(plan.rows, answers, strict=True)
            if row.sample is not None and not row.drafts
        }
        self._result = StepResult(plan.step, answers)

    def result(self) -> StepResult:
        assert self._result is not None, "a plan that has not sampled has no result"
        return self._result
