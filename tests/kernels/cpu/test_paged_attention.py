from __future__ import annotations

import numpy as np
import pytest
import torch

from sglang_lite.kernels.cpu.paged_attention import paged_attention, plan_tiles, scratch_floats
from sglang_lite.kernels.cpu.parallel_attention import paged_attention_on
from sglang_lite.kernels.cpu.store_kv import store_kv
from sglang_lite.kernels.cpu.threads import KernelThreads
from sglang_lite.kernels.reference import paged_attention as reference_attention
from sglang_lite.kernels.reference import store_kv as reference_store
from tests.support.paged_case import PagedCase, paged_case

SHAPES = {
    "one token": ([0], [1]),
    "page edges": ([15, 16, 17, 0], [1, 1, 1, 16]),
    "long decode": ([300], [1]),
    "ragged": ([0, 40, 3, 255, 256], [7, 1, 30, 2, 5]),
    "across a softmax block": ([250], [20]),
    "two blocks of new tokens": ([0], [530]),
}


def run_kernel(
    case: PagedCase, threads: KernelThreads | None = None, window: int = 0, soft_cap: float = 0.0
) -> torch.Tensor:
    """Store and attend with the CPU kernels; every number they do not write stays NaN."""
    host, k_pages, v_pages = case.fb.host, case.pool.k[0].numpy(), case.pool.v[0].numpy()
    group, head_dim = case.q.shape[1] // case.k.shape[1], case.q.shape[2]
    store_kv(case.k.numpy(), case.v.numpy(), k_pages, v_pages, host.out_slots)
    out = np.full(case.q.shape, np.nan, dtype=np.float32)
    tiles = plan_tiles(np.diff(host.q_starts), case.k.shape[1], group)
    scratch = np.full((4, scratch_floats(group, head_dim)), np.nan, dtype=np.float32)
    no_scales = np.zeros((1, 1, 1), dtype=np.float32)
    batch = (
        case.q.numpy(),
        k_pages,
        v_pages,
        no_scales,
        no_scales,
        host.page_table,
        host.q_starts,
        host.seq_lens,
        tiles,
    )
    numbers = (np.float32(head_dim**-0.5), window, np.float32(soft_cap))
    if threads is None:
        paged_attention(*batch, scratch[0], out, *numbers)
    else:
        paged_attention_on(threads, *batch, scratch, out, *numbers)
    return torch.from_numpy(out)


def run_reference(case: PagedCase, window: int | None = None, soft_cap: float | None = None) -> torch.Tensor:
    fb = case.fb
    reference_store.store_kv(case.k, case.v, case.pool.k[0], case.pool.v[0], fb.out_slots)
    batch = (case.q, case.pool.k[0], case.pool.v[0], fb.page_table, fb.q_starts, fb.seq_lens)
    return reference_attention.paged_attention(*batch, case.q.shape[2] ** -0.5, window, soft_cap)


@pytest.mark.parametrize("page_size", [1, 4, 16, 32])
@pytest.mark.parametrize("shape", SHAPES)
def test_agrees_with_the_reference_on_ragged_rows_and_page_sizes(shape: str, page_size: int) -> None:
    """Free pages and page tails hold NaN, so reading one key too many shows."""
    prefix, extend = SHAPES[shape]
    arguments = (prefix, extend, page_size, 6, 2, 32)
    torch.testing.assert_close(
        run_kernel(paged_case(*arguments)), run_reference(paged_case(*arguments)), atol=2e-5, rtol=1e-5
    )


@pytest.mark.parametrize("head_dim", [16, 32, 64, 128])
@pytest.mark.parametrize(("heads", "kv_heads"), [(1, 1), (3, 3), (6, 2), (9, 3), (8, 2), (10, 2), (7, 1), (16, 1)])
def test_agrees_with_the_reference_for_head_layouts(heads: int, kv_heads: int, head_dim: int) -> None:
    arguments = ([0, 20, 5], [14, 1, 6], 16, heads, kv_heads, head_dim)
    torch.testing.assert_close(
        run_kernel(paged_case(*arguments)), run_reference(paged_case(*arguments)), atol=2e-5, rtol=1e-5
    )


def test_no_rows_do_nothing() -> None:
    assert run_kernel(paged_case([], [], 16, 4, 2, 16)).shape == (0, 4, 16)


@pytest.mark.parametrize("page_size", [1, 16, 32])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("window", [1, 5, 16, 200, 256, 257, 10_000])
def test_agrees_with_the_reference_behind_a_sliding_window(window: int, shape: str, page_size: int) -> None:
    """Windows that end inside, at and beyond a softmax block; some tiles have rows that see nothing of a block."""
    prefix, extend = SHAPES[shape]
    arguments = (prefix, extend, page_size, 6, 2, 32)
    got = run_kernel(paged_case(*arguments), window=window)
    torch.testing.assert_close(got, run_reference(paged_case(*arguments), window=window), atol=2e-5, rtol=1e-5)


