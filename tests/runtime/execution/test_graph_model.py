"""Graphs and eager steps give equal numbers to the bit, on graphs that refuse what a GPU's could not follow."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import numpy as np
import pytest
import torch

from sglang_lite.errors import RequestError
from sglang_lite.runtime.attention.forward_batch import ForwardBatch
from sglang_lite.runtime.attention.kv_pool import KvPool
from sglang_lite.runtime.attention.torch_ref import TorchAttention
from sglang_lite.runtime.execution import graph_model
from sglang_lite.runtime.execution.graph_model import GraphedModel, GraphSettings, graphed
from sglang_lite.runtime.execution.model_runner import CausalModel, ModelRunner
from sglang_lite.runtime.memory.kv import KvManager
from sglang_lite.runtime.model.llama import LlamaForCausalLM
from sglang_lite.runtime.scheduler.config import SchedulerConfig
from sglang_lite.runtime.scheduler.messages import AddReq
from sglang_lite.runtime.scheduler.scheduler import Scheduler
from sglang_lite.sampling_params import SamplingParams
from tests.runtime.execution.support import TINY
from tests.support.fake_graphs import FakeGraph, FakeGraphs
from tests.support.static_attention import RowLinear, StaticAttention

PAGE_SIZE = 4
CONTEXT = 40
WIDTH = CONTEXT // PAGE_SIZE
NUM_PAGES = 90


@pytest.fixture(scope="module")
def model() -> LlamaForCausalLM:
    model = LlamaForCausalLM(TINY, RowLinear)
    generator = torch.Generator().manual_seed(0)
    for name, weight in model.named_parameters():
        if "norm" not in name and "freq_factors" not in name:
            weight.data.normal_(0, 1.0 if name == "embed" else 0.3, generator=generator)
    return model


def new_pool() -> KvPool:
    """Random keys and values everywhere: rows may begin at any length."""
    pool = KvPool(
        TINY.num_layers, NUM_PAGES, TINY.num_kv_heads, TINY.head_dim, PAGE_SIZE, dtype=torch.float32, token_major=True
    )
    generator = torch.Generator().manual_seed(1)
    pool.k.normal_(generator=generator)
    pool.v.normal_(generator=generator)
    return pool


class Side:
    """The model over a pool of its own, behind graphs or not."""

    def __init__(self, model: LlamaForCausalLM, sizes: Sequence[int] = (), extend_tokens: Sequence[int] = ()) -> None:
        self.pool = new_pool()
        self.attention = StaticAttention(self.pool, WIDTH)
        self.graphs = FakeGraphs([self.pool])
        self.model: CausalModel = model
        if sizes or extend_tokens:
            settings = GraphSettings(
                tuple(sizes), CONTEXT, PAGE_SIZE, extend_tokens=tuple(extend_tokens), reserve_bytes=0
            )
            self.model = graphed(model, self.attention, self.graphs, settings)
            assert isinstance(self.model, GraphedModel)

    def hidden(self, fb: ForwardBatch) -> torch.Tensor:
        return self.model.forward(fb, self.attention).clone()

    @property
    def graphed(self) -> GraphedModel:
        assert isinstance(self.model, GraphedModel)
        return self.model


def batch_of(extend: Sequence[int], seed: int) -> ForwardBatch:
    """Rows of random lengths with so many new tokens, on scattered pages of their own."""
    rng = np.random.default_rng(seed)
    pages = rng.permutation(np.arange(1, NUM_PAGES))
    prefix = np.array([rng.integers(0, CONTEXT - n + 1) for n in extend])
    counts = [-(-(p + n) // PAGE_SIZE) for p, n in zip(prefix, extend, strict=True)]
    table = np.zeros((len(extend), max(counts)), dtype=np.int32)
    for row, count in enumerate(counts):
        table[row, :count] = pages[:count]
        pages = pages[count:]
    return ForwardBatch.build(rng.integers(0, TINY.vocab_size, sum(extend)), np.array(extend), prefix, table, PAGE_SIZE)


def check_same_pools(a: KvPool, b: KvPool) -> None:
    assert torch.equal(a.k[:, 1:], b.k[:, 1:])
    assert torch.equal(a.v[:, 1:], b.v[:, 1:])


def test_graphs_and_eager_steps_are_equal_to_the_bit_for_every_number_of_rows(model: LlamaForCausalLM) -> None:
    """Before each replay the outputs and the sink page are NaN, so padding that reached a live row would show."""
    plain, graphs = Side(model), Side(model, (1, 2, 4, 7))
    for rows in [*range(1, 9), 3, 1, 7, 2]:
        fb = batch_of([1] * rows, seed=rows)
        expected, got = plain.hidden(fb), graphs.hidden(fb)
        assert torch.isfinite(expected).all()
        assert torch.equal(got, expected)
        assert torch.equal(model.logits(got), graphs.model.logits(got))
    check_same_pools(plain.pool, graphs.pool)
    counters = graphs.graphed.counters
    assert counters.replays == {(1, 1): 2, (1, 2): 2, (1, 4): 3, (1, 7): 4}
    assert counters.padded_rows == (4 - 3) + (7 - 5) + (7 - 6) + (4 - 3)
    assert counters.eager == {graph_model.TOO_MANY_ROWS: 1}
    assert graphs.graphs.num_poisoned > 0


def test_the_attention_plans_before_every_replay(model: LlamaForCausalLM) -> None:
    graphs = Side(model, (2, 4))
    assert graphs.attention.captured == [4, 2]
    fb = batch_of([1] * 3, seed=5)
    graphs.hidden(fb)
    assert graphs.attention.replayed == [(4, [*fb.host.seq_lens.tolist(), 1])]


def test_extends_and_mixed_batches_run_as_they_are(model: LlamaForCausalLM) -> None:
    plain, graphs = Side(model), Side(model, (1, 4))
    for seed, extend in enumerate([[5], [1, 3], [2, 2], [1, 1, 9, 1]]):
        fb = batch_of(extend, seed)
        assert torch.equal(graphs.hidden(fb), plain.hidden(fb))
    assert graphs.graphed.counters.eager == {graph_model.EXTEND: 4}
    assert graphs.graphed.counters.replays == {}


def test_one_row_of_the_chunk_size_may_have_a_graph_too(model: LlamaForCausalLM) -> None:
    plain, graphs = Side(model), Side(model, (1, 2), extend_tokens=(4, 8))
    for seed, extend in enumerate([[8], [4], [5], [8], [4, 4], [1], [8]]):
        fb = batch_of(extend, seed)
        assert torch.equal(graphs.hidden(fb), plain.hidden(fb))
    check_same_pools(plain.pool, graphs.pool)
    counters = graphs.graphed.counters
    assert counters.to_dict() == {
        "replays": {"1": 1},
        "extend_replays": {"4": 1, "8": 3},
        "padded_rows": 0,
        "eager": {graph_model.EXTEND: 2},
    }


def test_an_attention_without_graphs_for_extends_gets_none(
    model: LlamaForCausalLM, caplog: pytest.LogCaptureFixture
) -> None:
    pool = new_pool()
    attention = StaticAttention(pool, WIDTH)
    attention.captures_extends = False
    wrapped = GraphedModel(model, attention, FakeGraphs([pool]), GraphSettings((1,), CONTEXT, PAGE_SIZE, "cpu", (8,)))
    wrapped.capture()
    assert attention.captured == [1]
    assert "captures no extends" in caplog.text


def test_the_reason_for_an_eager_step_is_said_once(model: LlamaForCausalLM, caplog: pytest.LogCaptureFixture) -> None:
    graphs = Side(model, (1, 2))
    with caplog.at_level(logging.INFO, logger=graph_model.__name__):
        for seed in range(3):
            graphs.hidden(batch_of([1] * 3, seed))
            graphs.hidden(batch_of([2], seed))
    said = [record.getMessage() for record in caplog.records if record.name == graph_model.__name__]
    assert len(said) == 2
    assert graph_model.TOO_MANY_ROWS in said[0]
    assert "3 rows" in said[0]
    assert graph_model.EXTEND in said[1]


def test_graphs_are_captured_largest_first_and_told(model: LlamaForCausalLM) -> None:
    pool = new_pool()
    graphs = FakeGraphs([pool], memory=10_000, cost=lambda rows: 100 * rows)
    wrapped = GraphedModel(
        model, StaticAttention(pool, WIDTH), graphs, GraphSettings((1, 2, 8), CONTEXT, PAGE_SIZE, reserve_bytes=500)
    )
    lines: list[str] = []
    wrapped.capture(lines.append)
    assert [entry.rows for entry in wrapped.memory] == [8, 2, 1]
    assert [entry.taken for entry in wrapped.memory] == [800, 0, 0], "the smaller ones share the largest one's memory"
    assert wrapped.memory[0].free_before == 10_000
    assert [line.split(":")[0] for line in lines[:3]] == [f"capturing CUDA graph {i} of 3" for i in (1, 2, 3)]
    assert lines[0].endswith(": 8 rows ...")
    assert "captured 3 CUDA graphs" in lines[3]
    assert wrapped.num_bytes > 800


@pytest.mark.parametrize(("memory", "reserve"), [(700, 0), (1000, 600)])
def test_where_memory_is_short_the_largest_graphs_are_left_out(
    model: LlamaForCausalLM, memory: int, reserve: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Once the capture itself runs out of memory, once it leaves less than must stay free."""
    pool = new_pool()
    graphs = FakeGraphs([pool], memory=memory, cost=lambda rows: 100 * rows)
    settings = GraphSettings((1, 2, 4, 8), CONTEXT, PAGE_SIZE, reserve_bytes=reserve)
    attention = StaticAttention(pool, WIDTH)
    wrapped = GraphedModel(model, attention, graphs, settings)
    wrapped.capture()
    assert wrapped.sizes == (1, 2, 4)
    assert "no CUDA graph of 8 rows" in caplog.text
    fb = batch_of([1] * 6, 0)
    assert torch.equal(wrapped.forward(fb, attention), Side(model).hidden(fb))
    assert wrapped.counters.eager == {graph_model.TOO_MANY_ROWS: 1}
    wrapped.forward(batch_of([1] * 4, 0), attention)
    assert wrapped.counters.replays == {(1, 4): 1}


