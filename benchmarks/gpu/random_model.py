"""Models with random weights made where they run, and the pools and batches to run them with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from sglang_lite.runtime.attention.forward_batch import ForwardBatch
from sglang_lite.runtime.attention.kv_pool import KvPool
from sglang_lite.runtime.model.config import ModelConfig
from sglang_lite.runtime.model.linear import DenseLinear
from sglang_lite.runtime.model.llama import LlamaForCausalLM
from sglang_lite.runtime.model.model_form import ModelForm, make_placed
from sglang_lite.runtime.model.rope import RopeConfig, RotaryEmbedding

PAGE = 16

LLAMA_8B = ModelConfig(
    architecture="llama",
    hidden_size=4096,
    intermediate_size=14336,
    num_layers=32,
    num_heads=32,
    num_kv_heads=8,
    head_dim=128,
    vocab_size=128256,
    rms_norm_eps=1e-5,
    max_position=8192,
    tie_word_embeddings=False,
    rope=RopeConfig(theta=500000.0),
)
SMOLLM2 = ModelConfig(
    architecture="llama",
    hidden_size=576,
    intermediate_size=1536,
    num_layers=30,
    num_heads=9,
    num_kv_heads=3,
    head_dim=64,
    vocab_size=49152,
    rms_norm_eps=1e-5,
    max_position=8192,
    tie_word_embeddings=True,
    rope=RopeConfig(theta=100000.0),
)
TINY = replace(
    SMOLLM2,
    hidden_size=64,
    intermediate_size=96,
    num_layers=2,
    num_heads=3,
    num_kv_heads=1,
    head_dim=32,
    vocab_size=307,
)
"""What the interpreter can run in seconds."""


def make_model(config: ModelConfig, device: str, dtype: torch.dtype, seed: int = 0) -> LlamaForCausalLM:
    """A Llama of these sizes. Norms are 1, all else normal with the deviation that keeps activations at about 1."""
    model = make_placed(lambda: LlamaForCausalLM(config, DenseLinear), ModelForm(device, dtype))
    random = torch.Generator(device).manual_seed(seed)
    with torch.inference_mode():
        for module in model.modules():
            if isinstance(module, RotaryEmbedding):
                continue
            for parameter in module._parameters.values():
                if parameter is None:
                    continue
                if parameter.dim() == 1:
                    parameter.fill_(1.0)
                else:
                    parameter.normal_(0.0, parameter.shape[1] ** -0.5, generator=random)
    return model


def make_pool(config: ModelConfig, num_pages: int, device: str, dtype: torch.dtype) -> KvPool:
    """A pool as GPUs read it."""
    sizes = (config.num_layers, num_pages, config.num_kv_heads, config.head_dim, PAGE)
    return KvPool(*sizes, device, dtype, token_major=True)


def make_batch(
    extends: Sequence[int], prefixes: Sequence[int], vocab: int, device: str, shared_pages: int = 0, seed: int = 0
) -> ForwardBatch:
    """Rows of random tokens on pages of their own from page 1 on; all share their first `shared_pages` pages."""
    random = np.random.default_rng(seed)
    lens = np.array(extends) + np.array(prefixes)
    counts = -(-lens // PAGE)
    table = np.zeros((len(lens), int(counts.max())), dtype=np.int32)
    after = 1 + shared_pages
    for row, count in enumerate(counts.tolist()):
        own = max(count - shared_pages, 0)
        table[row, : min(shared_pages, count)] = np.arange(1, 1 + min(shared_pages, count))
        table[row, shared_pages : shared_pages + own] = np.arange(after, after + own)
        after += own
    ids = random.integers(0, vocab, sum(extends))
    return ForwardBatch.build(ids, np.array(extends), np.array(prefixes), table, PAGE, device)


def pages_of(fb: ForwardBatch) -> int:
    """Pages that a pool needs for a batch, the sink included."""
    return int(fb.host.page_table.max(initial=0)) + 1


def weight_bytes(model: LlamaForCausalLM) -> int:
    """Bytes that a decode step reads of the weights: all matrices once, of an embedding that is no head nothing."""
    parameters = {id(p): p for p in model.parameters()}
    if not model.config.tie_word_embeddings:
        parameters.pop(id(model.embed))
    return sum(p.numel() * p.element_size() for p in parameters.values())


def matrix_weights(config: ModelConfig) -> int:
    """Numbers of the layers' matrices, each of which is multiplied once a token."""
    qkv = config.hidden_size * config.head_dim * (config.num_heads + 2 * config.num_kv_heads)
    out = config.num_heads * config.head_dim * config.hidden_size
    return config.num_layers * (qkv + out + 3 * config.hidden_size * config.intermediate_size)
