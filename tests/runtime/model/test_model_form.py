"""Models placed on a device: each weight once, in its type, with the values of the file; main memory plays the device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType
from gguf.quants import dequantize, quantize

from sglang_lite.runtime.attention.kv_pool import KvPool
from sglang_lite.runtime.attention.torch_ref import TorchAttention
from sglang_lite.runtime.model import weights
from sglang_lite.runtime.model.decoder import Decoder
from sglang_lite.runtime.model.linear_q4 import DeviceLinear
from sglang_lite.runtime.model.loader import LoadedModel, load_model
from sglang_lite.runtime.model.model_form import ModelForm
from tests.support.host_device import HostQ4
from tests.support.paged_driver import PagedDriver
from tests.support.paged_driver import Sequence as Row
from tests.support.tiny_gguf import TinyLlama, gguf_tensors, make_model, write_gguf
from tests.support.tiny_models import ARCHITECTURES, ROPES

IDS = [7, 3, 90, 11, 4, 4, 60, 2, 33, 8, 70, 1, 5, 12, 50, 9, 13]
SOME = ["llama with all biases", "qwen2", "qwen3", "gemma2", "mixtral"]


@dataclass
class Stored:
    """A tensor of a GGUF file that is not there."""

    storage: str
    values: np.ndarray
    name: str = "x"
    path: Path = Path("x.gguf")

    @property
    def shape(self) -> tuple[int, ...]:
        return self.values.shape

    def raw(self) -> np.ndarray:
        return quantize(self.values, GGMLQuantizationType[self.storage])

    def dequantize(self, first: int = 0, last: int | None = None) -> np.ndarray:
        return dequantize(self.raw()[first:last], GGMLQuantizationType[self.storage])


def logits_of(loaded: LoadedModel, dtype: torch.dtype = torch.float32, ids: Sequence[int] = IDS) -> torch.Tensor:
    """After each token, computed in three chunks over keys that lie token by token."""
    config = loaded.config
    pool = KvPool(config.num_layers, 9, config.num_kv_heads, config.head_dim, 4, dtype=dtype, token_major=True)
    driver, row = PagedDriver(loaded.module, pool, TorchAttention(pool)), Row()
    return torch.cat([driver.step([(row, list(ids[a:b]))]) for a, b in ((0, 5), (5, 6), (6, len(ids)))])


@pytest.mark.parametrize("name", [*SOME, "yarn"])
def test_in_float32_a_placed_model_is_the_same_to_the_bit(tmp_path: Path, name: str) -> None:
    (ARCHITECTURES | ROPES)[name].make().save_pretrained(tmp_path)
    plain, placed = load_model(tmp_path), load_model(tmp_path, form=ModelForm("cpu", torch.float32))
    assert torch.equal(logits_of(plain), logits_of(placed))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", SOME)
def test_weights_and_activations_have_the_type_that_is_asked_for(tmp_path: Path, name: str, dtype: torch.dtype) -> None:
    """Values are rounded once; frequencies and logits stay float32; a tied head is the embedding."""
    ARCHITECTURES[name].make().save_pretrained(tmp_path)
    exact: Any = load_model(tmp_path).module
    loaded = load_model(tmp_path, form=ModelForm("cpu", dtype))
    module: Any = loaded.module
    assert isinstance(module, Decoder)
    assert loaded.config.dtype == str(dtype).removeprefix("torch.")
    expected = dict(exact.named_parameters())
    for path, parameter in module.named_parameters():
        kind = torch.float32 if path == "rope.freq_factors" else dtype
        assert parameter.dtype == kind, path
        assert torch.equal(parameter, expected[path].to(kind)), path
    head: Any = module.lm_head
    assert (head.weight is module.embed) == loaded.config.tie_word_embeddings
    logits, reference = logits_of(loaded, dtype), logits_of(load_model(tmp_path))
    assert logits.dtype == torch.float32
    spread = float(reference.std())
    assert float((logits - reference).abs().mean()) < (0.1 if dtype == torch.bfloat16 else 0.02) * spread


def test_16_bit_tensors_go_to_the_device_as_they_are_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No float32 copy is made of them, but of norms that lack a one."""
    ARCHITECTURES["llama"].make().to(torch.bfloat16).save_pretrained(tmp_path)

    def refuse(*_: Any) -> np.ndarray:
        raise AssertionError("a tensor was made float32")

    expected: Any = load_model(tmp_path).module
    monkeypatch.setattr("sglang_lite.runtime.model.safetensors_file.SafetensorsTensor.dequantize", refuse)
    module: Any = load_model(tmp_path, form=ModelForm("cpu", torch.bfloat16)).module
    for path, parameter in module.named_parameters():
        assert torch.equal(parameter.float(), dict(expected.named_parameters())[path]), path


def test_tensors_are_converted_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Main memory never holds more than a piece of what goes to the device."""
    monkeypatch.setattr(weights, "_CHUNK_FLOATS", 500)
    largest = 0
    original = weights._host_rows

    def watched(*args: Any) -> torch.Tensor:
        nonlocal largest
        rows = original(*args)
        largest = max(largest, rows.numel())
        return rows

    monkeypatch.setattr(weights, "_host_rows", watched)
    ARCHITECTURES["qwen2"].make().save_pretrained(tmp_path)
    load_model(tmp_path, form=ModelForm("cpu", torch.bfloat16))
    assert 0 < largest <= 500


@pytest.mark.parametrize("storage", ["Q4_0", "Q4_1"])
def test_4_bit_matrices_stay_as_they_are_stored(tmp_path: Path, storage: str) -> None:
    """Merged ones, too, with the rows of queries and keys in our order."""
    tiny = TinyLlama(storage=GGMLQuantizationType[storage])
    path = write_gguf(tmp_path / "q4.gguf", tiny, gguf_tensors(make_model(tiny), tiny))
    q4 = HostQ4()
    kept = load_model(path, form=ModelForm("cpu", torch.float32, q4))
    assert q4.packed == [storage] * (4 * tiny.layers + 1)
    layers = [module for module in kept.module.modules() if isinstance(module, DeviceLinear)]  # type: ignore[attr-defined]
    assert all(layer.weight is None and layer.packed is not None for layer in layers)
    ids = [7, 3, 60, 11, 4, 4, 2, 33, 8]
    expected = logits_of(load_model(path), ids=ids)
    torch.testing.assert_close(logits_of(kept, ids=ids), expected, atol=1e-4, rtol=1e-4)


def test_other_storages_become_the_type_that_is_asked_for(tmp_path: Path) -> None:
    tiny = TinyLlama(storage=GGMLQuantizationType.Q8_0)
    path = write_gguf(tmp_path / "q8.gguf", tiny, gguf_tensors(make_model(tiny), tiny))
    q4 = HostQ4()
    module: Any = load_model(path, form=ModelForm("cpu", torch.bfloat16, q4)).module
    assert not q4.packed
    assert module.layers[0].attn.qkv.weight.dtype == torch.bfloat16


def test_a_layer_of_two_storages_is_dense() -> None:
    """A matrix is packed in one form or not at all."""
    layer = DeviceLinear(32, 4, "cpu", torch.float32, HostQ4())
    values = np.arange(64, dtype=np.float32).reshape(2, 32)
    layer.load_rows(2, Stored("Q4_1", values), None)
    assert layer.weight is None
    layer.load_rows(0, Stored("Q4_0", values), np.array([1, 0]))
    assert layer.packed is None
    assert layer.weight is not None
    assert torch.equal(layer.weight[:2], torch.from_numpy(Stored("Q4_0", values).dequantize()[[1, 0]]))
