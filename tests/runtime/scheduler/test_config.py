from __future__ import annotations

import pytest

from sglang_lite.errors import RequestError
from sglang_lite.runtime.scheduler.config import SchedulerConfig
from tests.support.scheduler_harness import Harness, config


@pytest.mark.parametrize(
    ("field", "value", "allowed"),
    [
        ("context_length", 0, "at least 1"),
        ("vocab_size", 0, "at least 1"),
        ("eos_ids", frozenset({99}), "ids below"),
        ("max_running_requests", 0, "at least 1"),
        ("chunked_prefill_size", 0, "at least one page"),
        ("max_prefill_tokens", 0, "at least 1"),
        ("schedule_policy", "dfs", r"'lpm', 'fcfs', 'dfs-weight', 'lof', 'random', 'priority'"),
        ("batching", "both", r"'prefill-first', 'mixed', 'decode-first'"),
        ("schedule_conservativeness", 0.0, "above 0"),
        ("scan_window", 0, "at least 1"),
        ("min_shared_tokens", 0, "at least 1"),
        ("ageing_tokens", -1, "at least 0"),
        ("max_queued_requests", 0, "at least 1, or None"),
        ("launch_ahead", True, "False where overlap is off"),
    ],
)
def test_a_wrong_value_is_refused_by_name_with_what_is_allowed(field: str, value: object, allowed: str) -> None:
    with pytest.raises(RequestError, match=rf"{field}=.*{allowed}"):
        config(**{field: value})


def test_the_defaults_are_accepted() -> None:
    assert SchedulerConfig(context_length=8, vocab_size=8).batching == "prefill-first"


def test_a_chunk_smaller_than_a_page_is_refused() -> None:
    with pytest.raises(RequestError, match="chunked_prefill_size=3, expected at least one page of 4"):
        Harness(config(chunked_prefill_size=3))
