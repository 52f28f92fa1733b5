"""All attention kernels of the GPU, and the KV store, without a GPU: in Triton's interpreter, in one process."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from sglang_lite.kernels.reference.cascade_attention import cascade_attention
from sglang_lite.kernels.reference.decode_attention import decode_attention
from sglang_lite.kernels.reference.extend_attention import extend_attention
from tests.kernels.triton.conftest import run_module


@pytest.mark.triton
def test_the_kernels_are_their_definitions(tmp_path: Path) -> None:
    told = run_module("attention_cases", cache=tmp_path)
    assert [line.rpartition(":")[0] for line in told] == ["store_kv", "decode", "decode bits", "cascade", "extend"]


def test_the_definition_in_two_parts_is_that_in_one() -> None:
    """The merge of a shared prefix with the rest, with and without a soft cap."""
    k, v = torch.randn(2, 12, 2, 4, 8)
    table = torch.tensor([[3, 1, 5, 0], [3, 1, 7, 8]], dtype=torch.int32)
    lens = torch.tensor([9, 16], dtype=torch.int32)
    q = torch.randn(2, 6, 8)
    for cap in (None, 1.5):
        whole = decode_attention(q, k, v, table, lens, 0.4, soft_cap=cap)
        torch.testing.assert_close(cascade_attention(q, k, v, table, lens, 2, 0.4, cap), whole)


def test_a_mask_hides_new_tokens_from_each_other_and_no_cached_one() -> None:
    """Two drafts after one token: each as if the other were not there."""
    k, v = torch.randn(2, 4, 1, 4, 8)
    q = torch.randn(3, 2, 8)
    table, starts = torch.tensor([[2, 3]], dtype=torch.int32), torch.tensor([0, 3], dtype=torch.int32)
    lens = torch.tensor([6], dtype=torch.int32)
    seen = torch.tensor([[1, 0, 0], [1, 1, 0], [1, 0, 1]], dtype=torch.bool)
    got = extend_attention(q, k, v, table, starts, lens, 0.3, mask=seen.flatten(), mask_starts=torch.tensor([0]))
    plain = extend_attention(q, k, v, table, starts, lens, 0.3)
    assert torch.equal(got[:2], plain[:2])
    unmasked = extend_attention(q, k, v, table, starts, lens, 0.3, mask=seen.flatten(), mask_starts=torch.tensor([-1]))
    assert torch.equal(unmasked, plain)
    k[3, :, 0], v[3, :, 0] = k[3, :, 1].clone(), v[3, :, 1].clone()
    alone = extend_attention(q[1:], k, v, table, torch.tensor([0, 2]), lens - 1, 0.3)
    torch.testing.assert_close(got[2], alone[1])
