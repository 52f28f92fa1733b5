"""A whole model on the device: against the CPU, with and without graphs, with and without overlap."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from benchmarks.gpu.random_model import PAGE, SMOLLM2, TINY, make_batch, make_model, make_pool, pages_of
from benchmarks.gpu.runs import Model, Server, greedy
from benchmarks.gpu.setting import CheckError, Setting
from sglang_lite.runtime.attention.base import AttentionBackend
from sglang_lite.runtime.attention.kv_pool import KvPool
from sglang_lite.runtime.attention.torch_ref import TorchAttention
from sglang_lite.runtime.attention.triton import TritonAttention
from sglang_lite.runtime.execution.graph_model import Graph, GraphedModel, GraphFactory, GraphSettings
from sglang_lite.runtime.execution.graph_sizes import graph_sizes
from sglang_lite.runtime.model.config import ModelConfig
from sglang_lite.runtime.model.llama import LlamaForCausalLM
from sglang_lite.sampling_params import SamplingParams

_DIFFERENCES = {torch.float32: 1e-4, torch.bfloat16: 0.25}
"""Of a row's hidden states, as a share of its length: library products may be others for a padded number of rows, and thirty layers
make a few percent of one rounding to bfloat16. A row with what belongs to another one is off by more than 1.
"""

_MARGIN = 1e-2
"""Outputs may part where the two best logits are nearer than this: matrix products differ with the number of rows."""


class _Rerun:
    """A graph where there are none: the function again."""

    def __init__(self, launch: Callable[[], None]) -> None:
        self._launch = launch

    def replay(self) -> None:
        self._launch()

    def release(self) -> None:
        return


class RerunGraphs:
    """`GraphFactory` of a machine without graphs; buffers, padding and plans are what they are with them."""

    def capture(self, launch: Callable[[], None]) -> Graph:
        """See `GraphFactory.capture`."""
        launch()
        return _Rerun(launch)

    def free_bytes(self) -> int:
        """See `GraphFactory.free_bytes`: more than anything needs."""
        return 1 << 40


def graphs_of(setting: Setting) -> GraphFactory:
    """The device's."""
    if not setting.is_gpu:
        return RerunGraphs()
    from sglang_lite.runtime.execution.cuda_graph import CudaGraphs  # needs a GPU to be made

    return CudaGraphs()


def with_graphs(
    setting: Setting, model: LlamaForCausalLM, attention: TritonAttention, sizes: tuple[int, ...], context: int
) -> GraphedModel:
    """The model behind graphs of these sizes, ascending."""
    settings = GraphSettings(sizes, context, PAGE, setting.device)
    graphed = GraphedModel(model, attention, graphs_of(setting), settings)
    graphed.capture()
    return graphed


def _config(setting: Setting) -> ModelConfig:
    return TINY if setting.size == "cpu" else SMOLLM2


def check_against_cpu(setting: Setting) -> dict[str, Any]:
    """Teacher-forced: the best token after each of a text's tokens, in float32, on the device and on the CPU in plain torch."""
    config = _config(setting)
    length = 40 if setting.size == "cpu" else 384
    device_model = make_model(config, setting.device, torch.float32)
    host_model = make_model(config, "cpu", torch.float32)
    host_model.load_state_dict({name: value.cpu() for name, value in device_model.state_dict().items()})
    best: list[np.ndarray] = []
    logits: list[torch.Tensor] = []
    for model, device in ((device_model, setting.device), (host_model, "cpu")):
        pieces: list[torch.Tensor] = []
        fb = make_batch([length], [0], config.vocab_size, device)
        pool = make_pool(config, pages_of(fb), device, torch.float32)
        attention = TorchAttention(pool) if model is host_model else TritonAttention(pool, config.num_heads)
        half = length // 2
        for start, count in ((0, half), *((at, 1) for at in range(half, half + 8)), (half + 8, length - half - 8)):
            part = make_batch([count], [start], config.vocab_size, device)  # on the pages of the whole, from 1 on
            part = replace(part, input_ids=fb.input_ids[start : start + count])
            pieces.append(model.logits(model.forward(part, attention)))
        logits.append(torch.cat(pieces).cpu())
        best.append(logits[-1].argmax(dim=-1).numpy())
    equal = float((best[0] == best[1]).mean())
    error = float((logits[0] - logits[1]).abs().max())
    found = {"tokens": length, "equal_best_tokens": equal, "largest_logit_error": error}
    if equal < 0.99:
        raise CheckError(f"{equal:.2%} of the best tokens are those of the CPU, expected 99 %", found)
    return found


def check_graphs(setting: Setting) -> dict[str, Any]:
    """Steps replayed and computed as they are: the same hidden states, for every number of rows up to beyond the largest graph."""
    found: dict[str, Any] = {}
    for dtype, limit in _DIFFERENCES.items():
        if setting.is_gpu or dtype == torch.float32:
            found[str(dtype).removeprefix("torch.")] = _compare_replays(setting, dtype, limit)
    return found


