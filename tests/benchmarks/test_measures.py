"""The measures without peers: how distributions are compared, where a step's time goes, what bounds it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.bounds import best_rate, shares
from benchmarks.cli import main
from benchmarks.inside import ModelInside
from benchmarks.quality import Comparison, compare
from benchmarks.step_parts import NATIVE, rest_share, step_times
from sglang_lite import Engine


def test_agreement_is_that_of_the_formulas() -> None:
    """Two tokens of equal chance beside 3 to 1: all three numbers follow by hand."""
    comparison = Comparison()
    even = np.zeros((1, 2), dtype=np.float32)
    uneven = np.array([[math.log(3.0), 0.0]], dtype=np.float32)
    comparison.add(even, uneven, np.array([1]))
    found = comparison.result()
    assert found.reference_ppl == pytest.approx(2.0)
    assert found.ppl == pytest.approx(4.0)
    assert found.ppl_change == pytest.approx(1.0)
    assert found.kl == pytest.approx(0.5 * math.log(0.5 / 0.75) + 0.5 * math.log(0.5 / 0.25), abs=1e-6)
    assert found.equal == 1.0
    comparison.add(uneven, -uneven, np.array([0]))
    assert comparison.result().equal == 0.5


@pytest.mark.model
def test_a_model_agrees_with_itself(engine: Engine) -> None:
    """And its perplexity on English is that of a language model, so positions and truths are not shifted."""
    inside = ModelInside.of(engine)
    engine.flush_cache()
    ids = engine.tokenizer.encode("The capital of France is Paris. The capital of Italy is Rome.", parse_special=False)
    found = compare(inside, inside, ids)
    assert (found.kl, found.equal, found.ppl_change) == (0.0, 1.0, 0.0)
    assert found.tokens == len(ids) - 1
    assert 1.0 < found.ppl < 30.0


@pytest.mark.model
def test_the_parts_of_a_step_are_found_in_a_real_engine(engine: Engine) -> None:
    engine.flush_cache()
    params: dict[str, Any] = {"max_new_tokens": 5, "temperature": 0, "ignore_eos": True}
    parts = step_times(engine, ["One two three four", "Five six seven eight"], params, 2)
    assert parts["steps"] == 4, "the first token of each comes from the prefill"
    assert all(
        parts[name] > 0 for name in ("scheduler", "radix tree and pages", NATIVE, "sampling", "text and replies")
    )
    assert parts["grammar"] == 0
    assert 0 < rest_share(parts) < 1


def test_shares_are_what_is_reached_of_what_is_possible() -> None:
    found = {
        "decode": 50.0,
        "engine_decode": 40.0,
        "decode_bound": 100.0,
        "prefill": 60.0,
        "product_tokens_per_s": 80.0,
    }
    assert shares(found) == {"decode": 0.5, "engine_decode": 0.4, "prefill": 0.75}


def test_the_best_rate_leaves_out_the_first_run() -> None:
    calls: list[int] = []
    assert best_rate(10.0, lambda: calls.append(1)) > 0
    assert len(calls) == 8


def test_unknown_names_are_refused_with_the_known_ones(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["W9"], ["W1", "--peers", "nobody"]):
        with pytest.raises(SystemExit):
            main([*arguments, "--out", str(tmp_path)])
    shown = capsys.readouterr().err
    assert "unknown 'W9', known are W1, W2" in shown
    assert "unknown ['nobody'], known are llama.cpp, hf" in shown
