from __future__ import annotations

import numpy as np
import pytest
import torch

from sglang_lite.kernels.cpu.threads import KernelThreads
from sglang_lite.runtime.attention import cpu
from sglang_lite.runtime.attention.base import PLAIN, AttentionBackend, LayerAttention
from sglang_lite.runtime.attention.cpu import CpuAttention
from sglang_lite.runtime.attention.forward_batch import ForwardBatch
from sglang_lite.runtime.attention.kv_pool import KvPool
from sglang_lite.runtime.attention.torch_ref import TorchAttention
from tests.support.paged_case import PagedCase, paged_case


def backend(kind: str, pool: KvPool, heads: int, threads: int = 1) -> AttentionBackend:
    return TorchAttention(pool) if kind == "torch" else CpuAttention(pool, heads, KernelThreads(threads))


def attend(kind: str, case: PagedCase, threads: int = 1, options: LayerAttention = PLAIN) -> torch.Tensor:
    attention = backend(kind, case.pool, case.q.shape[1], threads)
    attention.plan(case.fb)
    return attention.forward(case.q, case.k, case.v, 0, options)


@pytest.mark.parametrize("page_size", [1, 4, 16])
def test_the_cpu_backend_agrees_with_plain_torch(page_size: int) -> None:
    arguments = ([0, 40, 3], [7, 1, 30], page_size, 6, 2, 32)
    torch.testing.assert_close(
        attend("cpu", paged_case(*arguments)), attend("torch", paged_case(*arguments)), atol=2e-5, rtol=1e-5
    )


@pytest.mark.parametrize("page_size", [1, 4, 16])
def test_the_backends_agree_on_keys_and_values_stored_as_float16(page_size: int) -> None:
    """Both round the new tokens and read rounded ones; float32 differs by no more than that rounding."""
    arguments = ([0, 40, 3], [7, 1, 30], page_size, 6, 2, 32)
    got = []
    for kind in ("cpu", "torch"):
        case = paged_case(*arguments)
        pool = KvPool(1, case.pool.num_pages, 2, 32, page_size, dtype=torch.float16)
        pool.k.copy_(case.pool.k)
        pool.v.copy_(case.pool.v)
        case.pool = pool
        got.append(attend(kind, case))
    torch.testing.assert_close(got[0], got[1], atol=2e-5, rtol=1e-5)
    full = attend("cpu", paged_case(*arguments))
    assert 1e-5 < float((got[0] - full).abs().max()) < 2e-2


def test_plain_torch_takes_either_layout_of_keys() -> None:
    arguments = ([0, 40, 3], [7, 1, 30], 16, 6, 2, 32)
    cases = [paged_case(*arguments, token_major=token_major) for token_major in (False, True)]
    first, second = (attend("torch", case) for case in cases)
    assert torch.equal(first, second)
    assert torch.equal(cases[1].pool.k.transpose(-1, -2).nan_to_num(), cases[0].pool.k.nan_to_num())


def test_the_cpu_backend_refuses_a_pool_of_the_gpu() -> None:
    with pytest.raises(AssertionError, match="token_major=False"):
        CpuAttention(KvPool(1, 2, 1, 16, 16, token_major=True), 1, KernelThreads(1))


@pytest.mark.parametrize("page_size", [1, 4, 16, 32])
def test_the_backends_agree_on_keys_and_values_stored_as_int8(page_size: int) -> None:
    """Prefixes written in a step of their own, so that both read what they rounded; rounding itself shows, and is small."""
    got: list[torch.Tensor] = []
    for kind, threads, dtype in (("cpu", 1, torch.int8), ("torch", 1, torch.int8), ("cpu", 1, torch.float32)):
        case = paged_case([0, 0, 0], [47, 41, 33], page_size, 6, 2, 32)
        case.pool = KvPool(1, case.pool.num_pages, 2, 32, page_size, dtype=dtype)
        first = attend(kind, case, threads)
        later = paged_case([40, 300, 3], [7, 1, 30], page_size, 6, 2, 32)
        later.pool = KvPool(1, later.pool.num_pages, 2, 32, page_size, dtype=dtype)
        before = ForwardBatch.build(
            np.zeros(343), np.array([40, 300, 3]), np.zeros(3, dtype=int), later.fb.host.page_table, page_size
        )
        noise = torch.Generator().manual_seed(4)
        keys, values, queries = (torch.randn(343, heads, 32, generator=noise) for heads in (2, 2, 6))
        attention = backend(kind, later.pool, 6, threads)
        attention.plan(before)
        attention.forward(queries, keys, values, 0)
        attention.plan(later.fb)
        got.append(torch.cat([first, attention.forward(later.q, later.k, later.v, 0)]))
    torch.testing.assert_close(got[0], got[1], atol=2e-5, rtol=1e-5)
    assert 1e-4 < float((got[0] - got[2]).abs().max()) < 5e-2


def test_threads_change_no_bit_of_attention_over_int8(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu, "_WORTH_THREADS", 0)
    results = []
    for threads in (1, 2):
        case = paged_case([0, 0], [300, 20], 16, 9, 3, 64)
        case.pool = KvPool(1, case.pool.num_pages, 3, 64, 16, dtype=torch.int8)
        results.append(attend("cpu", case, threads))
    assert torch.equal(*results)


OPTIONS = {
    "scale": LayerAttention(scale=0.7),
    "window": LayerAttention(window=9),
    "soft cap": LayerAttention(soft_cap=1.5),
    "all": LayerAttention(scale=2.0, window=20, soft_cap=3.0),
}


