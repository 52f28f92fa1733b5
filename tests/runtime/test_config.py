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
    assert (
        EngineConfig.from_server_args(None, {"num_continuous_decode_steps": 4, "log_level": "error"}) == EngineConfig()
    )


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
        (
            {"sampling_backend": "xformers"},
            "sampling_backend='xformers', expected one of 'auto', 'flashinfer', 'pytorch'",
        ),
        ({"cuda_graph_prefill": 2}, "cuda_graph_prefill=2"),
        ({"overlap_thread": 1.5}, "overlap_thread=1.5, expected one of True, False"),
        (
            {"overlap_thread": True, "disable_overlap_schedule": True},
            "overlap_thread=True, expected False beside disable_overlap_schedule=True",
        ),
        ({"overlap_thread": True, "device": "cuda"}, "overlap_thread=True, expected False on device='cuda'"),
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


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ({"dtype": "bfloat16"}, "dtype='bfloat16', expected one of 'auto', 'float32' on device='cpu'"),
        ({"device": "tpu"}, "device='tpu', expected one of 'cpu', 'cuda', 'auto'"),
        (
            {"device": "cuda", "attention_backend": "cpu"},
            "attention_backend='cpu', expected one of 'auto', 'flashinfer'",
        ),
        ({"attention_backend": "triton"}, "attention_backend='triton', expected one of 'auto', 'cpu'"),
        ({"kv_cache_dtype": "bf16"}, "kv_cache_dtype='bf16'"),
        ({"device": "cuda", "quantization": "int8"}, "quantization='int8', expected None on device='cuda'"),
        ({"device": "cuda", "cuda_graph_bs": []}, "cuda_graph_bs=.*numbers of rows"),
        ({"device": "cuda", "cuda_graph_max_bs": 0}, "cuda_graph_max_bs=0"),
        (
            {"device": "cuda", "enable_deterministic_inference": True, "attention_backend": "flashinfer"},
            "attention_backend='flashinfer', expected 'triton'",
        ),
    ],
)
def test_each_device_has_choices_of_its_own(args: dict[str, object], words: str) -> None:
    with pytest.raises(RequestError, match=words):
        EngineConfig.from_server_args(None, args)


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ({"speculative_algorithm": "DRAFT"}, "speculative_draft_model_path=None, expected a model"),
        (
            {"speculative_algorithm": "NGRAM", "speculative_draft_model_path": "m"},
            "speculative_draft_model_path='m', expected None",
        ),
        ({"speculative_draft_model_path": "m"}, "expected None beside speculative_algorithm=None"),
        ({"speculative_algorithm": "EAGLE"}, "speculative_algorithm='EAGLE', expected one of None, 'NGRAM', 'DRAFT'"),
        (
            {
                "speculative_algorithm": "DRAFT",
                "speculative_draft_model_path": "m",
                "device": "cuda",
                "disable_overlap_schedule": False,
            },
            "disable_overlap_schedule=False, expected None or True",
        ),
    ],
)
def test_settings_of_guesses_must_fit_together(args: dict[str, object], words: str) -> None:
    with pytest.raises(RequestError, match=words):
        EngineConfig.from_server_args(None, args)


def test_a_draft_model_is_known_by_sglangs_name() -> None:
    settings = {"speculative_algorithm": "STANDALONE", "speculative_draft_model_path": "m"}
    assert EngineConfig.from_server_args(None, settings).speculative_algorithm == "DRAFT"


def test_other_names_of_a_type_are_known() -> None:
    """As SGLang and torch spell them."""
    settings = {"device": "cuda", "dtype": "half", "kv_cache_dtype": "bfloat16", "cuda_graph_bs": [4, 1]}
    config = EngineConfig.from_server_args(None, settings)
    assert (config.dtype, config.kv_cache_dtype, config.cuda_graph_bs) == ("float16", "bf16", (4, 1))
