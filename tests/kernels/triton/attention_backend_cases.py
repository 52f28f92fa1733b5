"""Run in a process of its own with TRITON_INTERPRET=1: `TritonAttention` against plain torch, over batches and a model."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from sglang_lite.runtime.attention import triton as module
from sglang_lite.runtime.attention.base import PLAIN, AttentionBackend, LayerAttention
from sglang_lite.runtime.attention.forward_batch import ForwardBatch
from sglang_lite.runtime.attention.kv_pool import KvPool
from sglang_lite.runtime.attention.torch_ref import TorchAttention
from sglang_lite.runtime.attention.triton import TritonAttention
from sglang_lite.runtime.model.loader import load_model
from tests.support.paged_case import PagedCase, paged_case
from tests.support.paged_driver import PagedDriver, Sequence
from tests.support.tiny_gguf import TinyLlama, gguf_tensors, make_model, write_gguf

MIXED = ([300, 40, 0, 3, 17], [1, 5, 60, 1, 30])
"""Decode, a draft, prompts of several tiles: all in one step."""


def case_of(prefix: list[int], extend: list[int], dtype: torch.dtype = torch.float32) -> PagedCase:
    return paged_case(prefix, extend, 16, 6, 2, 64, token_major=True, dtype=dtype)


def run(attention: AttentionBackend, case: PagedCase, options: LayerAttention = PLAIN) -> torch.Tensor:
    attention.plan(case.fb)
    return attention.forward(case.q, case.k, case.v, 0, options)


def parity() -> None:
    """Mixed batches are those of plain torch, with every option, in both modes; keys and values are stored."""
    for options in (PLAIN, LayerAttention(scale=0.7, window=20, soft_cap=3.0)):
        expected = case_of(*MIXED)
        plain = run(TorchAttention(expected.pool), expected, options)
        for deterministic in (False, True):
            case = case_of(*MIXED)
            got = run(TritonAttention(case.pool, 6, deterministic=deterministic), case, options)
            torch.testing.assert_close(got, plain, atol=5e-6, rtol=1e-5)
            assert torch.equal(case.pool.k[0, 1:].nan_to_num(), expected.pool.k[0, 1:].nan_to_num())
            assert torch.equal(case.pool.v[0, 1:].nan_to_num(), expected.pool.v[0, 1:].nan_to_num())
    half = case_of(*MIXED, torch.bfloat16)
    half.q, half.k, half.v = (x.bfloat16() for x in (half.q, half.k, half.v))
    got = run(TritonAttention(half.pool, 6), half)
    assert got.dtype == torch.bfloat16
    torch.testing.assert_close(got, run(TorchAttention(half.pool), half), atol=3e-2, rtol=0)


def rows_of(case: PagedCase, rows: list[int]) -> PagedCase:
    """Some rows of a batch, over the same pool."""
    host = case.fb.host
    tokens = np.concatenate([np.arange(host.q_starts[row], host.q_starts[row + 1]) for row in rows])
    index = np.array(rows)
    fb = ForwardBatch.build(
        tokens, np.diff(host.q_starts)[index], host.prefix_lens[index], host.page_table[index], case.fb.page_size
    )
    return PagedCase(case.pool, fb, case.q[tokens], case.k[tokens], case.v[tokens])


def tile_rows(attention: TritonAttention, case: PagedCase) -> int:
    """The rows of the tiles that prompts are computed in; the interpreter's bits do not depend on them, those of GPUs may."""
    attention.plan(case.fb)
    step = attention._step
    assert step is not None
    return step.size.rows


def batch_mates() -> None:
    """With `deterministic` no bit of a row depends on the others, nor on the rounds that a step takes."""
    case = case_of([300, 40, 0, 3, 17], [1, 5, 60, 1, 180])
    attention = TritonAttention(case.pool, 6, deterministic=True)
    whole = run(attention, case)
    starts = case.fb.host.q_starts
    for rows in ([0], [1], [2], [4], [1, 0], [3, 4], [2, 1]):
        expected = torch.cat([whole[starts[row] : starts[row + 1]] for row in rows])
        assert torch.equal(run(attention, rows_of(case, rows)), expected), f"rows {rows}"
    assert [tile_rows(one, case) for one in (attention, TritonAttention(case.pool, 6))] == [64, 64]
    half = case_of([300, 40, 0, 3, 17], [1, 5, 60, 1, 180], torch.bfloat16)
    both = [TritonAttention(half.pool, 6, deterministic=deterministic) for deterministic in (True, False)]
    assert [tile_rows(one, half) for one in both] == [64, 128]
    kept, module._MOST_PARTIAL_FLOATS = module._MOST_PARTIAL_FLOATS, 3 * 6 * 66 * 2
    assert torch.equal(run(attention, case), whole), "rounds"
    module._MOST_PARTIAL_FLOATS = kept
    host = case.fb.host
    plans = attention._split_plans(case.fb, np.diff(host.q_starts) < 20)
    assert [sorted(plan.tokens.tolist()) for plan in plans] == [[0, 1, 2, 3, 4, 5, 66]]