def test_where_no_graph_fits_the_start_is_refused_with_the_remedy(model: LlamaForCausalLM) -> None:
    pool = new_pool()
    graphs = FakeGraphs([pool], memory=50, cost=lambda rows: 100 * rows)
    with pytest.raises(RequestError, match=r"50 bytes .* are free.*disable_cuda_graph"):
        graphed(model, StaticAttention(pool, WIDTH), graphs, GraphSettings((1, 2), CONTEXT, PAGE_SIZE))


def test_an_attention_that_cannot_be_captured_leaves_the_model_as_it_is(
    model: LlamaForCausalLM, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, logger=graph_model.__name__):
        got = graphed(model, TorchAttention(new_pool()), FakeGraphs(), GraphSettings((1,), CONTEXT, PAGE_SIZE))
    assert got is model
    assert "TorchAttention cannot be captured" in caplog.text


def test_before_the_capture_steps_run_as_they_are(model: LlamaForCausalLM) -> None:
    pool = new_pool()
    attention = StaticAttention(pool, WIDTH)
    wrapped = GraphedModel(model, attention, FakeGraphs([pool]), GraphSettings((1,), CONTEXT, PAGE_SIZE))
    wrapped.forward(batch_of([1], 0), attention)
    assert wrapped.counters.eager == {graph_model.NOT_CAPTURED: 1}


