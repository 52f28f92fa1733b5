"""The GPU's token mask without a GPU, in Triton's interpreter."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kernels.triton.conftest import run_module

pytestmark = pytest.mark.triton


def test_it_is_the_definition(tmp_path: Path) -> None:
    assert run_module("token_mask_cases", cache=tmp_path) == ["40 cases"]
