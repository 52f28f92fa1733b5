"""How much memory a model and its KV pool take, and what fits: from the files' headers alone, no weight is read."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sglang_lite.errors import RequestError
from sglang_lite.runtime.attention.kv_pool import KvPool
from sglang_lite.runtime.config import KV_CACHE_DTYPES, EngineConfig
from sglang_lite.runtime.engine.resources import available_bytes
from sglang_lite.runtime.model.config import ModelConfig
from sglang_lite.runtime.model.gguf_file import GgufFile
from sglang_lite.runtime.model.hub import HuggingFaceHub
from sglang_lite.runtime.model.loader import folder_model_config, open_gguf
from sglang_lite.runtime.model.safetensors_file import SafetensorsFolder
from sglang_lite.runtime.model.source import resolve_model

_HALF = 0.5
"""Share of the free memory that the pool may take at most where only so it holds one request."""


@dataclass(frozen=True)
class ModelSizes:
    """A model's sizes by its headers. `stored_bytes`: of its tensors as they lie in the file; `num_weights`: how many numbers.

    `gguf`: the open file, if it is one.
    """

    path: Path
    config: ModelConfig
    stored_bytes: int
    num_weights: int
    gguf: tuple[GgufFile, ModelConfig] | None = None


@dataclass(frozen=True)
class MemoryPlan:
    """What an engine would take. Sizes in bytes; `num_requests`: of `context_length` tokens each, at a time."""

    model_path: str
    architecture: str
    stored_bytes: int
    float32_bytes: int
    context_length: int
    page_size: int
    kv_bytes_per_token: int
    kv_bytes_per_number: int
    pool_tokens: int
    pool_bytes: int
    num_requests: int
    max_running_requests: int
    available_bytes: int

    @property
    def longest(self) -> int:
        """Tokens of the longest request that is taken."""
        return min(self.context_length, self.pool_tokens)

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain values."""
        return asdict(self) | {"longest": self.longest}

    def lines(self) -> list[str]:
        """For the screen."""
        refused = [f"requests of more than {self.longest} tokens, prompt and answer together"]
        if self.longest < self.context_length:
            refused[0] += f" (the model could hold {self.context_length}; raise --max-total-tokens)"
        return [
            f"model    {self.model_path} ({self.architecture})",
            f"weights  {_size(self.stored_bytes)} as stored; {_size(self.float32_bytes)} where they are computed in float32",
            f"KV       {self.kv_bytes_per_token:,} bytes a token; pool of {self.pool_tokens:,} tokens: {_size(self.pool_bytes)}",
            f"memory   {_size(self.available_bytes)} free before loading",
            f"fits     {self.num_requests} requests of {self.context_length:,} tokens at a time; shorter ones up to {self.max_running_requests}",
            f"refused  {'; '.join(refused)}",
        ]


def plan_memory(config: EngineConfig) -> MemoryPlan:
    """What `Engine` would do with these settings; loads nothing.

    Raises:
        ModelLoadError: the model is missing, damaged or of an unknown kind.
        RequestError: the settings do not fit the model or the machine.
    """
    sizes = read_sizes(resolve_model(config.model_path or None, HuggingFaceHub()).path)
    return plan_for(config, sizes, available_bytes())


def plan_for(config: EngineConfig, sizes: ModelSizes, available: int) -> MemoryPlan:
    """The plan for a model on a machine with so many bytes free.

    Raises:
        RequestError: not one request fits, or another setting does not.
    """
    model = sizes.config
    context = context_length(config, model)
    pages = num_pages(config, model, context, available)
    item = KV_CACHE_DTYPES[config.kv_cache_dtype]
    per_token = KvPool.bytes_per_page(model.num_layers, model.num_kv_heads, model.head_dim, 1, item)
    return MemoryPlan(
        model_path=str(sizes.path),
        architecture=model.architecture,
        stored_bytes=sizes.stored_bytes,
        float32_bytes=4 * sizes.num_weights,
        context_length=context,
        page_size=config.page_size,
        kv_bytes_per_token=per_token,
        kv_bytes_per_number=item,
        pool_tokens=pages * config.page_size,
        pool_bytes=pages * config.page_size * per_token,
        num_requests=min(pages // -(-context // config.page_size), config.max_running_requests),
        max_running_requests=config.max_running_requests,
        available_bytes=available,
    )


def read_sizes(path: Path) -> ModelSizes:
    """The sizes of a GGUF file or a model folder.

    Raises:
        ModelLoadError: it is damaged or of an unknown kind.
    """
    if path.is_dir():
        model = folder_model_config(path)
        tensors = SafetensorsFolder(path).tensors.values()
        stored = sum(math.prod(t.shape) * (8 if t.dtype == "F64" else 4 if t.dtype == "F32" else 2) for t in tensors)
        return ModelSizes(path, model, stored, sum(math.prod(t.shape) for t in tensors))
    file, model = open_gguf(path)
    found = file.tensors.values()
    return ModelSizes(path, model, sum(t.n_bytes for t in found), sum(math.prod(t.shape) for t in found), (file, model))


def context_length(config: EngineConfig, model: ModelConfig) -> int:
    """The longest sequence, as asked for or the model's own.

    Raises:
        RequestError: the model was not made for so many.
    """
    if config.context_length is None:
        return model.max_position
    if config.context_length > model.max_position:
        raise RequestError(
            f"configuring the engine: context_length={config.context_length}, the model was made for at most "
            f"{model.max_position}; lower it"
        )
    return config.context_length


def num_pages(config: EngineConfig, model: ModelConfig, context: int, available: int) -> int:
    """Pages of the KV pool, the sink page not counted: as asked for, or what the memory share holds.

    Where the share holds not one request of the whole context, the pool takes up to half of what is free for one.

    Raises:
        RequestError: not even so one fits, or what was asked for holds no page.
    """
    if config.max_total_tokens is not None:
        pages = config.max_total_tokens // config.page_size
        if pages < 1:
            raise RequestError(
                f"configuring the engine: max_total_tokens={config.max_total_tokens} leaves no room for one page of "
                f"{config.page_size} tokens; raise it"
            )
        return pages
    item = KV_CACHE_DTYPES[config.kv_cache_dtype]
    per_page = KvPool.bytes_per_page(model.num_layers, model.num_kv_heads, model.head_dim, config.page_size, item)
    one = -(-context // config.page_size)
    fit = min(int(available * config.mem_fraction_static) // per_page, config.max_running_requests * one)
    if fit < one and one <= int(available * max(_HALF, config.mem_fraction_static)) // per_page:
        return one
    if fit < one:
        raise RequestError(
            f"configuring the engine: one request of {context} tokens needs {_size(one * per_page)} of KV memory, and "
            f"{_size(available)} are free, of which the pool takes at most half; lower context_length, or give "
            "max_total_tokens and have longer requests refused"
        )
    return fit


def _size(number: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if number < 1024:
            return f"{number:.0f} {unit}"
        number /= 1024
    return f"{number:.1f} GiB"
