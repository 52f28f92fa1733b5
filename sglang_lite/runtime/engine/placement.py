"""Where a model runs and in what form: device, number types, attention, graphs; from settings and what the machine has."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from sglang_lite.errors import RequestError
from sglang_lite.runtime.config import DEFAULT_MEM_FRACTION, EngineConfig
from sglang_lite.runtime.engine.device_parts import CudaParts, DeviceParts

_LEAST_CAPABILITY = (8, 0)
"""Compute capability that the kernels are made for: bfloat16 in tensor cores, asynchronous copies."""

_TORCH_DTYPES = {
    "bfloat16": torch.bfloat16,
    "bf16": torch.bfloat16,
    "float16": torch.float16,
    "fp16": torch.float16,
    "int8": torch.int8,
    "float32": torch.float32,
    "fp32": torch.float32,
}


@dataclass(frozen=True)
class Gpu:
    """A GPU as it is now. Sizes in bytes; `capability`: of its instruction set."""

    name: str
    capability: tuple[int, int]
    free_bytes: int
    total_bytes: int


@dataclass(frozen=True)
class Placement:
    """What was chosen; no setting is left to be found out.

    Attributes:
        config: the settings, `device` being the one that was chosen.
        device: where tensors lie, as torch names it.
        dtype: of weights that are not kept as stored, and of activations.
        keeps_q4: 4-bit matrices of a GGUF file stay as they are and are multiplied so.
        attention: `cpu`, `torch_ref`, `triton` or `flashinfer`.
        kv_dtype: of stored keys and values.
        overlap: a step is planned while the one before it runs.
        graphs: decode steps are captured and replayed.
        mem_fraction: see `EngineConfig.mem_fraction_static`.
        name: of the device.
        parts: what the device brings. None: the host's ways; else the model runs through the device runner, over a pool whose
            keys lie token by token.
        free_bytes: of the device's memory, before anything was loaded; 0 on the CPU.

    """

    config: EngineConfig
    device: str
    dtype: torch.dtype
    keeps_q4: bool
    attention: str
    kv_dtype: torch.dtype
    overlap: bool
    graphs: bool
    mem_fraction: float
    name: str
    parts: DeviceParts | None = None
    free_bytes: int = 0

    def to_dict(self) -> dict[str, object]:
        """For the information page; numbers and names only."""
        common = {
            "device": self.config.device,
            "device_name": self.name,
            "disable_overlap_schedule": not self.overlap,
            "mem_fraction_static": self.mem_fraction,
        }
        if self.parts is None:
            return common
        dtype, kv_dtype = (str(kind).removeprefix("torch.") for kind in (self.dtype, self.kv_dtype))
        graphs = {"disable_cuda_graph": not self.graphs}
        return common | graphs | {"dtype": dtype, "kv_cache_dtype": kv_dtype, "keeps_q4": self.keeps_q4}


def place(
    config: EngineConfig, find: Callable[[], Gpu | str] | None = None, has_module: Callable[[str], bool] | None = None
) -> Placement:
    """Choose by the settings and by what is there.

    Args:
        config: the settings.
        find: gives the GPU, or why there is none; None: `find_gpu`.
        has_module: whether a package is installed; None: asks Python.

    Raises:
        RequestError: a GPU is asked for and cannot be used, or a setting is not for the device that was found.

    """
    if config.device == "cpu":
        return _on_cpu(config)
    gpu = (find or find_gpu)()
    if isinstance(gpu, str):
        if config.device == "auto":
            return _on_cpu(replace(config, device="cpu"))
        raise RequestError(f"configuring the engine: device='cuda', but {gpu}; or use device='cpu'")
    return _on_gpu(replace(config, device="cuda"), gpu, has_module or _is_installed)


def find_gpu() -> Gpu | str:
    """The GPU that is visible first, or why none can be used and what helps."""
    if torch.version.cuda is None:
        return f"torch {torch.__version__} is built without CUDA: install a CUDA build of it (pip install 'sglang-lite[cuda]')"
    if not torch.cuda.is_available():
        return "torch sees no GPU: look at nvidia-smi, the driver and CUDA_VISIBLE_DEVICES"
    capability = torch.cuda.get_device_capability(0)
    name = torch.cuda.get_device_name(0)
    if capability < _LEAST_CAPABILITY:
        needed = ".".join(map(str, _LEAST_CAPABILITY))
        return f"{name} has compute capability {capability[0]}.{capability[1]}: the kernels need {needed} or newer"
    free, total = torch.cuda.mem_get_info(0)
    return Gpu(name, capability, free, total)


def _on_cpu(config: EngineConfig) -> Placement:
    kinds = {"auto": "cpu"}
    return Placement(
        config=config,
        device="cpu",
        dtype=torch.float32,
        keeps_q4=False,
        attention=kinds.get(config.attention_backend, config.attention_backend),
        kv_dtype=_TORCH_DTYPES.get(config.kv_cache_dtype, torch.float32),
        overlap=config.overlap_thread or config.disable_overlap_schedule is False,
        graphs=False,
        mem_fraction=config.mem_fraction_static or DEFAULT_MEM_FRACTION["cpu"],
        name="cpu",
    )


def _on_gpu(config: EngineConfig, gpu: Gpu, has_module: Callable[[str], bool]) -> Placement:
    dtype = _TORCH_DTYPES.get(config.dtype, torch.bfloat16)
    attention = _gpu_attention(config, dtype, has_module)
    return Placement(
        config=config,
        device="cuda",
        dtype=dtype,
        keeps_q4=config.dtype == "auto",
        attention=attention,
        kv_dtype=_TORCH_DTYPES.get(config.kv_cache_dtype, dtype),
        # What is launched ahead of its tokens cannot carry a draft model's guesses.
        overlap=config.disable_overlap_schedule is not True and config.speculative_algorithm != "DRAFT",
        graphs=not config.disable_cuda_graph and attention != "torch_ref",
        mem_fraction=config.mem_fraction_static or DEFAULT_MEM_FRACTION["cuda"],
        name=gpu.name,
        parts=CudaParts(),
        free_bytes=gpu.free_bytes,
    )


def _gpu_attention(config: EngineConfig, dtype: torch.dtype, has_module: Callable[[str], bool]) -> str:
    """The implementation that is asked for, or the best one that can be had."""
    if not has_module("triton"):
        raise RequestError(
            "configuring the engine: device='cuda' needs the package triton; pip install 'sglang-lite[cuda]', or use device='cpu'"
        )
    asked = config.attention_backend
    can_flashinfer = dtype != torch.float32 and config.kv_cache_dtype != "fp32"  # its kernels take 16-bit numbers
    if asked == "auto":
        best = can_flashinfer and not config.enable_deterministic_inference and has_module("flashinfer")
        return "flashinfer" if best else "triton"
    if asked == "flashinfer" and not can_flashinfer:
        raise RequestError(
            f"configuring the engine: attention_backend='flashinfer' takes 16-bit numbers, got dtype={config.dtype!r} and "
            f"kv_cache_dtype={config.kv_cache_dtype!r}; use attention_backend='triton'"
        )
    return asked


def _is_installed(name: str) -> bool:
    return importlib.util.find_spec(name) is not None
