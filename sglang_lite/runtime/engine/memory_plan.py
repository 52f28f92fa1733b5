"""How much memory a model and its KV pool take, and what fits: from the files' headers alone, no weight is read."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from sglang_lite.errors import RequestError
from sglang_lite.runtime.attention.kv_pool import KvPool
from sglang_lite.runtime.config import DEFAULT_MEM_FRACTION, KV_CACHE_DTYPES, EngineConfig
from sglang_lite.runtime.engine.device_memory import device_weight_bytes, reserve_bytes
from sglang_lite.runtime.engine.model_sizes import ModelSizes, read_sizes
from sglang_lite.runtime.engine.placement import Placement, place
from sglang_lite.runtime.engine.resources import available_bytes
from sglang_lite.runtime.model.config import ModelConfig
from sglang_lite.runtime.model.hub import HuggingFaceHub
from sglang_lite.runtime.model.source import resolve_model

_HALF = 0.5
"""Share of the free memory that the pool may take at most where only so it holds one request."""


@dataclass(frozen=True)
class MemoryPlan:
    """What an engine would take. Sizes in bytes; `num_requests`: of `context_length` tokens each, at a time.

    `kv_bytes_per_token` and `pool_bytes` count a draft model's keys and values, too, of which a token takes
    `draft_kv_bytes_per_token`; `draft_weight_bytes`: of its weights as stored, on a GPU as they lie there.

    `device_name`, `device_weight_bytes` and `reserve_bytes` (left to activations and graphs): of a GPU, None and 0 without one.
    """

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
    device_name: str | None = None
    device_weight_bytes: int = 0
    reserve_bytes: int = 0
    draft_model_path: str | None = None
    draft_weight_bytes: int = 0
    draft_kv_bytes_per_token: int = 0

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
        weights, memory = f"{_size(self.float32_bytes)} where they are computed in float32", ""
        if self.device_name is not None:
            weights = f"{_size(self.device_weight_bytes)} on the device"
            memory = f" on {self.device_name}; {_size(self.reserve_bytes)} of it left to activations and graphs"
        draft: list[str] = []
        if self.draft_model_path is not None:
            sizes = f"{_size(self.draft_weight_bytes)} of weights, {self.draft_kv_bytes_per_token:,} bytes a token of the KV below"
            draft.append(f"draft    {self.draft_model_path}: {sizes}")
        return [
            f"model    {self.model_path} ({self.architecture})",
            f"weights  {_size(self.stored_bytes)} as stored; {weights}",
            *draft,
            f"KV       {self.kv_bytes_per_token:,} bytes a token; pool of {self.pool_tokens:,} tokens: {_size(self.pool_bytes)}",
            f"memory   {_size(self.available_bytes)} free before loading{memory}",
            f"fits     {self.num_requests} requests of {self.context_length:,} tokens at a time; shorter ones up to {self.max_running_requests}",
            f"refused  {'; '.join(refused)}",
        ]


def plan_memory(config: EngineConfig) -> MemoryPlan:
    """What `Engine` would do with these settings; loads nothing.

    Raises:
        ModelLoadError: the model is missing, damaged or of an unknown kind.
        RequestError: the settings do not fit the model or the machine.
    """
    placement = place(config)
    sizes = read_sizes(resolve_model(config.model_path or None, HuggingFaceHub()).path)
    draft = draft_sizes(config)
    if placement.parts is not None:
        return plan_on_device(placement, sizes, draft=draft)
    return plan_for(placement.config, sizes, available_bytes(), draft)


def draft_sizes(config: EngineConfig) -> ModelSizes | None:
    """The sizes of the draft model, if there is one.

    Raises:
        ModelLoadError: it is missing, damaged or of an unknown kind.
    """
    path = config.speculative_draft_model_path
    return None if path is None else read_sizes(resolve_model(path, HuggingFaceHub()).path)


def plan_for(config: EngineConfig, sizes: ModelSizes, available: int, draft: ModelSizes | None = None) -> MemoryPlan:
    """The plan for a model, and the draft model beside it, on a machine with so many bytes free, in main memory.

    Raises:
        RequestError: not one request fits, or another setting does not.
    """
    context = context_length(config, sizes.config, draft)
    item = KV_CACHE_DTYPES[config.kv_cache_dtype]
    pages = num_pages(config, _page_bytes(config.page_size, item, sizes, draft), context, available)
    plan = _plan(config, sizes, available, item, pages, draft)
    return replace(plan, draft_weight_bytes=0 if draft is None else draft.stored_bytes)


def plan_on_device(
    placement: Placement, sizes: ModelSizes, weights: int | None = None, draft: ModelSizes | None = None
) -> MemoryPlan:
    """The plan for a model on a GPU.

    Args:
        placement: how it runs there.
        sizes: the model.
        weights: bytes that all weights take; None: by the files' headers.
        draft: the draft model beside it.

    Raises:
        RequestError: not one request fits, or another setting does not.
    """
    config, model, free = placement.config, sizes.config, placement.free_bytes
    context = context_length(config, model, draft)
    draft_weights = 0 if draft is None else device_weight_bytes(draft, placement)
    weights = device_weight_bytes(sizes, placement) + draft_weights if weights is None else weights
    item = placement.kv_dtype.itemsize
    static = int(free * placement.mem_fraction)
    if config.mem_fraction_static is None:
        static = min(static, free - reserve_bytes(config, model, placement.dtype.itemsize))
    per_page = _page_bytes(config.page_size, item, sizes, draft)
    pages = max(static - weights, 0) // per_page
    if config.max_total_tokens is not None:
        pages = _asked_pages(config)
        if weights + pages * per_page > free:
            raise RequestError(
                f"configuring the engine: max_total_tokens={config.max_total_tokens} needs {_size(pages * per_page)} of KV memory beside "
                f"{_size(weights)} of weights, and {_size(free)} of the device are free; lower it"
            )
    elif pages < (one := -(-context // config.page_size)):
        raise RequestError(
            f"configuring the engine: one request of {context} tokens needs {_size(one * per_page)} of KV memory, and of the device's "
            f"{_size(free)} weights take {_size(weights)} and activations {_size(free - static)}; lower context_length, raise "
            "mem_fraction_static, or give max_total_tokens and have longer requests refused"
        )
    plan = _plan(config, sizes, free, item, pages, draft)
    reserve = max(free - weights - plan.pool_bytes, 0)
    plan = replace(plan, device_name=placement.name, device_weight_bytes=weights, reserve_bytes=reserve)
    return replace(plan, draft_weight_bytes=draft_weights)


def _page_bytes(page_size: int, item: int, *models: ModelSizes | None) -> int:
    """What a page takes in the pools of all models together."""
    configs = [sizes.config for sizes in models if sizes is not None]
    return sum(KvPool.bytes_per_page(c.num_layers, c.num_kv_heads, c.head_dim, page_size, item) for c in configs)


def _plan(
    config: EngineConfig, sizes: ModelSizes, available: int, item: int, pages: int, draft: ModelSizes | None
) -> MemoryPlan:
    model = sizes.config
    context = context_length(config, model, draft)
    per_token = _page_bytes(1, item, sizes, draft)
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
        draft_model_path=None if draft is None else str(draft.path),
        draft_kv_bytes_per_token=_page_bytes(1, item, draft),
    )


def context_length(config: EngineConfig, model: ModelConfig, draft: ModelSizes | None = None) -> int:
    """The longest sequence, as asked for or the model's own.

    Raises:
        RequestError: the model, or the draft model beside it, was not made for so many.
    """
    asked = model.max_position if config.context_length is None else config.context_length
    if draft is not None and asked > draft.config.max_position:
        raise RequestError(
            f"configuring the engine: sequences of up to {asked} tokens, the draft model {draft.path} was made for at most "
            f"{draft.config.max_position}; set context_length={draft.config.max_position}, or take another draft model"
        )
    if config.context_length is None:
        return model.max_position
    if config.context_length > model.max_position:
        raise RequestError(
            f"configuring the engine: context_length={config.context_length}, the model was made for at most "
            f"{model.max_position}; lower it"
        )
    return config.context_length


def num_pages(config: EngineConfig, per_page: int, context: int, available: int) -> int:
    """Pages of the KV pool, of `per_page` bytes each, the sink page not counted: as asked for, or what the memory share holds.

    Where the share holds not one request of the whole context, the pool takes up to half of what is free for one.

    Raises:
        RequestError: not even so one fits, or what was asked for holds no page.
    """
    if config.max_total_tokens is not None:
        return _asked_pages(config)
    share = config.mem_fraction_static or DEFAULT_MEM_FRACTION["cpu"]
    one = -(-context // config.page_size)
    fit = min(int(available * share) // per_page, config.max_running_requests * one)
    if fit < one and one <= int(available * max(_HALF, share)) // per_page:
        return one
    if fit < one:
        raise RequestError(
            f"configuring the engine: one request of {context} tokens needs {_size(one * per_page)} of KV memory, and "
            f"{_size(available)} are free, of which the pool takes at most half; lower context_length, or give "
            "max_total_tokens and have longer requests refused"
        )
    return fit


def _asked_pages(config: EngineConfig) -> int:
    """Pages of `max_total_tokens`, which is given.

    Raises:
        RequestError: it holds not one.
    """
    assert config.max_total_tokens is not None, "no size of the pool is asked for"
    pages = config.max_total_tokens // config.page_size
    if pages < 1:
        raise RequestError(
            f"configuring the engine: max_total_tokens={config.max_total_tokens} leaves no room for one page of "
            f"{config.page_size} tokens; raise it"
        )
    return pages


def _size(number: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if number < 1024:
            return f"{number:.0f} {unit}"
        number /= 1024
    return f"{number:.1f} GiB"
