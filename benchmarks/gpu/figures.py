"""How fast the device path is, beside what the device itself can do: memory reads, matrix products, gaps between steps."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import torch

from benchmarks.gpu.model_checks import with_graphs
from benchmarks.gpu.random_model import (
    LLAMA_8B,
    PAGE,
    TINY,
    make_batch,
    make_model,
    make_pool,
    matrix_weights,
    pages_of,
    weight_bytes,
)
from benchmarks.gpu.runs import Model, Server, timed_run
from benchmarks.gpu.setting import Setting, seconds_of
from sglang_lite.runtime.attention.forward_batch import ForwardBatch
from sglang_lite.runtime.attention.triton import TritonAttention
from sglang_lite.runtime.engine.spans import Spans, idle_share
from sglang_lite.runtime.engine.step_spans import tools_for
from sglang_lite.runtime.execution.graph_model import GraphedModel
from sglang_lite.runtime.model.config import ModelConfig
from sglang_lite.runtime.model.llama import LlamaForCausalLM

_made: dict[tuple[str, str], LlamaForCausalLM] = {}
"""The model, made once for all sections: 16 GB of random numbers take a while."""


def _config(setting: Setting) -> ModelConfig:
    return TINY if setting.size == "cpu" else LLAMA_8B


def _dtype(setting: Setting) -> torch.dtype:
    return torch.bfloat16 if setting.is_gpu else torch.float32


def _model(setting: Setting) -> LlamaForCausalLM:
    key = (setting.device, setting.size)
    if key not in _made:
        _made[key] = make_model(_config(setting), setting.device, _dtype(setting))
    return _made[key]


def read_rate(setting: Setting) -> float:
    """Bytes a second that a sum over a large tensor reads: what a step that reads all weights once can reach at most."""
    numbers = 1 << 12 if not setting.is_gpu else 1 << 31
    data = torch.ones(numbers, dtype=torch.int8, device=setting.device).view(torch.int32)
    copy = torch.empty_like(data)
    seconds = seconds_of(setting, lambda: copy.copy_(data), 5)
    return 2 * numbers / seconds


def product_rate(setting: Setting) -> float:
    """Floating-point operations a second of a large matrix product."""
    size = 64 if not setting.is_gpu else 8192
    left, right = (torch.randn(size, size, device=setting.device).to(_dtype(setting)) for _ in range(2))
    return 2 * size**3 / seconds_of(setting, lambda: left @ right, 10)


def measure_decode(setting: Setting) -> dict[str, Any]:
    """Step time with graphs at several numbers of rows, beside the time that reading weights, keys and values takes."""
    config, model = _config(setting), _model(setting)
    rate = read_rate(setting)
    found: dict[str, Any] = {"read_bytes_per_s": rate}
    batches = {"full": (1, 8, 64, 256), "quick": (1, 64), "cpu": (1, 2)}[setting.size]
    length = 24 if setting.size == "cpu" else 512
    context = 64 if setting.size == "cpu" else 1024
    kv_bytes = 2 * config.num_layers * config.num_kv_heads * config.head_dim * _dtype(setting).itemsize
    repeats, together = {"full": (6, 5), "quick": (3, 5), "cpu": (1, 1)}[setting.size]
    whole = make_batch([1] * batches[-1], [length] * batches[-1], config.vocab_size, setting.device)
    pool = make_pool(config, pages_of(whole), setting.device, _dtype(setting))
    attention = TritonAttention(pool, config.num_heads)
    with torch.inference_mode():
        for rows in batches:
            runs = with_graphs(setting, model, attention, (rows,), context)
            fb = make_batch([1] * rows, [length] * rows, config.vocab_size, setting.device)
            step = partial(_decode_step, runs, fb, attention)
            seconds = seconds_of(setting, step, repeats, together)
            bound = (weight_bytes(model) + rows * (length + 1) * kv_bytes) / rate
            found[f"batch {rows}"] = {
                "step_ms": 1e3 * seconds,
                "bound_ms": 1e3 * bound,
                "share_of_bound": bound / seconds,
                "tokens_per_s": rows / seconds,
            }
            del runs, step
    return found


def _decode_step(runs: GraphedModel, fb: ForwardBatch, attention: TritonAttention) -> torch.Tensor:
    return runs.logits(runs.forward(fb, attention)).argmax(dim=-1)


def measure_prefill(setting: Setting) -> dict[str, Any]:
    """Operations a second of a prompt's layers, beside those of a large matrix product. Attention is counted, the head is not."""
    config, model = _config(setting), _model(setting)
    rate = product_rate(setting)
    found: dict[str, Any] = {"product_flop_per_s": rate}
    for length in {"full": (1024, 4096), "quick": (2048,), "cpu": (40,)}[setting.size]:
        fb = make_batch([length], [0], config.vocab_size, setting.device)
        pool = make_pool(config, pages_of(fb), setting.device, _dtype(setting))
        attention = TritonAttention(pool, config.num_heads)
        seconds = seconds_of(setting, lambda b=fb, a=attention: model.forward(b, a), 1 if setting.size == "cpu" else 5)
        attention_work = 2 * config.num_layers * config.num_heads * config.head_dim * length * length
        work = 2 * matrix_weights(config) * length + attention_work
        found[f"{length} tokens"] = {
            "seconds": seconds,
            "tokens_per_s": length / seconds,
            "flop_per_s": work / seconds,
            "share_of_products": work / seconds / rate,
        }
    return found


