"""Queues plans on a device: forward and sampling apart, tokens in flight taken from where the device keeps them.

Knows no queue of requests and no page owner. One thread uses a runner at a time. See `device_queue.py` for what keeps buffers
from being written too early, and `scheduler/loop.py` for pages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray

from sglang_lite.errors import ExecutionError
from sglang_lite.runtime.attention.base import AttentionBackend
from sglang_lite.runtime.attention.forward_batch import ForwardBatch
from sglang_lite.runtime.attention.kv_pool import KvPool
from sglang_lite.runtime.execution.answers import RowAnswer, Wish, find_wishes
from sglang_lite.runtime.execution.batch_builder import concat_input_ids, forward_batch_of_ids
from sglang_lite.runtime.execution.device_queue import DeviceQueue, ReadBack, Staging, queue_for
from sglang_lite.runtime.execution.device_sampler import SamplingOps, WishPiece
from sglang_lite.runtime.execution.flashinfer_sampling import FlashInferSampling
from sglang_lite.runtime.execution.future_tokens import POISON, FutureTokens, gather
from sglang_lite.runtime.execution.model_runner import HEAD_ROWS, CausalModel, RunnerCounters, find_bad_rows
from sglang_lite.runtime.execution.token_masks import TokenMasks
from sglang_lite.runtime.execution.torch_sampling import TorchSampling
from sglang_lite.runtime.scheduler.plan import FUTURE_TOKEN, Plan, RowPlan, RowResult, StepResult

_BATCH_TENSORS = ("input_ids", "positions", "q_starts", "seq_lens", "prefix_lens", "page_table", "out_slots")


class DeviceRunner:
    """An `AsyncRunner`, and a `Runner` that launches, samples and waits.

    `vocab_size`, `eos_ids`, `head_rows`: as for `ModelRunner`. `queue`: None: that of `device`. `ops`: what draws; None: the
    kernels on a GPU, torch on the CPU.
    """

    def __init__(
        self,
        model: CausalModel,
        attention_backend: AttentionBackend,
        kv_pool: KvPool,
        *,
        vocab_size: int,
        eos_ids: Iterable[int] = (),
        device: str = "cpu",
        head_rows: int = HEAD_ROWS,
        queue: DeviceQueue | None = None,
        ops: SamplingOps | None = None,
    ) -> None:
        self.queue = queue or queue_for(device)
        self.model = model
        self.attention = attention_backend
        self.kv_pool = kv_pool
        self.vocab_size = vocab_size
        self.masks = TokenMasks(vocab_size, eos_ids)
        self.head_rows = head_rows
        self.ops = ops or sampling_ops(self.queue.device)
        self.future = FutureTokens()
        self.batches = Staging(self.queue)
        self.draws = Staging(self.queue)
        self.results = ReadBack(self.queue)
        self.counters = RunnerCounters()

    def launch(self, plan: Plan) -> DeviceFlight:
        """See `AsyncRunner`."""
        return DeviceFlight(self, plan)

    def run(self, plan: Plan) -> StepResult:
        """Compute a plan whose tokens are all known, and wait for it. See `ModelRunner.run`."""
        if not plan.rows:
            copies = [(copy.src, copy.dst, copy.num_tokens) for copy in plan.copies]
            self.queue.submit(lambda: self.kv_pool.copy_slots(copies))
            return StepResult(plan.step, ())
        flight = self.launch(plan)
        flight.sample(plan)
        return flight.result()


class DeviceFlight:
    """A plan whose forward is queued; see `Flight`. Made by `DeviceRunner.launch`."""

    def __init__(self, runner: DeviceRunner, plan: Plan) -> None:
        self._runner = runner
        self._plan = plan
        input_ids, self._extend_lens = concat_input_ids(plan.rows)
        self._errors = self._set_aside(plan.rows, input_ids)
        places = runner.future.places_of(plan.rows)
        before = runner.future.last
        self._tokens = runner.future.opened()
        self._hidden: list[torch.Tensor] = []
        self._taken: list[torch.Tensor] = []
        self._pieces: list[WishPiece] = []
        self._numbers: Callable[[], NDArray[np.int64]] | None = None
        self._queue_forward(input_ids, places, before)
        runner.counters.steps += 1
        runner.counters.tokens += len(input_ids)

    def sample(self, plan: Plan) -> None:
        """See `Flight`."""
        assert self._numbers is None, f"plan {plan.step} samples twice"
        assert plan.step == self._plan.step and len(plan.rows) == len(self._plan.rows), (
            f"plan {plan.step} of {len(plan.rows)} rows samples, launched was plan {self._plan.step} of {len(self._plan.rows)}"
        )
        launched, self._plan = self._plan, plan
        runner = self._runner
        self._num_taken = sum(row.is_future for row in launched.rows)
        self._expected = [
            (row.rid, row.input_ids[0] if row.sample is not None else None)
            for row, before in zip(plan.rows, launched.rows, strict=True)
            if before.is_future
        ]
        wishes = [wish for wish in find_wishes(plan.rows, self._extend_lens) if wish.row not in self._errors]
        self._pieces = [
            WishPiece(part, plan.rows, runner.masks, runner.vocab_size) for part in _cut(wishes, runner.head_rows)
        ]
        self._queue_draws()
        runner.future.sampled(plan)
        num_back = self._num_taken + sum(piece.num_items for piece in self._pieces)
        self._numbers = runner.results.fetch(num_back, self._all_numbers)
        runner.counters.head_rows += sum(len(piece.tokens) for piece in self._pieces)

    def result(self) -> StepResult:
        """See `Flight`."""
        assert self._numbers is not None, f"plan {self._plan.step} has no result before it samples"
        numbers = self._numbers()
        self._check_taken(numbers[: self._num_taken])
        results: dict[int, RowResult] = {}
        answers: dict[int, RowAnswer] = {}
        start = self._num_taken
        for piece in self._pieces:
            part = numbers[start : start + piece.num_items]
            start += piece.num_items
            tokens = piece.plain_tokens(part)
            if tokens is None:
                self._settle(piece, part, answers)
                continue
            self._runner.counters.sampled += len(tokens)
            results |= {wish.row: RowResult(token) for wish, token in zip(piece.wishes, tokens, strict=True)}
        rows = (results.get(i) or self._answer(answers, i).to_result() for i in range(len(self._plan.rows)))
        return StepResult(self._plan.step, tuple(rows))

    def _settle(self, piece: WishPiece, numbers: NDArray[np.int64], answers: dict[int, RowAnswer]) -> None:
        for wish, outcome in zip(piece.wishes, piece.outcomes(numbers), strict=True):
            answer = self._answer(answers, wish.row)
            is_drawn = isinstance(outcome, tuple) and wish.spec is not None and wish.spec.given is None
            self._runner.counters.sampled += is_drawn and answer.wants(wish)
            answer.settle(wish, outcome)

    def _answer(self, answers: dict[int, RowAnswer], row: int) -> RowAnswer:
        """What row `row` has got so far."""
        if (answer := answers.get(row)) is None:
            answer = answers[row] = RowAnswer.of(self._plan.rows[row])
            answer.error = self._errors.get(row)
        return answer

    def _set_aside(self, rows: Sequence[RowPlan], input_ids: NDArray[np.int64]) -> dict[int, ExecutionError]:
        """Errors of rows with ids that the embedding does not have; those and tokens in flight are 0 in `input_ids`."""
        starts = np.cumsum(self._extend_lens) - self._extend_lens
        self._future_at = starts[np.array([row.is_future for row in rows], dtype=bool)]
        assert (input_ids[self._future_at] == FUTURE_TOKEN).all(), f"plan {self._plan.step} has future rows with tokens"
        input_ids[self._future_at] = 0
        return find_bad_rows(rows, input_ids, self._extend_lens, self._runner.vocab_size)

    def _queue_forward(
        self, input_ids: NDArray[np.int64], places: NDArray[np.int64], before: list[torch.Tensor]
    ) -> None:
        runner, rows = self._runner, self._plan.rows
        host = forward_batch_of_ids(rows, input_ids, self._extend_lens, runner.kv_pool.page_size)
        arrays: dict[str, NDArray[np.generic]] = {name: getattr(host, name).numpy() for name in _BATCH_TENSORS}
        staged = runner.batches.stage(arrays | {"future_at": self._future_at, "future_places": places})
        copies = [(copy.src, copy.dst, copy.num_tokens) for copy in self._plan.copies]

        def forward() -> None:
            with torch.inference_mode():
                runner.kv_pool.copy_slots(copies)
                tensors = staged.upload()
                if len(places):
                    at, where = tensors["future_at"], tensors["future_places"]
                    self._taken.append(gather(tensors["input_ids"], at, before[0], where, runner.vocab_size))
                self._hidden.append(runner.model.forward(_on_device(host, tensors), runner.attention))

        runner.queue.submit(forward)
        runner.batches.sent()

    def _queue_draws(self) -> None:
        runner = self._runner
        arrays: dict[str, NDArray[np.generic]] = {"sure": _sure_tokens(self._plan.rows)}
        for i, piece in enumerate(self._pieces):
            last = sorted(piece.last_draws.items())
            arrays |= {f"{i}/{name}": array for name, array in piece.arrays.items()}
            arrays[f"{i}/last_rows"] = np.array([row for row, _ in last], dtype=np.int64)
            arrays[f"{i}/last_draws"] = np.array([draw for _, draw in last], dtype=np.int64)
        staged = runner.draws.stage(arrays)
        self._found: list[torch.Tensor] = []

        def draw() -> None:
            with torch.inference_mode():
                tensors = staged.upload()
                tokens = tensors["sure"]
                (hidden,) = self._hidden
                for i, piece in enumerate(self._pieces):
                    own = {name.split("/", 1)[1]: value for name, value in tensors.items() if name.startswith(f"{i}/")}
                    logits = self._logits(hidden.index_select(0, own["tokens"]))
                    drawn, found = piece.compute(logits, own, runner.ops)
                    tokens.index_copy_(0, own["last_rows"], drawn.index_select(0, own["last_draws"]))
                    self._found += found
                self._tokens.append(tokens)
                self._hidden.clear()

        runner.queue.submit(draw)
        runner.draws.sent()

    def _logits(self, rows: torch.Tensor) -> torch.Tensor:
        logits = self._runner.model.logits(rows).float()
        assert logits.shape == (len(rows), self._runner.vocab_size), (
            f"the head gave logits of shape {tuple(logits.shape)}, expected {(len(rows), self._runner.vocab_size)}"
        )
        return logits

    def _all_numbers(self) -> torch.Tensor:
        return torch.cat([*self._taken, *self._found])

    def _check_taken(self, taken: NDArray[np.int64]) -> None:
        """Each row ran with the token that was committed before it."""
        for (rid, expected), token in zip(self._expected, taken.tolist(), strict=True):
            assert token != POISON, f"row {rid!r} took a token in flight from a place that nothing was put into"
            assert expected in (None, token), f"row {rid!r} ran with token {token}, committed before it was {expected}"


def sampling_ops(device: torch.device, kind: str = "auto") -> SamplingOps:
    """What draws on a device.

    Args:
        device: where logits lie.
        kind: `auto`: the kernels on a GPU, torch on the CPU; `flashinfer`: these, but distributions are cut by that package;
            `pytorch`: torch.

    Raises:
        UnsupportedError: the package is not installed or too old.

    """
    if kind == "flashinfer":
        return FlashInferSampling(sampling_ops(device))
    if kind == "pytorch" or device.type == "cpu":
        return TorchSampling()
    from sglang_lite.runtime.execution.triton_sampling import TritonSampling  # only where a GPU is: it imports Triton

    return TritonSampling()


def _on_device(host: ForwardBatch, tensors: dict[str, torch.Tensor]) -> ForwardBatch:
    return replace(host, **{name: tensors[name] for name in _BATCH_TENSORS})


def _sure_tokens(rows: Sequence[RowPlan]) -> NDArray[np.int64]:
    """By row, the last token where it is given, else what no draw has been put into."""
    given = [row.sample.given if row.sample is not None else None for row in rows]
    return np.array([POISON if token is None else token for token in given], dtype=np.int64)


def _cut(wishes: Sequence[Wish], most_tokens: int) -> list[Sequence[Wish]]:
    """The wishes, in order, in pieces of at most so many tokens."""
    pieces: list[Sequence[Wish]] = []
    start, num_tokens = 0, 0
    for i, wish in enumerate(wishes):
        is_new = i == start or wish.token != wishes[i - 1].token
        if is_new and num_tokens == most_tokens:
            pieces.append(wishes[start:i])
            start, num_tokens = i, 0
        num_tokens += is_new
    return [*pieces, wishes[start:]] if wishes else []
