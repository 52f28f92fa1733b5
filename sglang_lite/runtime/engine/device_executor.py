"""Puts a model on a device: weights, attention, graphs and a first run that compiles what is not compiled. Knows no scheduler."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from subprocess import SubprocessError

import numpy as np
import torch

from sglang_lite.errors import UnsupportedError
from sglang_lite.runtime.attention.base import AttentionBackend
from sglang_lite.runtime.attention.forward_batch import ForwardBatch
from sglang_lite.runtime.attention.kv_pool import KvPool
from sglang_lite.runtime.config import EngineConfig
from sglang_lite.runtime.engine.device_memory import step_bytes
from sglang_lite.runtime.engine.model_executor import ModelExecutor, OpenedModel
from sglang_lite.runtime.engine.placement import Placement
from sglang_lite.runtime.execution.graph_model import GraphedModel, GraphSettings, graphed
from sglang_lite.runtime.execution.graph_sizes import graph_sizes
from sglang_lite.runtime.execution.model_runner import CausalModel
from sglang_lite.runtime.model.decoder import Decoder
from sglang_lite.runtime.model.loader import load_model
from sglang_lite.runtime.model.model_form import ModelForm

logger = logging.getLogger(__name__)

_SINK_PAGE = 0

_SHORT_PROMPT = 32
"""New tokens: too many to be split over keys as those of drafts are, and too few for large tiles."""


def open_on_device(path: Path, placement: Placement) -> OpenedModel:
    """The model's modules with their weights on the device, tensor by tensor.

    Raises:
        ModelLoadError: the model is missing or damaged.

    """
    assert placement.parts is not None, "no device to load on"
    is_exact = placement.config.enable_deterministic_inference
    pack_q4 = placement.parts.q4_packer(deterministic=is_exact) if placement.keeps_q4 else None
    loaded = load_model(path, form=ModelForm(placement.device, placement.dtype, pack_q4))
    return OpenedModel(path, loaded.config, loaded.metadata, None, loaded.module)


def run_on_device(
    placement: Placement,
    source: OpenedModel,
    pool: KvPool,
    context_length: int,
    progress: Callable[[str], None],
) -> ModelExecutor:
    """The opened model behind its graphs, and its attention; both have run once. One log line says what was chosen.

    Raises:
        RequestError: the graphs do not fit.

    """
    config, parts, model = placement.config, placement.parts, source.config
    assert parts is not None and pool.token_major, "a device's keys lie token by token"
    assert source.module is not None, "on a device the weights are loaded when the model is opened"
    attention = _attention(placement, pool, model.num_heads)
    progress("first steps on the device ...")
    attention = _first_steps(source, attention, placement, pool, context_length)
    runs = source.module
    if placement.graphs and not isinstance(source.module, Decoder):
        # They may wait for the device inside, which no recorded graph can.
        logger.info("%s runs on transformers' own modules: steps run without CUDA graphs", model.architecture)
    elif placement.graphs:
        sizes = graph_sizes(config.max_running_requests, config.cuda_graph_max_bs, config.cuda_graph_bs)
        settings = GraphSettings(
            sizes,
            context_length,
            config.page_size,
            placement.device,
            extend_tokens=_chunk_sizes(config),
            reserve_bytes=step_bytes(config, model, placement.dtype.itemsize),
        )
        runs = graphed(source.module, attention, parts.make_graphs(), settings, progress)
    captured = f"graphs for {list(runs.sizes)} rows" if isinstance(runs, GraphedModel) else "no graphs"
    kept = "4-bit matrices as stored, " if placement.keeps_q4 else ""
    logger.info(
        "%s runs on %s: %s%s, keys and values in %s, %s, %s",
        model.architecture,
        placement.name,
        kept,
        _short(placement.dtype),
        _short(placement.kv_dtype),
        type(attention).__name__,
        captured,
    )
    return ModelExecutor(runs, attention, "torch", type(attention).__name__)


def _attention(placement: Placement, pool: KvPool, num_heads: int) -> AttentionBackend:
    """What was chosen; where nobody asked for FlashInfer and it does not take this model, Triton's kernels."""
    parts = placement.parts
    assert parts is not None, "no device to attend on"
    is_exact = placement.config.enable_deterministic_inference
    try:
        return parts.make_attention(placement.attention, pool, num_heads, deterministic=is_exact)
    except UnsupportedError as error:
        if placement.config.attention_backend != "auto" or placement.attention == "triton":
            raise
        logger.warning("attention by Triton's kernels: %s", error)
        return parts.make_attention("triton", pool, num_heads, deterministic=is_exact)


def _first_steps(
    source: OpenedModel, attention: AttentionBackend, placement: Placement, pool: KvPool, context_length: int
) -> AttentionBackend:
    """Run the model once; where nobody asked for FlashInfer and its kernels do not compile here, with Triton's in their place."""
    model = source.module
    assert model is not None, "on a device the weights are loaded when the model is opened"
    try:
        _run_once(model, attention, placement, context_length)
    except (RuntimeError, OSError, SubprocessError) as error:
        is_chosen = placement.config.attention_backend == "auto" and placement.attention == "flashinfer"
        if not is_chosen or isinstance(error, torch.OutOfMemoryError):
            raise
        why = str(error).strip().split("\n")[0] or type(error).__name__
        logger.warning("attention by Triton's kernels: FlashInfer's did not run: %s", why)
    else:
        return attention
    plain = _attention(replace(placement, attention="triton"), pool, source.config.num_heads)
    _run_once(model, plain, placement, context_length)
    return plain


@torch.inference_mode()
def _run_once(model: CausalModel, attention: AttentionBackend, placement: Placement, context_length: int) -> None:
    """A long prompt, a short one and a step of one token, on the sink page: kernels, which differ with the number of new tokens, are
    compiled, libraries take their workspaces.
    """
    config = placement.config
    chunk = config.max_prefill_tokens if config.chunked_prefill_size == -1 else config.chunked_prefill_size
    for size in (min(chunk, context_length), min(_SHORT_PROMPT, context_length), 1):
        pages = np.full((1, -(-size // config.page_size)), _SINK_PAGE, dtype=np.int32)
        zeros = np.zeros(size, dtype=np.int64)
        fb = ForwardBatch.build(zeros, np.array([size]), np.array([0]), pages, config.page_size, placement.device)
        model.logits(model.forward(fb, attention)[-1:])


def _chunk_sizes(config: EngineConfig) -> tuple[int, ...]:
    """Numbers of new tokens of one row that get a graph: what long prompts are cut into, if that is asked for."""
    is_cut = config.cuda_graph_prefill and config.chunked_prefill_size != -1
    return (config.chunked_prefill_size,) if is_cut else ()


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