def _compare_replays(setting: Setting, dtype: torch.dtype, limit: float) -> dict[str, Any]:
    config = _config(setting)
    largest = {"full": 32, "quick": 12, "cpu": 3}[setting.size]
    model = make_model(config, setting.device, dtype)
    prefixes = [7 * row + 3 for row in range(largest + 1)]
    whole = make_batch([1] * len(prefixes), prefixes, config.vocab_size, setting.device)
    pool = make_pool(config, pages_of(whole), setting.device, dtype)
    with torch.inference_mode():
        pool.k.normal_()
        pool.v.normal_()
        attention = TritonAttention(pool, config.num_heads, deterministic=True)
        graphed = with_graphs(setting, model, attention, graph_sizes(largest), 512)
        eager_attention = TritonAttention(pool, config.num_heads, deterministic=True)
        worst = 0.0
        for rows in range(1, largest + 2):
            fb = make_batch([1] * rows, prefixes[:rows], config.vocab_size, setting.device, seed=rows)
            replayed = graphed.forward(fb, attention).clone().float()
            eager = model.forward(fb, eager_attention).float()
            worst = max(worst, float(((replayed - eager).norm(dim=1) / eager.norm(dim=1)).max()))
    counters = graphed.counters.to_dict()
    found = {"sizes": list(graphed.sizes), "bytes": graphed.num_bytes, "largest_difference": worst} | counters
    if not worst <= limit:  # NaN, too
        raise CheckError(f"in {dtype} replayed and eager steps differ by {worst:.3g} of a row's length", found)
    if not graphed.counters.replays or sum(graphed.counters.eager.values()) != 1:
        raise CheckError(f"expected one eager step, that of {largest + 1} rows", found)
    return found


def check_overlap(setting: Setting) -> dict[str, Any]:
    """The same requests one step after the other, and launched ahead, in a pool so small that requests are retracted."""
    config = _config(setting)
    count, length, tokens = {"full": (24, 200, 120), "quick": (12, 200, 80), "cpu": (4, 20, 40)}[setting.size]
    model = make_model(config, setting.device, torch.float32)
    random = np.random.default_rng(0)
    shared = random.integers(0, config.vocab_size, length // 2).tolist()
    prompts = [shared + random.integers(0, config.vocab_size, length // 2).tolist() for _ in range(count)]
    per_prompt = -(-length // PAGE)
    # what all prompts hold at first, and about a third of what their answers will
    num_pages = 2 + count * (per_prompt - length // 2 // PAGE) + length // 2 // PAGE + count * tokens // PAGE // 3
    runs: dict[str, list[list[int]]] = {}
    found: dict[str, Any] = {}
    # no token ends a text here; a request that says so itself has its memory reserved, and nothing would be retracted
    best = replace(greedy(tokens), ignore_eos=False)
    for name, params in (("greedy", best), ("drawn", replace(best, temperature=0.8, seed=7))):
        for overlap in (False, True):
            pool = make_pool(config, num_pages, setting.device, torch.float32)
            made = Model(model, _exact_attention(setting, pool, config), pool, config.vocab_size, 512, setting.device)
            server = Server(made, overlap=overlap, conservativeness=0.05)
            runs[f"{name} {overlap}"] = server.run(prompts, params)
            found[f"{name}, retracts {'with' if overlap else 'without'} overlap"] = server.statistics().retractions
        found[f"{name}, requests that part at a near tie"] = _compare(
            setting, model, config, prompts, params, runs[f"{name} False"], runs[f"{name} True"]
        )
    if not all(value for key, value in found.items() if "retracts" in key):
        raise CheckError("nothing was retracted: the pool is too large to show anything", found)
    return found


def _exact_attention(setting: Setting, pool: KvPool, config: ModelConfig) -> AttentionBackend:
    """Ours where it is fast; what is looked at is the order of work, not the kernel."""
    return TritonAttention(pool, config.num_heads, deterministic=True) if setting.is_gpu else TorchAttention(pool)


def _compare(
    setting: Setting,
    model: LlamaForCausalLM,
    config: ModelConfig,
    prompts: Sequence[Sequence[int]],
    params: SamplingParams,
    one: Sequence[Sequence[int]],
    other: Sequence[Sequence[int]],
) -> int:
    """How many outputs part; where a greedy one does, the two tokens must be as good as equal in a forward of their own."""
    parted = 0
    for prompt, first, second in zip(prompts, one, other, strict=True):
        if list(first) == list(second):
            continue
        at = next(i for i, pair in enumerate(zip(first, second, strict=True)) if pair[0] != pair[1])
        parted += 1
        ids = [*prompt, *first[:at]]
        fb = replace(
            make_batch([len(ids)], [0], config.vocab_size, setting.device),
            input_ids=torch.tensor(ids, device=setting.device),
        )
        pool = make_pool(config, pages_of(fb), setting.device, torch.float32)
        attention = _exact_attention(setting, pool, config)
        logits = model.logits(model.forward(fb, attention)[-1:])[0]
        gap = abs(float(logits[first[at]] - logits[second[at]]))
        if params.is_greedy and gap > _MARGIN:
            raise CheckError(f"with and without overlap token {at} differs, and their logits by {gap:.3g}")
    limit = 0 if setting.size == "cpu" else len(prompts) // 8
    if not params.is_greedy and parted > limit:
        raise CheckError(f"{parted} of {len(prompts)} drawn outputs differ with and without overlap")
    return parted
