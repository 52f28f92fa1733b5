"""The backend over a stand-in for the package that computes from its arguments alone, beside plain torch."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import torch

from sglang_lite.errors import UnsupportedError
from sglang_lite.runtime.attention.base import PLAIN, GraphAttention, LayerAttention
from sglang_lite.runtime.attention.flashinfer import FlashInferAttention
from sglang_lite.runtime.attention.forward_batch import ForwardBatch
from sglang_lite.runtime.attention.kv_pool import KvPool
from sglang_lite.runtime.attention.torch_ref import TorchAttention
from sglang_lite.runtime.execution.graph_model import SHARED, ExtendGraphs, GraphedModel, GraphSettings
from tests.support.fake_flashinfer import Fake
from tests.support.fake_graphs import FakeGraphs

PAGE_SIZE = 4
HEAD_DIM = 64
NUM_PAGES = 120
CONTEXT = 80


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Fake:
    return Fake(monkeypatch)


def new_pool(kv_heads: int = 2, dtype: torch.dtype = torch.float16) -> KvPool:
    """Noise everywhere, and NaN in the sink page: nobody reads it."""
    pool = KvPool(1, NUM_PAGES, kv_heads, HEAD_DIM, PAGE_SIZE, dtype=dtype, token_major=True)
    generator = torch.Generator().manual_seed(0)
    pool.k.copy_(torch.randn(pool.k.shape, generator=generator))
    pool.v.copy_(torch.randn(pool.v.shape, generator=generator))
    pool.k[:, 0] = pool.v[:, 0] = float("nan")
    return pool


def flashinfer(pool: KvPool, heads: int) -> FlashInferAttention:
    return FlashInferAttention(pool, heads, workspace_bytes=1 << 12)


def batch_of(prefix: list[int], extend: list[int], shared: int = 0, seed: int = 0) -> ForwardBatch:
    """Rows on scattered pages, the first `shared` pages of all being the same."""
    pages = np.random.default_rng(seed).permutation(np.arange(1, NUM_PAGES)).tolist()
    common = [pages.pop() for _ in range(shared)]
    counts = [-(-(p + n) // PAGE_SIZE) for p, n in zip(prefix, extend, strict=True)]
    table = np.zeros((len(prefix), max(counts)), dtype=np.int32)
    for row, count in enumerate(counts):
        own = [pages.pop() for _ in range(count - shared)]
        table[row, :count] = [*common, *own][:count]
    ids = np.arange(sum(extend))
    return ForwardBatch.build(ids, np.array(extend), np.array(prefix), table, PAGE_SIZE)


def inputs(fb: ForwardBatch, heads: int, kv_heads: int, seed: int = 7) -> tuple[torch.Tensor, ...]:
    """q, k, v that 16 bits hold exactly."""
    generator = torch.Generator().manual_seed(seed)
    return tuple(
        torch.randn(fb.num_tokens, h, HEAD_DIM, generator=generator).half().float() for h in (heads, kv_heads, kv_heads)
    )


def check(fb: ForwardBatch, options: LayerAttention = PLAIN, heads: int = 8, kv_heads: int = 2) -> None:
    """Equal to plain torch within the rounding of a result to 16 bits, and the same pages written."""
    pools = new_pool(kv_heads), new_pool(kv_heads)
    outs = []
    for attention in (TorchAttention(pools[0]), flashinfer(pools[1], heads)):
        attention.plan(fb)
        outs.append(attention.forward(*inputs(fb, heads, kv_heads), 0, options))
    assert torch.isfinite(outs[0]).all()
    torch.testing.assert_close(outs[1], outs[0], atol=2e-3, rtol=2e-3)
    for a, b in ((pools[0].k, pools[1].k), (pools[0].v, pools[1].v)):
        assert torch.equal(a[:, 1:], b[:, 1:])


OPTIONS = {
    "plain": PLAIN,
    "scale": LayerAttention(scale=0.4),
    "soft cap": LayerAttention(soft_cap=1.5),
    "window": LayerAttention(window=9),
    "all": LayerAttention(scale=0.3, window=5, soft_cap=2.0),
}

CASES = {
    "decode": ([0, 3, 4, 31, 47], [1] * 5, 0, "decode"),
    "extend": ([0, 5, 16, 40], [7, 4, 1, 9], 0, "prefill"),
    "from the beginning": ([0, 0, 0], [7, 1, 30], 0, "ragged"),
    "shared decode": ([65, 69, 64, 67], [1] * 4, 16, "cascade"),
    "shared extend": ([65, 69, 64], [3, 1, 6], 16, "cascade"),
}


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("case", CASES)
def test_each_kind_of_step_equals_plain_torch(fake: Fake, case: str, options: str) -> None:
    prefix, extend, shared, kind = CASES[case]
    check(batch_of(prefix, extend, shared), OPTIONS[options])
    if kind == "cascade" and OPTIONS[options].window is not None:
        kind = "decode" if max(extend) == 1 else "prefill"
    assert fake.runs() == {kind: 1}


def test_options_change_what_is_computed(fake: Fake) -> None:
    """The comparison above could not tell kinds of layers apart if they gave the same numbers."""
    fb, pool = batch_of([20, 30], [1, 1]), new_pool()
    attention = flashinfer(pool, 8)
    outs = []
    for options in OPTIONS.values():
        attention.plan(fb)
        outs.append(attention.forward(*inputs(fb, 8, 2), 0, options))
    for i, a in enumerate(outs):
        for b in outs[:i]:
            assert not torch.allclose(a, b, atol=1e-2)


@pytest.mark.parametrize(
    ("heads", "kv_heads", "tensor_cores"), [(2, 2, False), (9, 3, False), (8, 2, True), (10, 2, True)]
)
def test_groups_of_query_heads_get_a_kernel_that_takes_them(
    fake: Fake, heads: int, kv_heads: int, tensor_cores: bool
) -> None:
    check(batch_of([20, 30], [1, 1]), heads=heads, kv_heads=kv_heads)
    assert [wrapper.use_tensor_cores for wrapper in fake.decode] == [tensor_cores]


def test_all_layers_of_a_kind_share_one_plan_a_step(fake: Fake) -> None:
    attention = flashinfer(new_pool(), 8)
    window = LayerAttention(window=6)
    for step in range(3):
        fb = batch_of([20 + step, 30], [1, 1], seed=step)
        attention.plan(fb)
        for options in (PLAIN, window, PLAIN, window):
            attention.forward(*inputs(fb, 8, 2), 0, options)
    assert [wrapper.num_plans for wrapper in fake.decode] == [3, 3]
    assert [wrapper.num_runs for wrapper in fake.decode] == [6, 6]


def test_strided_inputs_and_other_types_are_taken(fake: Fake) -> None:
    """The model hands over slices of one merged projection, in its own type."""
    fb = batch_of([20, 0], [3, 5])
    q, k, v = inputs(fb, 8, 2)
    attention = flashinfer(new_pool(), 8)
    attention.plan(fb)
    expected = attention.forward(q, k, v, 0)
    merged = torch.cat((q, k, v), dim=1).half()
    got = attention.forward(merged[:, :8], merged[:, 8:10], merged[:, 10:], 0)
    assert got.dtype == torch.float16
    assert torch.equal(got.float(), expected)


class _OneLayer:
    """A model of two attention layers of different kinds over one layer of the pool."""

    def __init__(self, options: tuple[LayerAttention, ...]) -> None:
        self._options = options
        generator = torch.Generator().manual_seed(3)
        self._table = torch.randn(100, 12, HEAD_DIM, generator=generator).half().float()

    def forward(self, fb: ForwardBatch, attention: GraphAttention) -> torch.Tensor:
        attention.plan(fb)
        x = self._table[fb.input_ids]
        outs = [attention.forward(x[:, :8], x[:, 8:10], x[:, 10:], 0, options) for options in self._options]
        return torch.cat(outs, dim=1).flatten(1)

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        return hidden


def _graphed(attention: FlashInferAttention, pool: KvPool, extend: tuple[int, ...] = ()) -> GraphedModel:
    model = _OneLayer((PLAIN, LayerAttention(window=7)))
    settings = GraphSettings((1, 2, 4, 6), CONTEXT, PAGE_SIZE, extend_tokens=extend)
    graphed = GraphedModel(model, attention, FakeGraphs([pool]), settings)  # type: ignore[arg-type]
    graphed.capture()
    return graphed


def test_it_is_an_attention_for_graphs(fake: Fake) -> None:
    attention = flashinfer(new_pool(), 8)
    assert isinstance(attention, GraphAttention)
    assert isinstance(attention, ExtendGraphs)


def test_captured_steps_equal_eager_ones(fake: Fake) -> None:
    """The stand-in reads rows from the buffers of the capture only, and refuses other sizes and overwritten plans."""
    pools = new_pool(), new_pool()
    eager, attention = flashinfer(pools[0], 8), flashinfer(pools[1], 8)
    graphed = _graphed(attention, pools[1], extend=(8,))
    plain = _OneLayer((PLAIN, LayerAttention(window=7)))
    rng = np.random.default_rng(1)
    for step, extend in enumerate([[1], [1] * 2, [1] * 3, [1] * 6, [8], [1] * 5, [1], [8], [5, 1], [1] * 4, [1] * 3]):
        fb = batch_of([int(rng.integers(0, CONTEXT - n)) for n in extend], extend, seed=step)
        torch.testing.assert_close(graphed.forward(fb, attention), plain.forward(fb, eager), atol=0, rtol=0)
    assert graphed.counters.replays == {(1, 1): 2, (1, 2): 1, (1, 4): 3, (1, 6): 2, (8, 1): 2}
    assert sum(graphed.counters.eager.values()) == 1
    for a, b in ((pools[0].k, pools[1].k), (pools[0].v, pools[1].v)):
        assert torch.equal(a[:, 1:], b[:, 1:])


def test_a_step_whose_rows_share_enough_goes_without_its_graph(fake: Fake) -> None:
    """Equal either way; from the threshold on the cascade reads the shared pages once."""
    pool, fb = new_pool(), batch_of([65, 69, 64, 67], [1] * 4, shared=16)
    saved = 3 * 16 * KvPool.bytes_per_page(1, 2, HEAD_DIM, PAGE_SIZE, item=2)
    outs = []
    for worth in (saved, saved + 1):
        attention = FlashInferAttention(pool, 8, workspace_bytes=1 << 12, worth_eager_bytes=worth)
        graphed = _graphed(attention, pool)
        outs.append(graphed.forward(fb, attention).clone())
        assert graphed.counters.eager == ({SHARED: 1} if worth == saved else {})
    assert sum(wrapper.num_runs for wrapper in fake.cascade) == 1
    torch.testing.assert_close(outs[0], outs[1], atol=2e-3, rtol=2e-3)


def test_graphs_of_all_sizes_share_their_buffers(fake: Fake) -> None:
    pool = new_pool()
    _graphed(flashinfer(pool, 8), pool)
    captured = [wrapper for wrapper in fake.decode if wrapper.use_cuda_graph]
    assert sorted(wrapper._fixed_rows for wrapper in captured) == [1, 1, 2, 2, 4, 4, 6, 6]
    assert len({wrapper._buffers[2].data_ptr() for wrapper in captured}) == 1
    assert len({wrapper._int_workspace.data_ptr() for wrapper in captured}) == 2, "one for each kind of layer"


def test_a_capture_before_any_step_is_refused(fake: Fake) -> None:
    with pytest.raises(AssertionError, match="run one step first"):
        flashinfer(new_pool(), 8).plan_capture(batch_of([3], [1]))


def test_a_capture_larger_than_the_first_is_refused(fake: Fake) -> None:
    attention = flashinfer(new_pool(), 8)
    small, large = batch_of([3], [1]), batch_of([3, 3], [1, 1])
    attention.plan(small)
    attention.forward(*inputs(small, 8, 2), 0)
    attention.plan_capture(small)
    with pytest.raises(AssertionError, match="the largest comes first"):
        attention.plan_capture(large)


def test_a_missing_package_is_an_error_that_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "flashinfer", None)
    with pytest.raises(UnsupportedError, match=r"flashinfer.*sglang-lite\[cuda\].*triton"):
        flashinfer(new_pool(), 8)


@pytest.mark.parametrize(("head_dim", "dtype"), [(80, torch.float16), (64, torch.float32)])
def test_sizes_that_its_kernels_do_not_take_are_refused(fake: Fake, head_dim: int, dtype: torch.dtype) -> None:
    pool = KvPool(1, 4, 2, head_dim, PAGE_SIZE, dtype=dtype, token_major=True)
    assert not FlashInferAttention.supports(head_dim, dtype)
    with pytest.raises(UnsupportedError, match="attention_backend='triton'"):
        flashinfer(pool, 8)
    assert FlashInferAttention.supports(128, torch.bfloat16)