@pytest.mark.parametrize("name", OPTIONS)
def test_the_backends_agree_on_what_a_layer_does_differently(name: str) -> None:
    arguments = ([0, 40, 3], [7, 1, 30], 16, 6, 2, 32)
    cpu, plain = (attend(kind, paged_case(*arguments), options=OPTIONS[name]) for kind in ("cpu", "torch"))
    torch.testing.assert_close(cpu, plain, atol=5e-5, rtol=1e-5)
    assert not torch.allclose(cpu, attend("cpu", paged_case(*arguments)), atol=1e-3)


@pytest.mark.parametrize("kind", ["torch", "cpu"])
def test_options_are_those_of_the_definition(kind: str) -> None:
    """One row, one head, by hand: token 5 of 6 sees the last three keys, its scores scaled, then capped."""
    case = paged_case([0], [6], 16, 1, 1, 16)
    got = attend(kind, case, options=LayerAttention(scale=0.3, window=3, soft_cap=0.8))[5, 0]
    scores = 0.8 * torch.tanh(case.k[3:, 0] @ case.q[5, 0] * 0.3 / 0.8)
    torch.testing.assert_close(got, scores.softmax(0) @ case.v[3:, 0], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", OPTIONS)
def test_threads_change_no_bit_of_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = ([0, 40, 300], [50, 1, 3], 16, 9, 3, 64)
    one = attend("cpu", paged_case(*arguments), options=OPTIONS[name])
    monkeypatch.setattr(cpu, "_WORTH_THREADS", 0)
    assert torch.equal(attend("cpu", paged_case(*arguments), threads=2, options=OPTIONS[name]), one)


def test_strided_inputs_are_taken() -> None:
    """The model hands over slices of one merged projection."""
    case = paged_case([3], [5], 16, 4, 2, 16)
    merged = torch.cat((case.q, case.k, case.v), dim=1)
    expected = attend("cpu", paged_case([3], [5], 16, 4, 2, 16))
    case.q, case.k, case.v = merged[:, :4], merged[:, 4:6], merged[:, 6:]
    assert torch.equal(attend("cpu", case), expected)


@pytest.mark.parametrize("kind", ["torch", "cpu"])
@pytest.mark.parametrize("page_size", [4, 16])
def test_a_row_reads_what_an_earlier_row_of_the_same_batch_writes(kind: str, page_size: int) -> None:
    """Two rows continue a third that is written in the same step: the result is that of doing it in two steps."""
    heads, kv_heads, dim, shared = 4, 2, 16, 2 * page_size
    generator = torch.Generator().manual_seed(1)
    extend = [shared, 3, 5]
    q, k, v = (torch.randn(sum(extend), h, dim, generator=generator) for h in (heads, kv_heads, kv_heads))
    head = [3, 1]
    table = np.array([[*head, 0, 0], [*head, 5, 6], [*head, 2, 4]])

    def forward(rows: slice, pool: KvPool) -> torch.Tensor:
        lens = np.array(extend)[rows]
        tokens = slice(sum(extend[: rows.start]), sum(extend[: rows.stop]))
        fb = ForwardBatch.build(np.zeros(lens.sum()), lens, np.array([0, shared, shared])[rows], table[rows], page_size)
        attention = backend(kind, pool, heads)
        attention.plan(fb)
        return attention.forward(q[tokens], k[tokens], v[tokens], 0)

    together = forward(slice(0, 3), KvPool(1, 7, kv_heads, dim, page_size))
    pool = KvPool(1, 7, kv_heads, dim, page_size)
    apart = torch.cat((forward(slice(0, 1), pool), forward(slice(1, 3), pool)))
    assert torch.equal(together, apart)


@pytest.mark.parametrize("kind", ["torch", "cpu"])
def test_layers_do_not_mix(kind: str) -> None:
    case = paged_case([2], [4], 16, 4, 2, 16)
    pool = KvPool(3, case.pool.num_pages, 2, 16, 16)
    attention = backend(kind, pool, 4)
    attention.plan(case.fb)
    attention.forward(case.q, case.k, case.v, 1)
    assert not pool.k[[0, 2]].any()
    assert not pool.v[[0, 2]].any()
    assert pool.k[1].any()


@pytest.mark.parametrize("kind", ["torch", "cpu"])
def test_padded_rows_write_to_the_sink_page_only(kind: str) -> None:
    case = paged_case([20], [1], 16, 4, 2, 16)
    table = np.concatenate((case.fb.host.page_table, np.zeros_like(case.fb.host.page_table)))
    padded = ForwardBatch.build(np.zeros(2), np.array([1, 1]), np.array([20, 0]), table, 16)
    alone = attend(kind, case)
    again = paged_case([20], [1], 16, 4, 2, 16)
    again.fb = padded
    again.q, again.k, again.v = (torch.cat((x, x)) for x in (again.q, again.k, again.v))
    assert torch.equal(attend(kind, again)[:1], alone)
    assert torch.equal(again.pool.k[0, 1:].nan_to_num(), case.pool.k[0, 1:].nan_to_num())


def test_threads_change_no_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = ([0, 40, 300], [50, 1, 3], 16, 9, 3, 64)
    one = attend("cpu", paged_case(*arguments))
    monkeypatch.setattr(cpu, "_WORTH_THREADS", 0)
    assert torch.equal(attend("cpu", paged_case(*arguments), threads=2), one)


def test_sizes_that_the_kernels_lack_are_told_apart() -> None:
    assert CpuAttention.supports(64, 16)
    assert CpuAttention.supports(16, 1)
    assert not CpuAttention.supports(24, 16)
    assert not CpuAttention.supports(64, 3)
