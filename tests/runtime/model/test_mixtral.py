"""Mixtral and Qwen3-MoE from every layout that files have; their logits against transformers are in `test_architectures`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file

from sglang_lite.errors import ModelLoadError
from sglang_lite.runtime.model.layers import GatedMLP
from sglang_lite.runtime.model.loader import load_model
from sglang_lite.runtime.model.model_form import ModelForm
from sglang_lite.runtime.model.moe import SparseMLP
from tests.support.tiny_models import ARCHITECTURES, save_gguf

SPARSE = ("mixtral", "qwen3moe", "qwen3moe with dense layers")


def weights_of(path: Path) -> dict[str, torch.Tensor]:
    module: Any = load_model(path).module
    return module.state_dict()


def assert_same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> None:
    assert one.keys() == other.keys()
    for name, weight in one.items():
        assert torch.equal(weight, other[name]), name


@pytest.mark.parametrize("name", SPARSE)
def test_one_tensor_for_each_expert_or_one_for_all_in_one_file_or_in_shards(name: str, tmp_path: Path) -> None:
    peer = ARCHITECTURES[name].make()
    peer.save_pretrained(tmp_path / "single")
    peer.save_pretrained(tmp_path / "fused", save_original_format=False)
    peer.save_pretrained(tmp_path / "shards", max_shard_size="60KB")
    assert any(".experts.0." in key for key in load_file(tmp_path / "single/model.safetensors"))
    assert any(key.endswith("experts.gate_up_proj") for key in load_file(tmp_path / "fused/model.safetensors"))
    assert len(list((tmp_path / "shards").glob("*.safetensors"))) > 1
    expected = weights_of(tmp_path / "single")
    assert_same(weights_of(tmp_path / "fused"), expected)
    assert_same(weights_of(tmp_path / "shards"), expected)


@pytest.mark.parametrize("original", [False, True])
def test_weights_go_where_the_form_says_in_its_type(original: bool, tmp_path: Path) -> None:
    """As on a GPU, with the device left at main memory."""
    ARCHITECTURES["qwen3moe"].make().save_pretrained(tmp_path, save_original_format=original)
    placed: Any = load_model(tmp_path, form=ModelForm("cpu", torch.bfloat16)).module
    for name, weight in weights_of(tmp_path).items():
        if "freq" not in name:
            assert torch.equal(placed.state_dict()[name], weight.to(torch.bfloat16)), name


def test_the_config_of_version_4_says_the_same(tmp_path: Path) -> None:
    """It counts the experts under another name."""
    ARCHITECTURES["qwen3moe"].make().save_pretrained(tmp_path)
    expected = load_model(tmp_path).config
    path = tmp_path / "config.json"
    path.write_text(path.read_text().replace('"num_local_experts"', '"num_experts"'))
    assert load_model(tmp_path).config == expected


def test_the_layers_that_are_named_are_dense(tmp_path: Path) -> None:
    ARCHITECTURES["qwen3moe with dense layers"].make().save_pretrained(tmp_path)
    module: Any = load_model(tmp_path).module
    assert [type(layer.mlp) for layer in module.layers] == [GatedMLP, GatedMLP, GatedMLP, SparseMLP]


def test_a_gguf_file_of_mixtral_may_have_a_tensor_for_each_expert(tmp_path: Path) -> None:
    peer = ARCHITECTURES["mixtral"].make()

    def split(metadata: dict[str, Any], tensors: dict[str, np.ndarray]) -> None:
        for name in [name for name in tensors if "_exps." in name]:
            for expert, weight in enumerate(tensors.pop(name)):
                tensors[name.replace("_exps.", f".{expert}.")] = weight

    joined = weights_of(save_gguf(tmp_path / "joined.gguf", peer, "llama"))
    assert_same(weights_of(save_gguf(tmp_path / "split.gguf", peer, "llama", change=split)), joined)


@pytest.mark.parametrize("fused", [False, True])
def test_an_expert_that_is_missing_or_of_another_shape_is_named(fused: bool, tmp_path: Path) -> None:
    ARCHITECTURES["mixtral"].make().save_pretrained(tmp_path, save_original_format=not fused)
    path, tensors = tmp_path / "model.safetensors", load_file(tmp_path / "model.safetensors")
    name = "mlp.experts.gate_up_proj" if fused else "block_sparse_moe.experts.2.w3.weight"
    key = f"model.layers.1.{name}"
    weight = tensors.pop(key)
    save_file(tensors, path)
    with pytest.raises(ModelLoadError, match=f"1 missing tensor: '{key}'"):
        load_model(tmp_path)
    save_file(tensors | {key: np.ascontiguousarray(weight[..., :-1])}, path)
    with pytest.raises(ModelLoadError, match=f"tensor '{key}' has shape"):
        load_model(tmp_path)