def test_another_attention_than_the_captured_one_is_refused(model: LlamaForCausalLM) -> None:
    graphs = Side(model, (1,))
    with pytest.raises(AssertionError, match="captured with"):
        graphs.model.forward(batch_of([1], 0), StaticAttention(graphs.pool, WIDTH))


def _generate(model: LlamaForCausalLM, side: Side) -> tuple[dict[str, list[int]], int]:
    """Tokens of twelve requests of different lengths, some of which are retracted midway, and the number of retracts."""
    kv = KvManager(num_rows=16, num_pages=30, page_size=PAGE_SIZE, max_len=CONTEXT, enable_radix=True)
    scheduler = Scheduler(
        SchedulerConfig(CONTEXT, TINY.vocab_size, max_running_requests=6),
        kv,
        [b"x"] * TINY.vocab_size,
    )
    runner = ModelRunner(side.model, side.attention, side.pool, vocab_size=TINY.vocab_size)
    rng = np.random.default_rng(3)
    adds = [
        AddReq(
            f"r{i}",
            tuple(rng.integers(0, TINY.vocab_size, rng.integers(2, 12)).tolist()),
            SamplingParams(temperature=0.7, seed=i, max_new_tokens=int(rng.integers(6, 26)), ignore_eos=True),
        )
        for i in range(12)
    ]
    ids: dict[str, list[int]] = {add.rid: [] for add in adds}
    messages: list[AddReq] = adds
    for number in range(2000):
        if number % 7 == 6:
            scheduler.retract(f"r{number % 12}")
        plan = scheduler.step(messages)
        messages = []
        for output in scheduler.commit(runner.run(plan)):
            ids[output.rid] += output.new_ids
        if not scheduler.has_work:
            return ids, scheduler.statistics().retractions
    raise AssertionError("the requests do not end")


