"""Llama layers with experts in place of the MLP: Mixtral, and Qwen3-MoE, which differs by settings only."""

from __future__ import annotations

from sglang_lite.runtime.model.config import ModelConfig
from sglang_lite.runtime.model.decoder import Decoder
from sglang_lite.runtime.model.linear import LinearFactory
from sglang_lite.runtime.model.llama import LlamaLayer
from sglang_lite.runtime.model.moe import SparseMLP


class MixtralForCausalLM(Decoder):
    """A decoder of `LlamaLayer`s, whose MLPs are experts but where the configuration names a layer as dense."""

    def __init__(self, config: ModelConfig, linear: LinearFactory) -> None:
        super().__init__(config, linear, _layer)


def _layer(config: ModelConfig, layer: int, linear: LinearFactory) -> LlamaLayer:
    experts = config.experts_of(layer)
    sparse = None if experts is None else SparseMLP(config.hidden_size, experts, config.activation)
    return LlamaLayer(config, layer, linear, sparse)
