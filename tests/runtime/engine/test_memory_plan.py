"""What a model would take and what fits, from headers of files whose sizes are known."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from gguf import GGMLQuantizationType
from safetensors.torch import save_file

from sglang_lite.errors import ModelLoadError, RequestError
from sglang_lite.runtime.config import EngineConfig
from sglang_lite.runtime.engine.device_memory import device_weight_bytes, reserve_bytes
from sglang_lite.runtime.engine.memory_plan import MemoryPlan, plan_for, plan_memory, plan_on_device
from sglang_lite.runtime.engine.model_sizes import ModelSizes, read_sizes
from tests.support.host_device import MEMORY, host_placement
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
    full, half, int8 = (plan_for(EngineConfig(kv_cache_dtype=name), sizes, GIB) for name in ("auto", "fp16", "int8"))
    head = sizes.config.head_dim
    assert int8.kv_bytes_per_token * 4 * head == full.kv_bytes_per_token * (head + 4)
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


def test_a_draft_model_shares_the_memory_of_keys_and_values(sizes: ModelSizes) -> None:
    """Both pools have the same pages: as its own draft, the model gets half of them from the same share."""
    token = 2 * 4 * 2 * 2 * 16
    free = 1000 * token * 10
    alone, drafted = plan_for(EngineConfig(), sizes, free), plan_for(EngineConfig(), sizes, free, sizes)
    assert (alone.draft_model_path, alone.draft_kv_bytes_per_token, alone.draft_weight_bytes) == (None, 0, 0)
    assert (drafted.kv_bytes_per_token, drafted.draft_kv_bytes_per_token) == (2 * token, token)
    assert (drafted.pool_tokens, drafted.pool_bytes) == (31 * 16 + 16, 512 * 2 * token)
    assert drafted.draft_weight_bytes == sizes.stored_bytes
    assert any(line.startswith("draft ") and str(sizes.path) in line for line in drafted.lines())
    assert not any(line.startswith("draft ") for line in alone.lines())


def test_on_a_gpu_the_draft_models_weights_are_counted(sizes: ModelSizes) -> None:
    placement = host_placement(EngineConfig(), dtype=torch.bfloat16, kv_dtype=torch.bfloat16)
    alone, drafted = plan_on_device(placement, sizes), plan_on_device(placement, sizes, draft=sizes)
    assert drafted.device_weight_bytes == 2 * alone.device_weight_bytes == 2 * drafted.draft_weight_bytes
    assert drafted.kv_bytes_per_token == 2 * alone.kv_bytes_per_token
    assert drafted.pool_tokens < alone.pool_tokens


def test_plan_memory_reads_the_draft_model(sizes: ModelSizes) -> None:
    path = str(sizes.path)
    draft = {"speculative_algorithm": "DRAFT", "speculative_draft_model_path": path}
    plan = plan_memory(EngineConfig.from_server_args(path, draft))
    assert plan.draft_model_path == path
    assert plan.to_dict()["draft_weight_bytes"] == sizes.stored_bytes


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


def device_plan(sizes: ModelSizes, weights: int | None = None, **settings: Any) -> MemoryPlan:
    fraction = settings.get("mem_fraction_static")
    placement = host_placement(EngineConfig(**settings), dtype=torch.bfloat16, kv_dtype=torch.bfloat16)
    return plan_on_device(replace(placement, mem_fraction=fraction or 0.88, keeps_q4=True), sizes, weights)


def test_on_a_gpu_weights_and_pool_take_the_share_together(sizes: ModelSizes) -> None:
    """As SGLang means `mem_fraction_static`: what is left is for activations and graphs."""
    plan = device_plan(sizes, mem_fraction_static=0.5)
    token = 2 * 2 * 2 * 2 * 16
    assert plan.device_weight_bytes == 2 * sizes.num_weights
    pages = (MEMORY // 2 - 2 * sizes.num_weights) // (16 * token)
    assert (plan.kv_bytes_per_token, plan.pool_tokens) == (token, 16 * pages)
    assert plan.reserve_bytes == MEMORY - plan.device_weight_bytes - plan.pool_bytes
    assert MEMORY // 2 <= plan.reserve_bytes < MEMORY // 2 + 16 * token
    lines = "\n".join(plan.lines())
    assert "on the device" in lines
    assert "free before loading on main memory; 1.0 GiB of it left to activations and graphs" in lines


def test_measured_weights_go_before_estimated_ones(sizes: ModelSizes) -> None:
    plan = device_plan(sizes, weights=MEMORY // 4, mem_fraction_static=0.5)
    assert plan.device_weight_bytes == MEMORY // 4
    assert abs(plan.pool_bytes - MEMORY // 4) < 16 * plan.kv_bytes_per_token


def test_where_a_step_needs_more_than_the_default_share_leaves_the_pool_is_smaller(sizes: ModelSizes) -> None:
    """Unless the share is given."""
    small, large = (device_plan(sizes, chunked_prefill_size=-1, max_prefill_tokens=n) for n in (512, 400_000))
    assert large.reserve_bytes > small.reserve_bytes
    assert large.reserve_bytes >= reserve_bytes(
        EngineConfig(chunked_prefill_size=-1, max_prefill_tokens=400_000), sizes.config, 2
    )
    asked = device_plan(sizes, chunked_prefill_size=-1, max_prefill_tokens=400_000, mem_fraction_static=0.88)
    assert asked.pool_bytes > large.pool_bytes


def test_4_bit_matrices_that_are_kept_count_as_stored(tmp_path: Path) -> None:
    tiny = TinyLlama(storage=GGMLQuantizationType.Q4_1)
    path = write_gguf(tmp_path / "q4.gguf", tiny, gguf_tensors(make_model(tiny), tiny))
    sizes = read_sizes(path)
    placement = host_placement(EngineConfig(), dtype=torch.bfloat16)
    dense = device_weight_bytes(sizes, placement)
    assert dense == 2 * sizes.num_weights
    tensors = sizes.gguf[0].tensors if sizes.gguf else {}
    matrices = [t for t in tensors.values() if len(t.shape) == 2]
    kept = device_weight_bytes(sizes, replace(placement, keeps_q4=True))
    assert dense - kept == sum(
        2 * t.shape[0] * t.shape[1] - t.n_bytes for t in matrices if t.name != "token_embd.weight"
    )


def test_a_device_that_is_too_small_is_told_with_the_numbers(sizes: ModelSizes) -> None:
    with pytest.raises(RequestError, match=r"one request of 512 tokens needs .* weights take 1\.5 GiB"):
        device_plan(sizes, weights=3 << 29, mem_fraction_static=0.5)
    with pytest.raises(RequestError, match=r"max_total_tokens=16777216 needs 4\.0 GiB of KV memory beside .* lower it"):
        device_plan(sizes, max_total_tokens=1 << 24)
