"""Models without a class of ours, on transformers' modules over our attention, against transformers alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    GPTNeoXConfig,
    GPTNeoXForCausalLM,
    GraniteConfig,
    GraniteForCausalLM,
    MambaConfig,
    MambaForCausalLM,
    Olmo2Config,
    Olmo2ForCausalLM,
    Phi3Config,
    Phi3ForCausalLM,
    StableLmConfig,
    StableLmForCausalLM,
    Starcoder2Config,
    Starcoder2ForCausalLM,
)

from sglang_lite.errors import ModelLoadError
from sglang_lite.kernels.cpu.threads import KernelThreads
from sglang_lite.runtime.attention.cpu import CpuAttention
from sglang_lite.runtime.attention.kv_pool import KvPool
from sglang_lite.runtime.attention.torch_ref import TorchAttention
from sglang_lite.runtime.model.loader import LoadedModel, folder_model_config, load_model
from sglang_lite.runtime.model.model_form import ModelForm
from tests.support.paged_driver import PagedDriver, Sequence
from tests.support.tiny_models import VOCAB, TinyModel, all_logits

IDS = np.random.default_rng(5).integers(0, VOCAB, 60).tolist()

MODELS = {
    "learned positions": TinyModel(GPT2Config, GPT2LMHeadModel),
    "partial rotation, parallel parts": TinyModel(GPTNeoXConfig, GPTNeoXForCausalLM, {"rotary_pct": 0.5}),
    "merged projections, a window": TinyModel(Phi3Config, Phi3ForCausalLM, {"sliding_window": 11}),
    "norms behind": TinyModel(Olmo2Config, Olmo2ForCausalLM),
    "scaled logits and residuals": TinyModel(
        GraniteConfig,
        GraniteForCausalLM,
        {"logits_scaling": 3.0, "residual_multiplier": 0.7, "embedding_multiplier": 2.0, "attention_multiplier": 0.4},
    ),
    "layer norms": TinyModel(StableLmConfig, StableLmForCausalLM),
    "biases, a window": TinyModel(Starcoder2Config, Starcoder2ForCausalLM, {"sliding_window": 9}),
}


def driver(model: LoadedModel, kind: str) -> PagedDriver:
    config = model.config
    pool = KvPool(config.num_layers, 40, config.num_kv_heads, config.head_dim, 16)
    attention = TorchAttention(pool) if kind == "torch" else CpuAttention(pool, config.num_heads, KernelThreads(1))
    return PagedDriver(model.module, pool, attention)


@pytest.mark.parametrize("name", MODELS)
def test_logits_agree_at_once_in_chunks_and_token_by_token(name: str, tmp_path: Path) -> None:
    """On the CPU kernel and on plain torch; two rows at a time, each with positions of its own."""
    peer = MODELS[name].make()
    peer.save_pretrained(tmp_path)
    expected = all_logits(peer, IDS)
    assert float(expected.std()) > 0.1
    model = load_model(tmp_path)
    assert folder_model_config(tmp_path) == model.config
    for kind in ("cpu", "torch"):
        run, one, other = driver(model, kind), Sequence(), Sequence()
        torch.testing.assert_close(run.step([(Sequence(), IDS)]), expected, atol=2e-4, rtol=1e-4)
        chunks, singles = [], []
        for number, first in enumerate(range(0, 60, 13)):
            got = run.step([(one, IDS[first : first + 13]), (other, [IDS[number]])])
            chunks.append(got[:-1])
            singles.append(got[-1:])
        torch.testing.assert_close(torch.cat(chunks), expected, atol=2e-4, rtol=1e-4)
        torch.testing.assert_close(torch.cat(singles), expected[: len(singles)], atol=2e-4, rtol=1e-4)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_model_is_placed_in_the_type_that_is_asked_for(tmp_path: Path, dtype: torch.dtype) -> None:
    """Over keys that lie token by token, as on a GPU; its logits are float32 all the same."""
    peer = MODELS["norms behind"].make()
    peer.save_pretrained(tmp_path)
    loaded = load_model(tmp_path, form=ModelForm("cpu", dtype))
    config = loaded.config
    assert config.dtype == str(dtype).removeprefix("torch.")
    pool = KvPool(config.num_layers, 40, config.num_kv_heads, config.head_dim, 16, dtype=dtype, token_major=True)
    got = PagedDriver(loaded.module, pool, TorchAttention(pool)).step([(Sequence(), IDS)])
    assert got.dtype == torch.float32
    expected = all_logits(peer, IDS)
    away = float((got - expected).abs().mean() / expected.std())
    assert 0 < away < 0.1


def test_two_models_at_a_time_keep_their_own_attention(tmp_path: Path) -> None:
    peers = [MODELS["norms behind"].make(seed) for seed in (0, 1)]
    runs = []
    for number, peer in enumerate(peers):
        peer.save_pretrained(tmp_path / str(number))
        runs.append(driver(load_model(tmp_path / str(number)), "torch"))
    for run, peer in zip(runs, peers, strict=True):
        torch.testing.assert_close(run.step([(Sequence(), IDS)]), all_logits(peer, IDS), atol=2e-4, rtol=1e-4)


def write_config(folder: Path, **values: Any) -> Path:
    (folder / "config.json").write_text(json.dumps(values))
    return folder


def test_an_architecture_that_transformers_does_not_know_is_said(tmp_path: Path) -> None:
    write_config(tmp_path, architectures=["NoSuchForCausalLM"], model_type="no_such")
    with pytest.raises(ModelLoadError, match=r"unknown architecture 'NoSuchForCausalLM' .*Llama.* names none"):
        load_model(tmp_path)


def test_a_model_without_attention_by_name_is_refused(tmp_path: Path) -> None:
    MambaForCausalLM(MambaConfig(vocab_size=64, hidden_size=32, num_hidden_layers=1)).save_pretrained(tmp_path)
    with pytest.raises(ModelLoadError, match="MambaForCausalLM does not look its attention up by name"):
        load_model(tmp_path)


def test_a_model_that_is_no_decoder_is_refused(tmp_path: Path) -> None:
    write_config(tmp_path, architectures=["T5ForConditionalGeneration"], model_type="t5")
    with pytest.raises(ModelLoadError, match="unknown architecture 'T5For"):
        load_model(tmp_path)


def test_rotation_that_depends_on_the_longest_row_is_refused(tmp_path: Path) -> None:
    tiny = TinyModel(
        StableLmConfig,
        StableLmForCausalLM,
        {
            "rope_parameters": {
                "rope_type": "dynamic",
                "rope_theta": 1000.0,
                "factor": 2.0,
                "partial_rotary_factor": 0.25,
            }
        },
    )
    tiny.make().save_pretrained(tmp_path)
    with pytest.raises(ModelLoadError, match="'dynamic' turn a token by the longest sequence"):
        load_model(tmp_path)


def test_a_missing_weight_is_named(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    MODELS["norms behind"].make().save_pretrained(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    del tensors["model.layers.1.mlp.up_proj.weight"]
    save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelLoadError, match=r"missing tensors: model\.layers\.1\.mlp\.up_proj\.weight"):
        load_model(tmp_path)
