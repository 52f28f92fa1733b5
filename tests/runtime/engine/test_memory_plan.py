"""What a model would take and what fits, from headers of files whose sizes are known."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from sglang_lite.errors import ModelLoadError, RequestError
from sglang_lite.runtime.config import EngineConfig
from sglang_lite.runtime.engine.memory_plan import ModelSizes, plan_for, plan_memory, read_sizes
from tests.support.tiny_gguf import TinyLlama, gguf_tensors, make_model, write_gguf

GIB = 1 << 30


@pytest.fixture(scope="module")
def sizes(tmp_path_factory: pytest.TempPathFactory) -> ModelSizes:
    """A tiny Llama: context 512, 2 layers, 2 KV heads of 16."""
    tiny = TinyLlama()
    path = tmp_path_factory.mktemp("plan") / "tiny.gguf"
    return read_sizes(write_gguf(path, tiny, gguf_tensors(make_model(tiny), tiny)))


def test_sizes_come_from_the_header(sizes: ModelSizes) -> None:
    tiny = TinyLlama()
    expected = sum(tensor.size for tensor in gguf_tensors(make_model(tiny), tiny).values())
    assert sizes.num_weights == expected
    assert 0 < sizes.stored_bytes <= 4 * expected
    assert sizes.config.max_position == 512


def test_a_token_takes_keys_and_values_of_all_layers(sizes: ModelSizes) -> None:
    plan = plan_for(EngineConfig(max_total_tokens=4096), sizes, GIB)
    assert plan.kv_bytes_per_token == 2 * 4 * 2 * 2 * 16
    assert (plan.pool_tokens, plan.pool_bytes) == (4096, 4096 * plan.kv_bytes_per_token)
    assert (plan.context_length, plan.num_requests, plan.longest) == (512, 8, 512)
    assert any("8 requests of 512 tokens" in line for line in plan.lines())


def test_keys_and_values_as_float16_take_half_the_memory(sizes: ModelSizes) -> None:
    full, half = (plan_for(EngineConfig(kv_cache_dtype=name), sizes, GIB) for name in ("auto", "fp16"))
    assert half.kv_bytes_per_token * 2 == full.kv_bytes_per_token
    tight = 1000 * 2 * 4 * 2 * 2 * 16 * 10
    assert plan_for(EngineConfig(kv_cache_dtype="fp16"), sizes, tight).pool_tokens == 125 * 16
    assert plan_for(EngineConfig(kv_cache_dtype="fp32"), sizes, tight).pool_tokens == 62 * 16


def test_the_share_of_the_memory_sizes_the_pool_up_to_what_can_run(sizes: ModelSizes) -> None:
    token = 2 * 4 * 2 * 2 * 16
    free = 1000 * token * 10  # a tenth holds 1000 tokens, that is 62 pages
    assert plan_for(EngineConfig(), sizes, free).pool_tokens == 62 * 16
    assert plan_for(EngineConfig(max_running_requests=1), sizes, GIB).pool_tokens == 512


def test_where_the_share_holds_no_request_half_of_the_memory_may(sizes: ModelSizes) -> None:
    token = 2 * 4 * 2 * 2 * 16
    assert plan_for(EngineConfig(), sizes, 2 * 512 * token).pool_tokens == 512
    with pytest.raises(RequestError, match="one request of 512 tokens needs"):
        plan_for(EngineConfig(), sizes, 2 * 512 * token - 1)


def test_a_smaller_pool_is_taken_when_asked_for_and_says_what_is_refused(sizes: ModelSizes) -> None:
    plan = plan_for(EngineConfig(max_total_tokens=100), sizes, GIB)
    assert (plan.pool_tokens, plan.num_requests, plan.longest) == (96, 0, 96)
    assert any("more than 96 tokens" in line and "could hold 512" in line for line in plan.lines())
    with pytest.raises(RequestError, match="no room for one page"):
        plan_for(EngineConfig(max_total_tokens=15), sizes, GIB)
    with pytest.raises(RequestError, match="at most 512"):
        plan_for(EngineConfig(context_length=513), sizes, GIB)


def test_a_folder_is_planned_by_its_headers(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(
        '{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, '
        '"num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 100, "max_position_embeddings": 128, "rms_norm_eps": 1e-5, '
        '"rope_theta": 10000.0, "hidden_act": "silu", "tie_word_embeddings": true}'
    )
    save_file({"a": torch.zeros(3, 5), "b": torch.zeros(7, dtype=torch.bfloat16)}, tmp_path / "model.safetensors")
    found = read_sizes(tmp_path)
    assert (found.num_weights, found.stored_bytes) == (22, 15 * 4 + 7 * 2)
    assert plan_memory(EngineConfig(model_path=str(tmp_path))).context_length == 128


def test_a_missing_model_is_told(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError):
        plan_memory(EngineConfig(model_path=str(tmp_path / "nowhere.gguf")))
