"""A model whose decode steps are captured once and replayed: one launch a step in place of hundreds.

Knows no scheduler and no CUDA: what captures and replays is passed in.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import numpy as np
import torch

from sglang_lite.errors import RequestError
from sglang_lite.runtime.attention.base import PLAIN, AttentionBackend, GraphAttention, LayerAttention
from sglang_lite.runtime.attention.forward_batch import ForwardBatch
from sglang_lite.runtime.execution.graph_buffers import SINK_PAGE, GraphBuffers
from sglang_lite.runtime.execution.graph_sizes import bucket_of
from sglang_lite.runtime.execution.model_runner import CausalModel

logger = logging.getLogger(__name__)

TOO_MANY_ROWS = "more rows than the largest graph"
EXTEND = "a row extends by more than one token"
TOO_WIDE = "a sequence is longer than the graphs' page table"
SHARED = "reading shared prefixes once saves more than a graph"
NOT_CAPTURED = "no graph is captured"


class Graph(Protocol):
    """The launches of one function, recorded."""

    def replay(self) -> None:
        """Queue them again, on the same memory, in the order of the current stream."""
        ...

    def release(self) -> None:
        """Give the memory back; the graph is not replayed again."""
        ...


class GraphFactory(Protocol):
    """Where graphs come from; all of one factory share their working memory, so only one runs at a time."""

    def capture(self, launch: Callable[[], None]) -> Graph:
        """Run `launch` a few times to warm up, then record it.

        `launch` takes no input and gives no output: it reads and writes memory that outlives the graph. What it
        allocates belongs to the graph.

        Raises:
            torch.OutOfMemoryError: the device's memory does not hold it.

        """
        ...

    def free_bytes(self) -> int:
        """Device memory that nobody has taken."""
        ...


@runtime_checkable
class ExtendGraphs(Protocol):
    """A `GraphAttention` whose `plan_capture` also takes rows of several new tokens, all of the same number."""

    @property
    def captures_extends(self) -> bool:
        """Whether it does as it is set up."""
        ...


@runtime_checkable
class SharingAttention(Protocol):
    """A `GraphAttention` that reads what rows share once, but not inside of a graph."""

    def saves_by_sharing(self, fb: ForwardBatch) -> bool:
        """Whether the step is faster without a graph; called before a step that a graph holds."""
        ...


@dataclass(slots=True)
class GraphCounters:
    """What ran since the start.

    `replays`: steps by (new tokens of a row, rows of the graph). `padded_rows`: rows computed beside the live ones.
    `eager`: steps without a graph, by reason.
    """

    replays: dict[tuple[int, int], int] = field(default_factory=dict[tuple[int, int], int])
    padded_rows: int = 0
    eager: dict[str, int] = field(default_factory=dict[str, int])

    def to_dict(self) -> dict[str, object]:
        """Plain data for the information page: decode graphs by their rows, extend graphs by their tokens."""
        return {
            "replays": {str(rows): n for (tokens, rows), n in sorted(self.replays.items()) if tokens == 1},
            "extend_replays": {str(tokens): n for (tokens, _), n in sorted(self.replays.items()) if tokens != 1},
            "padded_rows": self.padded_rows,
            "eager": dict(self.eager),
        }


@dataclass(frozen=True, slots=True)
class GraphMemory:
    """Device memory around the capture of one graph, in bytes. `row_tokens`: new tokens of each of its `rows`."""

    row_tokens: int
    rows: int
    free_before: int
    free_after: int

    @property
    def taken(self) -> int:
        """What the graph took."""
        return max(self.free_before - self.free_after, 0)


@dataclass(frozen=True, slots=True)
class GraphSettings:
    """What is captured.

    `sizes`: rows of the decode graphs, ascending. `context_length`: tokens of the longest sequence. `page_size`: of the
    pool. `extend_tokens`: for each number a graph of one row with just so many new tokens, such as the chunk size of a
    long prompt; none by default. `reserve_bytes`: device memory that captures leave free.
    """

    sizes: tuple[int, ...]
    context_length: int
    page_size: int
    device: str = "cpu"
    extend_tokens: tuple[int, ...] = ()
    reserve_bytes: int = 0


class _Planned:
    """The attention inside a capture: what its launches need is planned before, outside."""

    def __init__(self, attention: AttentionBackend) -> None:
        self._attention = attention

    def plan(self, fb: ForwardBatch) -> None:
        """Nothing: `plan_capture` has been called."""

    def forward(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, layer: int, options: LayerAttention = PLAIN
    ) -> torch.Tensor:
        """See `AttentionBackend.forward`."""
        return self._attention.forward(q, k, v, layer, options)


class GraphedModel:
    """A `CausalModel` over `model`: batches that a graph holds are replayed, others computed as they are.

    A batch whose rows all have one new token is filled up to the next bucket with rows on the sink page (see
    `GraphBuffers`). The hidden states that `forward` gives lie in memory that the next `forward` overwrites.

    Attributes:
        counters: what ran.
        memory: what each graph took, in the order of their capture.

    """

    def __init__(
        self, model: CausalModel, attention: GraphAttention, graphs: GraphFactory, settings: GraphSettings
    ) -> None:
        self._model = model
        self._attention = attention
        self._sharing = attention if isinstance(attention, SharingAttention) else None
        self._graphs = graphs
        self._settings = settings
        self._width = -(-settings.context_length // settings.page_size)
        self._buffers: dict[int, GraphBuffers] = {}
        self._captured: dict[tuple[int, int], Graph] = {}
        self._sizes: tuple[int, ...] = ()
        self._hidden = torch.empty(0)
        self.counters = GraphCounters()
        self.memory: list[GraphMemory] = []

    @property
    def sizes(self) -> tuple[int, ...]:
        """Rows of the decode graphs that are there."""
        return self._sizes

    @property
    def num_bytes(self) -> int:
        """Device memory of the graphs and of their buffers."""
        own = self._hidden.numel() * self._hidden.element_size()
        buffers = sum(buffers.num_bytes for buffers in self._buffers.values())
        return own + buffers + sum(entry.taken for entry in self.memory)

    @torch.inference_mode()
    def capture(self, progress: Callable[[str], None] = lambda line: None) -> None:
        """Record all graphs, largest first, so that the smaller ones find their working memory in what the larger took.

        One sequence of the whole context is computed before, so that what grows with the longest sequence (tables of
        rotary positions) has its final place, and the attention has met every kind of layer.

        Raises:
            RequestError: not even the smallest graph leaves `reserve_bytes` free. Where only the larger ones do not fit,
                they are left out with a warning.

        """
        settings = self._settings
        extends = settings.extend_tokens if self._captures_extends() else ()
        sample = self._longest_row()
        self._make_buffers(sample, extends)
        shapes = [(tokens, 1) for tokens in sorted(extends, reverse=True)]
        shapes += [(1, rows) for rows in sorted(settings.sizes, reverse=True)]
        for number, (row_tokens, rows) in enumerate(shapes, start=1):
            what = f"{rows} row{'s' if rows > 1 else ''}" if row_tokens == 1 else f"{row_tokens} tokens"
            progress(f"capturing CUDA graph {number} of {len(shapes)}: {what} ...")
            self._capture(row_tokens, rows)
        self._sizes = tuple(sorted(rows for tokens, rows in self._captured if tokens == 1))
        if settings.sizes and not self._sizes:
            raise RequestError(
                f"capturing CUDA graphs: {self._graphs.free_bytes()} bytes of device memory are free, and the graph of"
                f" {settings.sizes[0]} row(s) does not leave {settings.reserve_bytes} of them; lower mem_fraction_static, "
                "or set disable_cuda_graph"
            )
        taken = sum(entry.taken for entry in self.memory)
        progress(f"captured {len(self._captured)} CUDA graphs in {taken / 2**20:.0f} MiB")

    @torch.inference_mode()
    def forward(self, fb: ForwardBatch, attention: AttentionBackend) -> torch.Tensor:
        """See `CausalModel.forward`; `attention` is the one that the graphs were captured with."""
        assert attention is self._attention, f"captured with {self._attention!r}, called with {attention!r}"
        row_tokens, bucket, reason = self._choose(fb)
        if bucket is None:
            self._note_eager(reason, fb)
            return self._model.forward(fb, attention)
        static = self._buffers[row_tokens].fill(fb, bucket)
        self._attention.plan_replay(static)
        self._captured[row_tokens, bucket].replay()
        self.counters.replays[row_tokens, bucket] = self.counters.replays.get((row_tokens, bucket), 0) + 1
        self.counters.padded_rows += bucket - fb.num_rows
        return self._hidden[: fb.num_tokens]

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """See `CausalModel.logits`."""
        return self._model.logits(hidden)

    def _captures_extends(self) -> bool:
        attention = self._attention
        able = isinstance(attention, ExtendGraphs) and attention.captures_extends
        if self._settings.extend_tokens and not able:
            logger.warning("%s captures no extends: prompts run without graphs", type(attention).__name__)
        return able

    def _longest_row(self) -> torch.Tensor:
        """Hidden state of one token at the end of the longest sequence, computed without a graph."""
        settings = self._settings
        table = np.full((1, self._width), SINK_PAGE, dtype=np.int32)
        last = np.array([settings.context_length - 1])
        one = np.ones(1, dtype=np.int64)
        fb = ForwardBatch.build(one * 0, one, last, table, settings.page_size, settings.device)
        return self._model.forward(fb, self._attention)

    def _make_buffers(self, sample: torch.Tensor, extends: Sequence[int]) -> None:
        settings = self._settings
        shapes = [(1, max(settings.sizes, default=0)), *((tokens, 1) for tokens in extends)]
        for row_tokens, rows in shapes:
            if rows:
                self._buffers[row_tokens] = GraphBuffers(
                    rows, self._width, settings.page_size, settings.device, row_tokens
                )
        num_tokens = max((row_tokens * rows for row_tokens, rows in shapes), default=0)
        self._hidden = sample.new_empty((num_tokens, sample.shape[1]))

    def _capture(self, row_tokens: int, rows: int) -> None:
        """Record one graph, or leave it out where memory is short."""
        fb = self._buffers[row_tokens].padding(rows)
        self._attention.plan_capture(fb)
        out = self._hidden[: row_tokens * rows]
        planned = _Planned(self._attention)

        def launch() -> None:
            out.copy_(self._model.forward(fb, planned))

        before = self._graphs.free_bytes()
        try:
            graph = self._graphs.capture(launch)
        except torch.OutOfMemoryError:
            self._leave_out(row_tokens, rows, self._graphs.free_bytes())
            return
        after = self._graphs.free_bytes()
        if after < self._settings.reserve_bytes:
            graph.release()
            self._leave_out(row_tokens, rows, after)
            return
        self._captured[row_tokens, rows] = graph
        self.memory.append(GraphMemory(row_tokens, rows, before, after))

    def _leave_out(self, row_tokens: int, rows: int, free: int) -> None:
        logger.warning(
            "no CUDA graph of %d rows with %d new tokens each: it leaves %d bytes of device memory free, %d are kept back;"
            " such steps run without one. Lower mem_fraction_static or cuda_graph_max_bs",
            rows,
            row_tokens,
            free,
            self._settings.reserve_bytes,
        )

    def _choose(self, fb: ForwardBatch) -> tuple[int, int | None, str]:
        """New tokens of each row, rows of the graph to replay, and why there is none."""
        if not self._captured:
            return 0, None, NOT_CAPTURED
        rows, tokens = fb.num_rows, fb.num_tokens
        if fb.page_table.shape[1] > self._width:
            return 0, None, TOO_WIDE
        if tokens == rows:  # every row has at least one
            bucket = bucket_of(rows, self._sizes)
            if bucket is not None and self._sharing is not None and self._sharing.saves_by_sharing(fb):
                return 1, None, SHARED
            return 1, bucket, TOO_MANY_ROWS
        return tokens, 1 if rows == 1 and (tokens, 1) in self._captured else None, EXTEND

    def _note_eager(self, reason: str, fb: ForwardBatch) -> None:
        if reason not in self.counters.eager:
            largest = self._sizes[-1] if self._sizes else 0
            logger.info(
                "a step of %d rows and %d tokens runs without a CUDA graph: %s (the largest has %d rows); said once",
                fb.num_rows,
                fb.num_tokens,
                reason,
                largest,
            )
        self.counters.eager[reason] = self.counters.eager.get(reason, 0) + 1


def graphed(
    model: CausalModel,
    attention: AttentionBackend,
    graphs: GraphFactory,
    settings: GraphSettings,
    progress: Callable[[str], None] = lambda line: None,
) -> CausalModel:
    """`model` behind captured graphs, or `model` itself where `attention` cannot be captured; a log line says so."""
    if not isinstance(attention, GraphAttention):
        logger.info("%s cannot be captured: steps run without CUDA graphs", type(attention).__name__)
        return model
    wrapped = GraphedModel(model, attention, graphs, settings)
    wrapped.capture(progress)
    return wrapped
