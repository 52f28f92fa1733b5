from __future__ import annotations

import pytest

from sglang_lite.errors import RequestError, UnsupportedError
from sglang_lite.runtime.config import EngineConfig


def test_defaults_work_and_names_are_sglangs() -> None:
    config = EngineConfig.from_server_args(
        None, {"page_size": 4, "chunked_prefill_size": 64, "schedule_policy": "fcfs"}
    )
    assert (config.page_size, config.chunked_prefill_size, config.schedule_policy) == (4, 64, "fcfs")
    assert config.to_dict()["page_size"] == 4


def test_settings_without_an_effect_here_are_taken() -> None:
    """A program written for a GPU server starts unchanged."""
    assert EngineConfig.from_server_args(None, {"cuda_graph_max_bs": 4, "log_level": "error"}) == EngineConfig()


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ({"page_sise": 4}, r"unknown \['page_sise'\]"),
        ({"page_size": 3}, "page_size=3, expected one of 1, 2"),
        ({"schedule_policy": "lru"}, "schedule_policy='lru', expected one of 'lpm', 'fcfs'"),
        ({"max_running_requests": 0}, "max_running_requests=0"),
        ({"chunked_prefill_size": 0}, "chunked_prefill_size=0"),
        ({"mem_fraction_static": 0}, "mem_fraction_static=0"),
        ({"dtype": "int3"}, "dtype='int3'"),
        ({"schedule_conservativeness": 0}, "schedule_conservativeness=0"),
    ],
)
def test_a_wrong_setting_is_named_with_what_is_allowed(args: dict[str, object], words: str) -> None:
    with pytest.raises(RequestError, match=words):
        EngineConfig.from_server_args(None, args)


def test_a_setting_whose_meaning_would_be_lost_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedError, match="tp_size is not supported: one process runs the whole model"):
        EngineConfig.from_server_args(None, {"tp_size": 2})
    assert EngineConfig.from_server_args(None, {"tp_size": 1}) == EngineConfig()


def test_mixed_chunk_is_a_batching() -> None:
    assert EngineConfig.from_server_args(None, {"enable_mixed_chunk": True}).batching == "mixed"
