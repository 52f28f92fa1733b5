"""Which tensors of a file are a layer's experts, and which rows of the module each one fills."""

from __future__ import annotations

import numpy as np
import pytest

from sglang_lite.runtime.model.config import ExpertsConfig
from sglang_lite.runtime.model.expert_names import (
    GGUF_EXPERTS,
    MIXTRAL_FOLDER_EXPERTS,
    QWEN3_MOE_FOLDER_EXPERTS,
    ExpertNames,
    expert_parts,
    layout_of,
)

ALL = (MIXTRAL_FOLDER_EXPERTS, QWEN3_MOE_FOLDER_EXPERTS, GGUF_EXPERTS)
EXPERTS = ExpertsConfig(count=3, per_token=2, intermediate_size=5, renormalise=True)
HIDDEN = 7


@pytest.mark.parametrize("layouts", ALL)
def test_each_layout_is_told_by_its_own_names(layouts: tuple[ExpertNames, ...]) -> None:
    for layout in layouts:
        tensors = {part.source for part in expert_parts(layout, EXPERTS, HIDDEN, "at.4.", "")}
        assert layout_of(layouts, "at.4.", tensors) is layout
    assert layout_of(layouts, "at.4.", ()) is layouts[0]


@pytest.mark.parametrize("layout", [layout for layouts in ALL for layout in layouts])
def test_every_number_of_every_matrix_is_filled_once(layout: ExpertNames) -> None:
    filled = {name: np.zeros((3, rows), dtype=int) for name, rows in (("gate_up", 10), ("down", HIDDEN))}
    for part in expert_parts(layout, EXPERTS, HIDDEN, "", ""):
        if part.target == "router":
            assert part.shape == (3, HIDDEN)
            continue
        rows = filled[part.target]
        assert part.shape[-1] == (HIDDEN if part.target == "gate_up" else 5)
        if len(part.shape) == 3:
            rows[:, part.first : part.first + part.shape[1]] += 1
        else:
            rows.reshape(-1)[part.first : part.first + part.shape[0]] += 1
    assert all((rows == 1).all() for rows in filled.values())
