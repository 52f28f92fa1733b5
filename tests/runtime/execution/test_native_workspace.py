from __future__ import annotations

import numpy as np
import pytest

import tests.support.kernel_cache  # noqa: F401
from sglang_lite.kernels.cpu import llama_step as step
from sglang_lite.runtime.execution.native_workspace import Workspace
from tests.runtime.execution.support import TINY

pytestmark = pytest.mark.native


def test_arrays_do_not_overlap_and_stay_until_more_is_needed() -> None:
    workspace, block = Workspace(TINY), np.zeros(step.LAYER_TABLE, dtype=np.int64)
    workspace.enter(block, 10)
    small = block.copy()
    workspace.enter(block, 64)
    assert np.array_equal(block, small)
    at = np.sort(block[[step.NORMED, step.A, step.Q, step.ATTENDED, step.B, step.GATED, step.C]])
    assert (np.diff(at) >= 64 * TINY.hidden_size).all()
    assert (at % 64 == 0).all()
    workspace.enter(block, 65)
    assert not np.array_equal(block, small)