def test_a_window_of_one_token_gives_its_value() -> None:
    case = paged_case([300], [20], 16, 2, 1, 16)
    torch.testing.assert_close(run_kernel(case, window=1), case.v.repeat_interleave(2, dim=1))


@pytest.mark.parametrize("soft_cap", [0.5, 2.0, 50.0])
@pytest.mark.parametrize("shape", SHAPES)
def test_agrees_with_the_reference_with_a_soft_cap(shape: str, soft_cap: float) -> None:
    prefix, extend = SHAPES[shape]
    for window in (0, 40):
        cases = [paged_case(prefix, extend, 16, 6, 2, 32) for _ in range(2)]
        for case in cases:
            case.q *= 20.0
        got = run_kernel(cases[0], window=window, soft_cap=soft_cap)
        expected = run_reference(cases[1], window=window or None, soft_cap=soft_cap)
        torch.testing.assert_close(got, expected, atol=5e-5, rtol=1e-5)


@pytest.mark.parametrize(("window", "soft_cap"), [(0, 0.0), (37, 0.0), (256, 0.0), (37, 3.0)])
@pytest.mark.parametrize("page_size", [1, 4, 16])
def test_a_row_is_the_same_to_the_bit_whatever_runs_beside_it(page_size: int, window: int, soft_cap: float) -> None:
    """Alone, in a batch and split into chunks of any size, one sequence gives one result."""
    whole = paged_case([0, 33], [300, 9], page_size, 6, 2, 32)
    expected = run_kernel(whole, window=window, soft_cap=soft_cap)[:300]
    for chunk in (1, 7, 64):
        got = torch.full_like(expected, float("nan"))
        for start in range(0, 300, chunk):
            size = min(chunk, 300 - start)
            part = paged_case([start], [size], page_size, 6, 2, 32)
            part.pool = whole.pool
            part.fb.host.page_table[:] = whole.fb.host.page_table[0, : part.fb.host.page_table.shape[1]]
            rows = slice(start, start + size)
            part.q, part.k, part.v = whole.q[rows], whole.k[rows], whole.v[rows]
            part.fb.host.out_slots[:] = whole.fb.host.out_slots[rows]
            got[rows] = run_kernel(part, window=window, soft_cap=soft_cap)
        assert torch.equal(got, expected), f"chunks of {chunk}"


@pytest.mark.parametrize("count", [2, 4])
def test_threads_change_no_bit(count: int) -> None:
    arguments = ([0, 100, 511], [70, 1, 2], 16, 9, 3, 64)
    threads = KernelThreads(count)
    if threads.count > 1:
        for window, soft_cap in ((0, 0.0), (50, 0.0), (0, 5.0)):
            one, many = (run_kernel(paged_case(*arguments), t, window, soft_cap) for t in (None, threads))
            assert torch.equal(one, many)


def test_large_scores_do_not_overflow() -> None:
    """The softmax subtracts the running maximum; scores of some thousands pick the largest key."""
    case = paged_case([20], [1], 16, 1, 1, 16)
    case.q *= 1000.0
    out = run_kernel(case)
    assert torch.isfinite(out).all()
    torch.testing.assert_close(out, run_reference(case), atol=1e-4, rtol=1e-4)


def test_nan_in_one_row_stays_in_that_row() -> None:
    clean = paged_case([10, 10], [3, 3], 16, 4, 2, 16)
    for window, soft_cap in ((0, 0.0), (0, 5.0), (4, 5.0)):
        broken = paged_case([10, 10], [3, 3], 16, 4, 2, 16)
        broken.q[1] = float("nan")
        out = run_kernel(broken, window=window, soft_cap=soft_cap)
        assert torch.isnan(out[1]).all()
        assert torch.equal(out[3:], run_kernel(clean, window=window, soft_cap=soft_cap)[3:])


@pytest.mark.parametrize("page_size", [1, 4, 16])
def test_storing_agrees_with_the_reference(page_size: int) -> None:
    case, other = (paged_case([5, 0], [4, 17], page_size, 4, 2, 16) for _ in range(2))
    store_kv(case.k.numpy(), case.v.numpy(), case.pool.k[0].numpy(), case.pool.v[0].numpy(), case.fb.host.out_slots)
    reference_store.store_kv(other.k, other.v, other.pool.k[0], other.pool.v[0], other.fb.out_slots)
    assert torch.equal(case.pool.k.nan_to_num(), other.pool.k.nan_to_num())
    assert torch.equal(case.pool.v.nan_to_num(), other.pool.v.nan_to_num())
