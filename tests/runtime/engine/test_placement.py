"""Where a model runs, by the settings and by what a machine has; the machines are made up."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from sglang_lite.errors import RequestError
from sglang_lite.runtime.config import EngineConfig
from sglang_lite.runtime.engine import placement as module
from sglang_lite.runtime.engine.placement import Gpu, Placement, find_gpu, place

H200 = Gpu("NVIDIA H200", (9, 0), 140 << 30, 141 << 30)


def on_gpu(*modules: str, **settings: Any) -> Placement:
    values: dict[str, Any] = {"device": "cuda"} | settings
    config = EngineConfig(**values)
    return place(config, lambda: H200, lambda name: name in ("triton", *modules))


def test_the_cpu_is_the_default_and_nobody_looks_for_a_gpu() -> None:
    def look() -> Gpu:
        raise AssertionError("looked for a GPU")

    placed = place(EngineConfig(), look)
    assert (placed.device, placed.dtype, placed.attention, placed.overlap) == ("cpu", torch.float32, "cpu", False)
    assert placed.parts is None
    assert placed.to_dict()["disable_overlap_schedule"] is True
    assert place(EngineConfig(kv_cache_dtype="fp16", attention_backend="torch_ref"), look).attention == "torch_ref"
    assert place(EngineConfig(disable_overlap_schedule=False), look).overlap


def test_a_gpu_gets_bfloat16_graphs_and_overlap_unless_told_otherwise() -> None:
    placed = on_gpu()
    assert (placed.device, placed.dtype, placed.kv_dtype) == ("cuda", torch.bfloat16, torch.bfloat16)
    assert placed.keeps_q4
    assert placed.overlap
    assert placed.graphs
    assert placed.parts is not None
    told = placed.to_dict()
    assert (told["device_name"], told["dtype"], told["kv_cache_dtype"]) == ("NVIDIA H200", "bfloat16", "bfloat16")
    other = on_gpu(dtype="float16", kv_cache_dtype="bf16", disable_overlap_schedule=True, disable_cuda_graph=True)
    assert (other.dtype, other.kv_dtype, other.overlap, other.graphs) == (torch.float16, torch.bfloat16, False, False)
    assert not other.keeps_q4


def test_with_a_draft_model_nothing_is_launched_ahead_on_a_gpu() -> None:
    draft = {"speculative_algorithm": "DRAFT", "speculative_draft_model_path": "m"}
    assert not on_gpu(**draft).overlap
    assert on_gpu(speculative_algorithm="NGRAM").overlap


@pytest.mark.parametrize(
    ("modules", "settings", "expected"),
    [
        (("flashinfer",), {}, "flashinfer"),
        ((), {}, "triton"),
        (("flashinfer",), {"enable_deterministic_inference": True}, "triton"),
        (("flashinfer",), {"dtype": "float32"}, "triton"),
        (("flashinfer",), {"attention_backend": "triton"}, "triton"),
        (("flashinfer",), {"attention_backend": "torch_ref"}, "torch_ref"),
    ],
)
def test_flashinfer_is_taken_where_it_is_and_does_what_is_asked(
    modules: tuple[str, ...], settings: dict[str, Any], expected: str
) -> None:
    placed = on_gpu(*modules, **settings)
    assert placed.attention == expected
    assert placed.graphs == (expected != "torch_ref")


def test_auto_is_the_gpu_or_else_the_cpu() -> None:
    auto = EngineConfig(device="auto")
    assert place(auto, lambda: H200, lambda _: True).config.device == "cuda"
    placed = place(auto, lambda: "there is none")
    assert (placed.config.device, placed.parts) == ("cpu", None)


def test_a_setting_for_the_other_device_shows_when_it_is_known() -> None:
    """With `auto` a setting may be right for either; which one it is shows here."""
    with pytest.raises(RequestError, match="dtype='bfloat16', expected one of 'auto', 'float32' on device='cpu'"):
        place(EngineConfig(device="auto", dtype="bfloat16"), lambda: "there is none")
    with pytest.raises(RequestError, match=r"attention_backend='cpu', expected one of .*'triton'.* on device='cuda'"):
        place(EngineConfig(device="auto", attention_backend="cpu"), lambda: H200, lambda _: True)


def test_without_a_gpu_cuda_is_refused_with_the_reason_and_a_way_out() -> None:
    with pytest.raises(RequestError, match=r"device='cuda', but torch sees no GPU: look at .*; or use device='cpu'"):
        place(EngineConfig(device="cuda"), lambda: "torch sees no GPU: look at nvidia-smi")


def test_without_triton_a_gpu_is_of_no_use() -> None:
    with pytest.raises(RequestError, match=r"needs the package triton; pip install 'sglang-lite\[cuda\]'"):
        place(EngineConfig(device="cuda"), lambda: H200, lambda _: False)


def test_flashinfer_takes_no_float32() -> None:
    with pytest.raises(RequestError, match="takes 16-bit numbers, got dtype='float32'"):
        on_gpu("flashinfer", attention_backend="flashinfer", dtype="float32")


@pytest.mark.parametrize(
    ("cuda", "available", "capability", "words"),
    [
        (None, False, (0, 0), "is built without CUDA: install a CUDA build"),
        ("12.8", False, (0, 0), "torch sees no GPU: look at nvidia-smi"),
        ("12.8", True, (7, 5), "Old has compute capability 7.5: the kernels need 8.0"),
        ("12.8", True, (8, 0), ""),
    ],
)
def test_what_torch_says_of_gpus_is_told(
    monkeypatch: pytest.MonkeyPatch, cuda: str | None, available: bool, capability: tuple[int, int], words: str
) -> None:
    monkeypatch.setattr(module.torch.version, "cuda", cuda)
    monkeypatch.setattr(module.torch.cuda, "is_available", lambda: available)
    monkeypatch.setattr(module.torch.cuda, "get_device_capability", lambda _: capability)
    monkeypatch.setattr(module.torch.cuda, "get_device_name", lambda _: "Old")
    monkeypatch.setattr(module.torch.cuda, "mem_get_info", lambda _: (7, 9))
    found = find_gpu()
    if words:
        assert isinstance(found, str)
        assert words in found
    else:
        assert found == Gpu("Old", (8, 0), 7, 9)
