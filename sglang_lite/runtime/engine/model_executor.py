"""Which executor runs the model: the native CPU step where it can, torch modules everywhere else. Knows no scheduler."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sglang_lite.errors import RequestError
from sglang_lite.runtime.attention.base import AttentionBackend
from sglang_lite.runtime.attention.kv_pool import KvPool
from sglang_lite.runtime.attention.torch_ref import TorchAttention
from sglang_lite.runtime.config import EngineConfig
from sglang_lite.runtime.engine.cache_folder import cache_folder
from sglang_lite.runtime.execution.model_runner import CausalModel
from sglang_lite.runtime.model.config import ModelConfig
from sglang_lite.runtime.model.gguf_file import GgufFile
from sglang_lite.runtime.model.loader import gguf_weights, load_model, open_folder, open_gguf
from sglang_lite.runtime.model.weight_names import WeightSource

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class OpenedModel:
    """A model before it is decided who runs it.

    Attributes:
        path: file or folder.
        config: its sizes.
        metadata: a GGUF file's; empty for a folder.
        weights: what the native step packs, if it may run the model.
        module: the torch modules, if they are loaded already.

    """

    path: Path
    config: ModelConfig
    metadata: dict[str, Any]
    weights: WeightSource | None
    module: CausalModel | None


@dataclass(frozen=True)
class ModelExecutor:
    """What the runner computes with. `name`: `native` or `torch`; `attention_name` for the information page."""

    model: CausalModel
    attention: AttentionBackend
    name: str
    attention_name: str


def open_source(path: Path, config: EngineConfig, opened: tuple[GgufFile, ModelConfig] | None = None) -> OpenedModel:
    """Read what is needed to size the engine; weights only where torch modules are sure to be used.

    `opened`: the file, where it is open already.

    Raises:
        ModelLoadError: the model is missing or damaged.

    """
    if config.dtype == "auto" and config.attention_backend != "torch_ref" and path.is_file():
        if config.quantization is not None:
            raise RequestError(
                f"loading {path}: quantization={config.quantization!r}, but a GGUF file brings its own quantisation;"
                " leave it out"
            )
        file, model = opened or open_gguf(path)
        return OpenedModel(path, model, file.metadata, gguf_weights(file, model), None)
    if config.quantization is not None:
        weights, model = open_folder(path)
        return OpenedModel(path, model, {}, replace(weights, int8=True), None)
    loaded = load_model(path, config.dtype)
    return OpenedModel(path, loaded.config, loaded.metadata, None, loaded.module)


def make_executor(
    config: EngineConfig, source: OpenedModel, pool: KvPool, num_threads: int, notice: Callable[[str], None]
) -> ModelExecutor:
    """Choose and build; the kernels' cache folder must be named already. Says in one log line what it chose and why."""
    if source.weights is not None:
        from sglang_lite.kernels.cpu.step_team import StepTeam  # kernels: only after prepare_cache
        from sglang_lite.runtime.execution.native_step import build_native

        native = build_native(source.weights, source.config, pool, StepTeam(num_threads), cache_folder(), notice)
        if not isinstance(native, str):
            logger.info("%s runs as one native call a step on up to %d threads", source.path.name, num_threads)
            return ModelExecutor(native, TorchAttention(pool), "native", "native")
        if config.quantization is not None:
            raise RequestError(
                f"loading {source.path}: quantization={config.quantization!r} needs the native step, and {native};"
                " leave it out"
            )
        logger.info("%s runs on torch modules in float32: %s", source.path.name, native)
    elif source.config.experts is not None:
        logger.info("%s runs on torch modules in float32: the native step has no experts", source.path.name)
    module = source.module or load_model(source.path, config.dtype).module
    attention = _attention(config, source.config, pool, num_threads, notice)
    return ModelExecutor(module, attention, "torch", type(attention).__name__)


def _attention(
    config: EngineConfig, model: ModelConfig, pool: KvPool, num_threads: int, notice: Callable[[str], None]
) -> AttentionBackend:
    from sglang_lite.kernels.cpu.threads import configure_threads

    threads = configure_threads(num_threads)
    if config.attention_backend == "torch_ref":
        return TorchAttention(pool)
    from sglang_lite.kernels.cpu.warmup import warm_up  # kernels: only after prepare_cache
    from sglang_lite.runtime.attention.cpu import CpuAttention

    if not CpuAttention.supports(model.head_dim, config.page_size, pool.k.dtype):
        logger.warning(
            "head_dim %d with pages of %d in %s has no CPU kernel; plain torch attention is used (slower)",
            model.head_dim,
            config.page_size,
            pool.k.dtype,
        )
        return TorchAttention(pool)
    warm_up(notice, pool.k.dtype.itemsize)
    return CpuAttention(pool, model.num_heads, threads)