def _server(setting: Setting, num_pages: int, context: int, sizes: tuple[int, ...]) -> Server:
    """For as many requests at a time as the largest graph has rows."""
    config, model = _config(setting), _model(setting)
    pool = make_pool(config, num_pages, setting.device, _dtype(setting))
    attention = TritonAttention(pool, config.num_heads)
    graphed = with_graphs(setting, model, attention, sizes, context)
    made = Model(graphed, attention, pool, config.vocab_size, context, setting.device)
    return Server(made, overlap=True, max_running=sizes[-1])


def measure_idle(setting: Setting) -> dict[str, Any]:
    """How long the device stands still between the forwards and draws of decode steps, launched ahead."""
    rows, tokens = (2, 4) if setting.size == "cpu" else (64, 64)
    context = 64 if setting.size == "cpu" else 512
    server = _server(setting, rows * context // PAGE + 2, context, (rows,))
    random = np.random.default_rng(0)
    prompts = random.integers(0, _config(setting).vocab_size, (rows, 16)).tolist()
    timed_run(server, prompts, tokens)  # compiles what is not compiled
    _, timer = tools_for(setting.device)
    spans = Spans(device=timer)
    runner = server.runner
    spans.wrap(runner.model, "forward", "forward", on_device=True)
    spans.wrap(runner.model, "logits", "head", on_device=True)
    for name in ("apply_masks", "apply_penalties", "sample", "score"):
        spans.wrap(runner.ops, name, "sampling", on_device=True)
    _, counts = timed_run(server, prompts, tokens)
    spans.unwrap()
    on_device = spans.device_spans()
    decode = [span for span in on_device if span.part == "forward"][2:]
    only_decode = [span for span in on_device if decode and span.began_s >= decode[0].began_s]
    return {
        "rows": rows,
        "steps": counts["steps"],
        "step_ms": 1e3 * counts["seconds"] / max(counts["steps"], 1),
        "idle_share": idle_share(only_decode),
    }


def measure_shared_prefix(setting: Setting) -> dict[str, Any]:
    """W4: requests with one long beginning, a question of their own and a short answer each."""
    count, shared, own, tokens = (3, 40, 5, 3) if setting.size == "cpu" else (32, 800, 32, 16)
    context = 64 if setting.size == "cpu" else 1024
    server = _server(setting, count * (-(-(own + tokens) // PAGE) + 2) + shared // PAGE + 2, context, (count,))
    vocab = _config(setting).vocab_size
    results = []
    for seed in (1, 2):  # the first warms up, on another text
        random = np.random.default_rng(seed)
        beginning = random.integers(0, vocab, shared).tolist()
        prompts = [beginning + random.integers(0, vocab, own).tolist() for _ in range(count)]
        results.append(timed_run(server, prompts, tokens)[1])
    figures = results[-1]
    return {
        "requests": count,
        "requests_per_s": count / figures["seconds"],
        "prompt_tokens_computed": figures["computed_tokens"],
        "optimum": shared + count * own,
    }


def measure_tree(setting: Setting) -> dict[str, Any]:
    """W6: a tree of thought, each level's nodes going on from their parents' texts."""
    root, widths, tokens = (24, (2, 4), 4) if setting.size == "cpu" else (512, (4, 16, 64), 24)
    context = 64 if setting.size == "cpu" else 1024
    server = _server(setting, widths[-1] * 6 + root // PAGE + 40, context, widths)
    vocab = _config(setting).vocab_size
    seconds = 0.0
    for seed in (1, 2):
        random = np.random.default_rng(seed)
        seconds, computed = 0.0, 0.0
        parents = [random.integers(0, vocab, root).tolist()]
        for width in widths:
            prompts = [
                [*parents[i * len(parents) // width], *random.integers(0, vocab, 4).tolist()] for i in range(width)
            ]
            outputs, figures = timed_run(server, prompts, tokens)
            seconds += figures["seconds"]
            computed += figures["computed_tokens"]
            parents = [[*prompt, *output] for prompt, output in zip(prompts, outputs, strict=True)]
    nodes = sum(widths)
    return {"nodes": nodes, "nodes_per_s": nodes / seconds, "prompt_tokens_computed": computed}
