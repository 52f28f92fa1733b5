from __future__ import annotations

import numpy as np

from sglang_lite.runtime.scheduler.plan import RowPlan


def test_a_row_s_lengths_add_up() -> None:
    row = RowPlan("r", (5, 6, 7), 4, np.array([1, 2], np.int32))
    assert (row.extend_len, row.seq_len) == (3, 7)
