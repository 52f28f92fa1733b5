from __future__ import annotations

import pytest
import torch

from sglang_lite.runtime.attention.kv_pool import KvPool


def noisy_pool(page_size: int = 4, *, token_major: bool = False) -> KvPool:
    pool = KvPool(num_layers=2, num_pages=5, num_kv_heads=2, head_dim=16, page_size=page_size, token_major=token_major)
    pool.k.normal_()
    pool.v.normal_()
    return pool


def test_pages_have_transposed_keys_and_aligned_memory() -> None:
    pool = noisy_pool()
    assert pool.k.shape == (2, 5, 2, 16, 4)
    assert pool.v.shape == (2, 5, 2, 4, 16)
    assert pool.k.data_ptr() % 64 == 0 == pool.v.data_ptr() % 64
    assert KvPool.bytes_per_page(2, 2, 16, 4) * 5 == pool.k.nbytes + pool.v.nbytes


def test_keys_of_a_token_major_pool_lie_as_its_values() -> None:
    pool = KvPool(2, 5, 2, 16, 4, dtype=torch.bfloat16, token_major=True)
    assert pool.k.shape == pool.v.shape == (2, 5, 2, 4, 16)
    assert KvPool.bytes_per_page(2, 2, 16, 4, 2) * 5 == pool.k.nbytes + pool.v.nbytes


@pytest.mark.parametrize("token_major", [False, True])
def test_transposed_keys_are_the_pool_itself(token_major: bool) -> None:
    pool = noisy_pool(token_major=token_major)
    keys = pool.transposed_keys(1)
    assert keys.shape == (5, 2, 16, 4)
    keys[3, 1, 5, 2] = 7.0
    assert float(pool.k[(1, 3, 1, 2, 5) if token_major else (1, 3, 1, 5, 2)]) == 7.0


def test_a_copy_within_a_token_major_pool_is_that_within_the_other() -> None:
    """A swap of page heads: the same tokens move in both layouts."""
    pool, other = noisy_pool(), noisy_pool(token_major=True)
    other.k.copy_(pool.k.transpose(-1, -2))
    other.v.copy_(pool.v)
    for each in (pool, other):
        each.copy_slots([(1, 2, 3), (2, 1, 2)])
    assert torch.equal(other.k.transpose(-1, -2), pool.k)
    assert torch.equal(other.v, pool.v)


def test_numbers_may_be_float16_in_half_the_memory() -> None:
    pool = KvPool(2, 5, 2, 16, 4, dtype=torch.float16)
    assert pool.k.dtype == pool.v.dtype == torch.float16
    assert KvPool.bytes_per_page(2, 2, 16, 4, 2) * 5 == pool.k.nbytes + pool.v.nbytes
    pool.v[:, 1].normal_()
    pool.copy_slots([(1, 3, 3)])
    assert torch.equal(pool.v[:, 3, :, :3], pool.v[:, 1, :, :3])


def test_numbers_may_be_int8_with_a_scale_for_each_token_and_head() -> None:
    pool = KvPool(2, 5, 2, 16, 4, dtype=torch.int8)
    parts = (pool.k, pool.v, pool.k_scales, pool.v_scales)
    assert pool.k_scales.shape == pool.v_scales.shape == (2, 5, 2, 4)
    assert KvPool.bytes_per_page(2, 2, 16, 4, 1) * 5 == sum(part.nbytes for part in parts)
    pool.k_scales[:, 1].normal_()
    pool.v_scales[:, 1].normal_()
    pool.copy_slots([(1, 3, 3)])
    for scales in (pool.k_scales, pool.v_scales):
        assert torch.equal(scales[:, 3, :, :3], scales[:, 1, :, :3])
        assert not scales[:, 3, :, 3:].any()


def test_a_copy_takes_the_head_of_a_page_in_every_layer_and_nothing_else() -> None:
    pool = noisy_pool()
    k, v = pool.k.clone(), pool.v.clone()
    pool.copy_slots([(1, 3, 3)])
    assert torch.equal(pool.k[:, 3, :, :, :3], k[:, 1, :, :, :3])
    assert torch.equal(pool.v[:, 3, :, :3], v[:, 1, :, :3])
    assert torch.equal(pool.k[:, 3, :, :, 3:], k[:, 3, :, :, 3:])
    others = [0, 1, 2, 4]
    assert torch.equal(pool.k[:, others], k[:, others])
    assert torch.equal(pool.v[:, others], v[:, others])


@pytest.mark.parametrize("page_size", [1, 4, 16])
def test_all_sources_are_read_before_any_destination_is_written(page_size: int) -> None:
    """A swap and a chain: page 2 is source and destination at once."""
    pool = noisy_pool(page_size)
    k, v = pool.k.clone(), pool.v.clone()
    pool.copy_slots([(1, 2, page_size), (2, 1, page_size), (2, 3, page_size)])
    assert torch.equal(pool.k[:, [2, 1, 3]], k[:, [1, 2, 2]])
    assert torch.equal(pool.v[:, [2, 1, 3]], v[:, [1, 2, 2]])


@pytest.mark.parametrize("copy", [(0, 1, 1), (1, 0, 1), (1, 5, 1), (1, 2, 5), (1, 2, 0)])
def test_copies_from_or_to_the_sink_or_out_of_range_are_refused(copy: tuple[int, int, int]) -> None:
    with pytest.raises(AssertionError, match="pages are 1"):
        noisy_pool().copy_slots([copy])


def test_no_copies_do_nothing() -> None:
    noisy_pool().copy_slots([])
