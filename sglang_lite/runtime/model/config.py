"""The numbers that define a decoder model. Knows no file format."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from sglang_lite.errors import ModelLoadError
from sglang_lite.runtime.attention.base import LayerAttention
from sglang_lite.runtime.model.rope import PLAIN_ROPE, RopeConfig

Activation = Literal["silu", "gelu_tanh"]


@dataclass(frozen=True)
class ExpertsConfig:
    """A layer's MLP as experts.

    Attributes:
        count: how many.
        per_token: how many of them a token takes.
        intermediate_size: width inside each.
        renormalise: a token's weights of its experts are scaled to a sum of 1.

    """

    count: int
    per_token: int
    intermediate_size: int
    renormalise: bool


@dataclass(frozen=True)
class ModelConfig:
    """Sizes and constants of one decoder model.

    Attributes:
        architecture: name in the registry (`llama`).
        hidden_size: width of the residual stream.
        intermediate_size: width inside the MLP.
        num_layers: decoder layers.
        num_heads: query heads.
        num_kv_heads: key/value heads; divides `num_heads`.
        head_dim: width of one head; even.
        vocab_size: rows of the embedding.
        rms_norm_eps: epsilon of the norms.
        max_position: longest sequence, in tokens.
        tie_word_embeddings: the head is the embedding.
        rope: how positions rotate queries and keys.
        windows: for each layer how many tokens a token sees, itself included; None: all before it. Empty: None everywhere.
        attention_scale: factor on the attention scores; None: `head_dim ** -0.5`.
        attention_soft_cap: bound of the attention scores (`LayerAttention.soft_cap`).
        logit_soft_cap: bound of the logits, of the same form.
        embedding_scale: factor on the embeddings.
        activation: of the MLP's gate.
        qkv_bias: queries, keys and values have a bias.
        out_bias: the attention's output projection has a bias.
        mlp_bias: the MLP's projections have a bias.
        qk_norm: queries and keys are normalised head by head.
        experts: what stands in place of the MLP; None: the MLP.
        dense_layers: numbers of the layers that have the MLP all the same.
        dtype: of weights and activations.

    """

    architecture: str
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    rms_norm_eps: float
    max_position: int
    tie_word_embeddings: bool
    rope: RopeConfig = PLAIN_ROPE
    windows: tuple[int | None, ...] = ()
    attention_scale: float | None = None
    attention_soft_cap: float | None = None
    logit_soft_cap: float | None = None
    embedding_scale: float = 1.0
    activation: Activation = "silu"
    qkv_bias: bool = False
    out_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False
    experts: ExpertsConfig | None = None
    dense_layers: frozenset[int] = frozenset()
    dtype: str = "float32"

    def attention_of(self, layer: int) -> LayerAttention:
        """What layer number `layer` asks of the attention backend."""
        window = self.windows[layer] if self.windows else None
        return LayerAttention(self.attention_scale, window, self.attention_soft_cap)

    def experts_of(self, layer: int) -> ExpertsConfig | None:
        """The experts of layer number `layer`; None: it has the plain MLP."""
        return None if layer in self.dense_layers else self.experts

    @property
    def beyond_plain(self) -> tuple[str, ...]:
        """What the model asks for beyond a Llama without settings, by name: for whoever runs plain ones only."""
        asked = {
            "sliding window": any(self.windows),
            "attention scale": self.attention_scale is not None,
            "attention soft cap": self.attention_soft_cap is not None,
            "logit soft cap": self.logit_soft_cap is not None,
            "embedding scale": self.embedding_scale != 1.0,
            f"{self.activation} activation": self.activation != "silu",
            "biases": self.qkv_bias or self.out_bias or self.mlp_bias,
            "query and key norms": self.qk_norm,
            "experts": self.experts is not None,
        }
        return tuple(name for name, here in asked.items() if here)

    def check(self, path: Path) -> None:
        """See that the numbers go together.

        Args:
            path: named in errors.

        Raises:
            ModelLoadError: they do not.

        """
        if self.num_heads % self.num_kv_heads:
            raise ModelLoadError(
                f"{path}: {self.num_heads} query heads cannot share {self.num_kv_heads} kv heads evenly"
            )
        if self.head_dim % 2:
            raise ModelLoadError(f"{path}: head_dim is {self.head_dim}; rotary positions need an even one")
        if self.head_dim < 4 and self.rope.kind == "dynamic":
            raise ModelLoadError(f"{path}: head_dim is {self.head_dim}; dynamic rotary positions need at least 4")
        if self.experts is not None and self.experts.per_token > self.experts.count:
            raise ModelLoadError(
                f"{path}: a token takes {self.experts.per_token} experts, and a layer has {self.experts.count}"
            )
        assert len(self.windows) in (0, self.num_layers), f"{len(self.windows)} windows for {self.num_layers} layers"