def test_whole_generations_with_retracts_are_equal(model: LlamaForCausalLM) -> None:
    plain, graphs = Side(model), Side(model, (1, 3))
    expected, retracts = _generate(model, plain)
    got, _ = _generate(model, graphs)
    assert retracts > 0
    assert got == expected
    counters = graphs.graphed.counters
    assert set(counters.replays) == {(1, 1), (1, 3)}
    assert counters.padded_rows > 0
    assert set(counters.eager) == {graph_model.TOO_MANY_ROWS, graph_model.EXTEND}


class TestFakeGraph:
    """The fake refuses what would be wrong on a GPU; else the tests above would show nothing."""

    def test_memory_that_moved_is_refused(self) -> None:
        state = {"x": torch.ones(3)}
        out = torch.zeros(3)
        graph = FakeGraph(lambda: out.copy_(state["x"] * 2), FakeGraphs())
        graph.replay()
        state["x"] = torch.ones(3)
        with pytest.raises(AssertionError, match="operation 0 of the graph was recorded"):
            graph.replay()

    def test_a_size_that_changed_is_refused(self) -> None:
        size = [2]
        out = torch.zeros(3)
        graph = FakeGraph(lambda: out[: size[0]].add_(1), FakeGraphs())
        size[0] = 3
        with pytest.raises(AssertionError, match="the replay needs"):
            graph.replay()

    def test_outputs_are_poisoned_and_pools_keep_all_but_the_sink(self) -> None:
        pool = new_pool()
        before = pool.k[:, 1:].clone()
        out = torch.zeros(2, 3)

        def launch() -> None:
            pool.v[0, 3].add_(1)
            out[:1].copy_(torch.ones(1, 3))

        graph = FakeGraph(launch, FakeGraphs([pool]))
        out[1] = 5
        graph.replay()
        assert torch.equal(out, torch.tensor([[1.0] * 3, [5.0] * 3]))
        assert torch.equal(pool.k[:, 1:], before)
        assert pool.k[:, 0].isnan().all()

    def test_a_released_graph_is_not_replayed(self) -> None:
        graphs = FakeGraphs()
        out = torch.zeros(1)
        graph = graphs.capture(lambda: out.add_(1))
        graph.release()
        with pytest.raises(AssertionError, match="released graph"):
            graph.replay()