def dependent_rows() -> None:
    """Two rows continue a third that is written in the same step: the result is that of doing it in two steps."""
    extend, shared, head = [32, 3, 20, 1], 32, [3, 1]
    q, k, v = (torch.randn(sum(extend), h, 16) for h in (4, 2, 2))
    table = np.array([[*head, 0, 0], [*head, 5, 6], [*head, 2, 4], [*head, 7, 0]])

    def forward(rows: slice, pool: KvPool) -> torch.Tensor:
        lens = np.array(extend)[rows]
        tokens = slice(sum(extend[: rows.start]), sum(extend[: rows.stop]))
        prefix = np.array([0, shared, shared, shared])[rows]
        fb = ForwardBatch.build(np.zeros(lens.sum()), lens, prefix, table[rows], 16)
        attention = TritonAttention(pool, 4, deterministic=True)
        attention.plan(fb)
        return attention.forward(q[tokens], k[tokens], v[tokens], 0)

    together = forward(slice(0, 4), KvPool(1, 8, 2, 16, 16, token_major=True))
    pool = KvPool(1, 8, 2, 16, 16, token_major=True)
    assert torch.equal(together, torch.cat((forward(slice(0, 1), pool), forward(slice(1, 4), pool))))


class Recorded:
    """What a graph would be: launches with the tensors that they were given, run again as they are."""

    def __init__(self, attention: TritonAttention, step: Callable[[], torch.Tensor]) -> None:
        self._launches: list[tuple[Callable[..., None], tuple[Any, ...]]] = []
        names = ("split_attention", "attend_tiles", "store_kv")
        kept = {name: getattr(module, name) for name in names}
        for name, launch in kept.items():
            setattr(module, name, lambda *arguments, launch=launch: self._launches.append((launch, arguments)))
        self._out = step()
        for name, launch in kept.items():
            setattr(module, name, launch)

    def replay(self) -> torch.Tensor:
        self._out.fill_(float("nan"))
        for launch, arguments in self._launches:
            launch(*arguments)
        return self._out


def graphs() -> None:
    """What was recorded for a padding batch gives, replayed, the bits of eager steps of other rows, shared pages or not."""
    pool = KvPool(1, 90, 2, 64, 16, token_major=True)
    pool.k.normal_()
    pool.v.normal_()
    attention = TritonAttention(pool, 6)
    rows, width = 4, 40
    static = static_batch(rows, width)
    q, k, v = (torch.zeros(rows, h, 64) for h in (6, 2, 2))
    attention.plan_capture(static)
    graph = Recorded(attention, lambda: attention.forward(q, k, v, 0, LayerAttention(soft_cap=9.0)))
    pages = np.random.default_rng(0).permutation(np.arange(1, 90)).astype(np.int32)
    for lens, shared in (([1, 1, 1, 1], 0), ([300, 17, 600, 256], 0), ([513, 530, 514, 5], 31), ([2, 640, 1, 1], 0)):
        table = np.zeros((rows, width), np.int32)
        taken = shared
        for row, length in enumerate(lens):
            need = -(-length // 16)
            own = max(need - shared, 0)
            table[row, :need] = np.concatenate((pages[:shared], pages[taken : taken + own]))[:need]
            taken += own
        fb = ForwardBatch.build(np.zeros(rows), np.ones(rows, int), np.array(lens) - 1, table, 16)
        for buffer in (q, k, v):
            buffer.normal_()
        before = (pool.k.clone(), pool.v.clone())
        eager = TritonAttention(pool, 6)
        eager.plan(fb)
        expected = eager.forward(q, k, v, 0, LayerAttention(soft_cap=9.0))
        pool.k.copy_(before[0])
        pool.v.copy_(before[1])
        attention.plan(fb)  # an eager step in between leaves the recorded buffers alone
        fill(static, fb)
        attention.plan_replay(static)
        assert torch.equal(graph.replay(), expected), f"lengths {lens}"
    with pytest.raises(AssertionError, match="nothing was recorded for 3 rows"):
        attention.plan_replay(static_batch(3, width))


def static_batch(rows: int, width: int) -> ForwardBatch:
    """Rows of padding: one token each, in the sink page."""
    zeros = np.zeros(rows, int)
    return ForwardBatch.build(zeros, zeros + 1, zeros, np.zeros((rows, width), np.int32), 16)


def fill(static: ForwardBatch, fb: ForwardBatch) -> None:
    """Overwrite a batch in place; its host side shares the memory."""
    for name in ("positions", "seq_lens", "prefix_lens", "page_table", "out_slots"):
        getattr(static, name).copy_(getattr(fb, name))


def model() -> None:
    """A tiny model's logits with our kernels are those with plain torch: prompts, chunks, decode, ragged rows."""
    tiny = TinyLlama(heads=9, kv_heads=3, head_dim=32)
    with tempfile.TemporaryDirectory() as folder:
        loaded = load_model(write_gguf(Path(folder) / "tiny.gguf", tiny, gguf_tensors(make_model(tiny), tiny)))
    config = loaded.config
    drivers: list[PagedDriver] = []
    for kind in (TorchAttention, lambda pool: TritonAttention(pool, config.num_heads)):
        pool = KvPool(config.num_layers, 40, config.num_kv_heads, config.head_dim, 16, token_major=True)
        drivers.append(PagedDriver(loaded.module, pool, kind(pool)))
    ids = np.random.default_rng(5).integers(0, 60, 120).tolist()
    steps = ([(0, ids[:70])], [(0, ids[70:75]), (1, ids[:33])], [(0, ids[75:76]), (1, ids[33:34]), (2, ids[:40])])
    rows = [[Sequence() for _ in range(3)] for _ in drivers]
    for step in steps:
        plain, ours = (
            driver.step([(sequences[i], tokens) for i, tokens in step])
            for driver, sequences in zip(drivers, rows, strict=True)
        )
        torch.testing.assert_close(ours, plain, atol=1e-4, rtol=0)


if __name__ == "__main__":
    torch.manual_seed(0)
    for check in (parity, batch_mates, dependent_rows, graphs, model):
        with torch.inference_mode():
            check()
        print(check.__name__, flush=True)
