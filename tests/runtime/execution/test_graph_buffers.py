"""The buffers of captured graphs: what a batch leaves in them, and that they stay where they are."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest
import torch

from sglang_lite.runtime.attention.forward_batch import ForwardBatch, HostBatch
from sglang_lite.runtime.execution.graph_buffers import GraphBuffers

PAGE_SIZE = 4
WIDTH = 6


def batch(seq_lens: list[int], row_tokens: int = 1, seed: int = 0) -> ForwardBatch:
    """Rows of these lengths on pages of their own, with `row_tokens` new tokens each."""
    rng = np.random.default_rng(seed)
    rows = len(seq_lens)
    needed = [-(-n // PAGE_SIZE) for n in seq_lens]
    table = np.zeros((rows, max(needed)), dtype=np.int32)
    for row, count in enumerate(needed):
        table[row, :count] = rng.integers(1, 100, count)
    extend = np.full(rows, row_tokens)
    return ForwardBatch.build(
        rng.integers(1, 50, rows * row_tokens), extend, np.array(seq_lens) - extend, table, PAGE_SIZE
    )


def padded(seq_lens: list[int], bucket: int, row_tokens: int = 1, seed: int = 0) -> ForwardBatch:
    """The same batch made anew, with rows on the sink page, and with a page table of full width."""
    fb = batch(seq_lens, row_tokens, seed)
    more = bucket - fb.num_rows
    table = np.zeros((bucket, WIDTH), dtype=np.int32)
    table[: fb.num_rows, : fb.page_table.shape[1]] = fb.host.page_table
    ids = np.concatenate((fb.input_ids.numpy(), np.zeros(more * row_tokens, dtype=np.int64)))
    prefix = np.concatenate((fb.host.prefix_lens, np.zeros(more, dtype=np.int64)))
    whole = ForwardBatch.build(ids, np.full(bucket, row_tokens), prefix, table, PAGE_SIZE)
    whole.out_slots[fb.num_tokens :] = 0
    return whole


def check_equal(got: ForwardBatch, expected: ForwardBatch) -> None:
    for name in ("input_ids", "positions", "q_starts", "seq_lens", "prefix_lens", "page_table", "out_slots"):
        value, wanted = getattr(got, name), getattr(expected, name)
        assert value.dtype == wanted.dtype
        assert torch.equal(value, wanted), f"{name}: {value.tolist()}, expected {wanted.tolist()}"


@pytest.mark.parametrize("row_tokens", [1, 3])
def test_a_batch_after_any_other_is_as_if_it_came_first(row_tokens: int) -> None:
    """Nothing of a longer or wider batch stays behind."""
    buffers = GraphBuffers(8, WIDTH, PAGE_SIZE, "cpu", row_tokens)
    steps = [
        ([5, 24, 3], 4),
        ([9], 1),
        ([3, 4, 5, 6, 7, 8, 9, 24], 8),
        ([4, 4], 8),
        ([24] * 5, 8),
        ([3], 8),
        ([7, 8], 2),
    ]
    for seed, (seq_lens, bucket) in enumerate(steps):
        got = buffers.fill(batch(seq_lens, row_tokens, seed), bucket)
        check_equal(got, padded(seq_lens, bucket, row_tokens, seed))


@pytest.mark.parametrize("row_tokens", [1, 3])
def test_the_side_on_the_cpu_says_the_same_as_the_tensors(row_tokens: int) -> None:
    buffers = GraphBuffers(8, WIDTH, PAGE_SIZE, "cpu", row_tokens)
    got = buffers.fill(batch([5, 9, 3], row_tokens), 8)
    for field in fields(HostBatch):
        host, tensor = getattr(got.host, field.name), getattr(got, field.name).numpy()
        assert host.dtype == tensor.dtype
        if field.name == "page_table":
            assert not tensor[:, host.shape[1] :].any()
            tensor = tensor[:, : host.shape[1]]
        assert np.array_equal(host, tensor)


def test_every_batch_of_a_bucket_lies_in_the_same_memory() -> None:
    buffers = GraphBuffers(8, WIDTH, PAGE_SIZE, "cpu")
    first = buffers.padding(4)
    for seq_lens in ([5, 24, 3], [9], [1, 2, 3, 4]):
        now = buffers.fill(batch(seq_lens), 4)
        for name in ("input_ids", "positions", "q_starts", "seq_lens", "prefix_lens", "page_table", "out_slots"):
            a, b = getattr(first, name), getattr(now, name)
            assert (a.data_ptr(), a.shape, a.stride()) == (b.data_ptr(), b.shape, b.stride())


def test_padding_touches_the_sink_page_only() -> None:
    buffers = GraphBuffers(8, WIDTH, PAGE_SIZE, "cpu")
    buffers.fill(batch([24] * 8), 8)
    got = buffers.padding(8)
    assert not got.page_table.any()
    assert not got.out_slots.any()
    assert got.seq_lens.tolist() == [1] * 8


@pytest.mark.parametrize(("seq_lens", "bucket"), [([1] * 5, 4), ([1] * 9, 9), ([25], 1)])
def test_a_batch_that_does_not_fit_is_refused(seq_lens: list[int], bucket: int) -> None:
    with pytest.raises(AssertionError, match="does not fit"):
        GraphBuffers(8, WIDTH, PAGE_SIZE, "cpu").fill(batch(seq_lens), bucket)


def test_their_memory_is_counted() -> None:
    few, many = GraphBuffers(1, WIDTH, PAGE_SIZE, "cpu"), GraphBuffers(100, WIDTH, PAGE_SIZE, "cpu")
    assert few.num_bytes == 3 * 8 + 2 * 4 + 2 * 4 + WIDTH * 4
    assert many.num_bytes > 90 * few.num_bytes / 1.1
