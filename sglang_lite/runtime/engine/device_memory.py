"""What a model takes of a GPU's memory beside its keys and values, from sizes alone: weights, activations, graphs."""

from __future__ import annotations

import math

from sglang_lite.runtime.config import EngineConfig
from sglang_lite.runtime.engine.model_sizes import ModelSizes
from sglang_lite.runtime.engine.placement import Placement
from sglang_lite.runtime.model.config import ModelConfig
from sglang_lite.runtime.model.linear_q4 import q4_kind
from sglang_lite.runtime.model.loader import gguf_weights

_WORKSPACE = 768 << 20
"""Bytes of workspaces of the libraries that multiply and attend, of captured graphs, and of what the allocator cannot use."""

_Q4_BITS = 5
"""Of a weight in a 4-bit matrix, its share of the group's two factors included."""

_HEAD_ROWS = 256
_HEAD_BYTES = 16
"""Bytes of one logit on its way to a token: in the model's type, in float32, after penalties, sorted."""


def device_weight_bytes(sizes: ModelSizes, placement: Placement) -> int:
    """What the weights take on the device, by the headers: 4-bit matrices where they are kept, all else in `dtype`."""
    item = placement.dtype.itemsize
    if sizes.gguf is None:
        return sizes.num_weights * item
    source = gguf_weights(*sizes.gguf)
    # The embedding is looked up row by row, in `dtype`.
    tensors = [tensor for name, tensor in sizes.gguf[0].tensors.items() if name != source.names.embed]
    kept = [tensor for tensor in tensors if placement.keeps_q4 and q4_kind([tensor])]
    num_kept = sum(math.prod(tensor.shape) for tensor in kept)
    return (sizes.num_weights - num_kept) * item + num_kept * _Q4_BITS // 8


def reserve_bytes(config: EngineConfig, model: ModelConfig, item: int) -> int:
    """What is left beside weights, keys and values: for a step (`step_bytes`), graphs and workspaces."""
    return step_bytes(config, model, item) + _WORKSPACE


def step_bytes(config: EngineConfig, model: ModelConfig, item: int) -> int:
    """What the tensors of a step take at most; numbers of activations have `item` bytes.

    An estimate from above: the tensors of one layer that live at a time, for as many tokens as a step may have.
    """
    chunk = config.max_prefill_tokens if config.chunked_prefill_size == -1 else config.chunked_prefill_size
    tokens = max(chunk, config.max_prefill_tokens) + config.max_running_requests
    heads = (model.num_heads + 2 * model.num_kv_heads) * model.head_dim
    a_token = item * (6 * model.hidden_size + 3 * model.intermediate_size + 4 * heads)
    logits = min(_HEAD_ROWS, max(config.max_running_requests, 1)) * model.vocab_size * _HEAD_BYTES
    return tokens * a_token + logits
