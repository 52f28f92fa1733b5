from __future__ import annotations

import numpy as np
import pytest

from sglang_lite.runtime.attention.forward_batch import ForwardBatch


def build(**changes: object) -> ForwardBatch:
    arguments: dict[str, object] = {
        "input_ids": np.array([7, 8, 9, 5]),
        "extend_lens": np.array([3, 1]),
        "prefix_lens": np.array([2, 4]),
        "page_table": np.array([[6, 2], [3, 5]]),
        "page_size": 4,
    }
    return ForwardBatch.build(**(arguments | changes))  # pyright: ignore[reportArgumentType]


def test_positions_starts_and_slots_follow_from_lengths_and_pages() -> None:
    fb = build()
    assert fb.positions.tolist() == [2, 3, 4, 4]
    assert fb.q_starts.tolist() == [0, 3, 4]
    assert fb.seq_lens.tolist() == [5, 5]
    assert fb.out_slots.tolist() == [6 * 4 + 2, 6 * 4 + 3, 2 * 4, 5 * 4]
    assert (fb.num_tokens, fb.num_rows) == (4, 2)


def test_tensors_share_memory_with_the_host_copies() -> None:
    fb = build()
    assert fb.page_table.data_ptr() == fb.host.page_table.ctypes.data
    assert fb.out_slots.data_ptr() == fb.host.out_slots.ctypes.data


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"extend_lens": np.array([4, 0])}, "every row needs a new token"),
        ({"extend_lens": np.array([2, 1])}, "sum to 3, there are 4"),
        ({"prefix_lens": np.array([2])}, "rows differ"),
        ({"prefix_lens": np.array([2, 8])}, "position 8 lies beyond the page table"),
    ],
)
def test_a_batch_that_contradicts_itself_is_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        build(**changes)
