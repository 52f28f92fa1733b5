"""Settings of the native step on the real model: smaller keys, guesses from earlier text. The outputs hold."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

from sglang_lite.runtime.engine.engine import Engine

pytestmark = [pytest.mark.model, pytest.mark.native]

PROMPTS = [
    "List: one apple, two pears, one apple, two pears, one apple,",
    "Water boils at a hundred degrees. Water boils at",
]
GREEDY = {"temperature": 0.0, "max_new_tokens": 40, "ignore_eos": True}


def outputs(**settings: Any) -> tuple[list[Any], dict[str, Any]]:
    with Engine(max_total_tokens=1024, num_threads=1, **settings) as engine:
        assert engine.get_server_info()["executor"] == "native"
        return engine.generate(PROMPTS, GREEDY, return_logprob=True), engine.get_server_info()


@pytest.fixture(scope="module")
def plain() -> tuple[list[Any], dict[str, Any]]:
    return outputs()


@pytest.mark.parametrize("overlap", [False, True])
def test_guesses_from_earlier_text_leave_greedy_output_as_it_is(plain: Any, overlap: bool) -> None:
    """Tokens and log-probabilities to the bit, and some guesses stood."""
    got, info = outputs(speculative_algorithm="NGRAM", disable_overlap_schedule=not overlap)
    for one, other in zip(got, plain[0], strict=True):
        assert one["output_ids"] == other["output_ids"]
        assert one["meta_info"]["output_token_logprobs"] == other["meta_info"]["output_token_logprobs"]
    assert info["speculated_tokens"] > 0


@pytest.mark.parametrize("speculative", [None, "NGRAM"])
def test_a_thread_for_the_forward_changes_no_output(plain: Any, speculative: str | None) -> None:
    """To the bit, and it ends with its engine."""
    got, info = outputs(overlap_thread=True, speculative_algorithm=speculative)
    assert info["disable_overlap_schedule"] is False
    for one, other in zip(got, plain[0], strict=True):
        assert one["output_ids"] == other["output_ids"]
        assert one["meta_info"]["output_token_logprobs"] == other["meta_info"]["output_token_logprobs"]
    assert "sglang-lite-runner" not in [thread.name for thread in threading.enumerate()]


@pytest.mark.parametrize(("name", "head_bytes"), [("fp16", 128), ("int8", 68)])
def test_smaller_keys_take_less_memory_and_change_little(plain: Any, name: str, head_bytes: int) -> None:
    got, info = outputs(kv_cache_dtype=name)
    assert info["kv_bytes"] * 256 == plain[1]["kv_bytes"] * head_bytes
    for one, other in zip(got, plain[0], strict=True):
        ours, theirs = (np.array([entry[0] for entry in r["meta_info"]["output_token_logprobs"]]) for r in (one, other))
        same = 1 + next(
            (i for i, (a, b) in enumerate(zip(one["output_ids"], other["output_ids"], strict=True)) if a != b),
            len(ours) - 1,
        )
        assert same >= 5
        assert np.abs(ours[:same] - theirs[:same]).max() < 0.5
        assert not np.array_equal(ours, theirs)
