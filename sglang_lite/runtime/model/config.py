"""The numbers that define a decoder model, and how they are read from GGUF metadata."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sglang_lite.errors import ModelLoadError


@dataclass(frozen=True)
class RopeScaling:
    """Positions are divided by `factor` before rotation (the kind called linear)."""

    factor: float


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
        head_dim: width of one head.
        vocab_size: rows of the embedding.
        rms_norm_eps: epsilon of the norms.
        rope_theta: base of the rotary frequencies.
        rope_scaling: change of the rotary positions, if any.
        max_position: longest sequence, in tokens.
        tie_word_embeddings: the head is the embedding.
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
    rope_theta: float
    rope_scaling: RopeScaling | None
    max_position: int
    tie_word_embeddings: bool
    dtype: str = "float32"

    @staticmethod
    def from_gguf(metadata: Mapping[str, Any], tie_word_embeddings: bool, path: Path) -> ModelConfig:
        """Read and check the configuration.

        Args:
            metadata: as in `GgufFile.metadata`.
            tie_word_embeddings: whether the file lacks a head of its own.
            path: named in errors.

        Raises:
            ModelLoadError: keys are missing (all are named) or values contradict each other.

        """
        keys = _Keys(metadata, path)
        hidden, heads = keys.count("embedding_length"), keys.count("attention.head_count")
        vocab = keys.vocab_size()
        keys.raise_missing()
        head_dim = keys.count(
            "attention.key_length", default=keys.count("rope.dimension_count", default=hidden // max(heads, 1))
        )
        config = ModelConfig(
            architecture=keys.architecture,
            hidden_size=hidden,
            intermediate_size=keys.count("feed_forward_length"),
            num_layers=keys.count("block_count"),
            num_heads=heads,
            num_kv_heads=keys.count("attention.head_count_kv", default=heads),
            head_dim=head_dim,
            vocab_size=vocab,
            rms_norm_eps=keys.number("attention.layer_norm_rms_epsilon"),
            rope_theta=keys.number("rope.freq_base", default=10000.0),
            rope_scaling=keys.rope_scaling(),
            max_position=keys.count("context_length"),
            tie_word_embeddings=tie_word_embeddings,
        )
        keys.raise_missing()
        config._check(path, keys)
        return config

    def _check(self, path: Path, keys: _Keys) -> None:
        if self.num_heads % self.num_kv_heads:
            raise ModelLoadError(
                f"{path}: {self.num_heads} query heads cannot share {self.num_kv_heads} kv heads evenly"
            )
        if self.head_dim % 2:
            raise ModelLoadError(f"{path}: head_dim is {self.head_dim}; rotary positions need an even one")
        for name in ("rope.dimension_count", "attention.value_length"):
            if keys.count(name, default=self.head_dim) != self.head_dim:
                raise ModelLoadError(
                    f"{path}: {self.architecture}.{name} is {keys.count(name)}, head_dim is {self.head_dim};"
                    " only full rotation and equal key and value widths are built"
                )


def architecture_of(metadata: Mapping[str, Any], path: Path) -> str:
    """The architecture that GGUF metadata names.

    Raises:
        ModelLoadError: it names none.

    """
    architecture = metadata.get("general.architecture")
    if not isinstance(architecture, str):
        raise ModelLoadError(f"{path}: metadata lacks 'general.architecture', so the kind of model is unknown")
    return architecture


class _Keys:
    """Typed look-ups under the architecture's prefix; collects the missing ones so that one error names them all."""

    def __init__(self, metadata: Mapping[str, Any], path: Path) -> None:
        self._metadata = metadata
        self._path = path
        self._missing: list[str] = []
        self.architecture = architecture_of(metadata, path)

    def raise_missing(self) -> None:
        if self._missing:
            raise ModelLoadError(f"{self._path}: metadata lacks {', '.join(repr(key) for key in self._missing)}")

    def count(self, name: str, default: int | None = None) -> int:
        """A whole number of at least 1."""
        key = f"{self.architecture}.{name}"
        value = self._metadata.get(key, default)
        if value is None:
            self._missing.append(key)
            return 1
        if not isinstance(value, int) or value < 1:
            raise ModelLoadError(
                f"{self._path}: metadata {key!r} is {_short(value)}, expected a whole number of at least 1"
            )
        return value

    def number(self, name: str, default: float | None = None) -> float:
        """A positive number."""
        key = f"{self.architecture}.{name}"
        value = self._metadata.get(key, default)
        if value is None:
            self._missing.append(key)
            return 1.0
        if not isinstance(value, int | float) or not value > 0:
            raise ModelLoadError(f"{self._path}: metadata {key!r} is {_short(value)}, expected a positive number")
        return float(value)

    def vocab_size(self) -> int:
        """The size that the file states, else the number of its tokens."""
        tokens = self._metadata.get("tokenizer.ggml.tokens")
        return self.count("vocab_size", default=len(tokens) if isinstance(tokens, list) and tokens else None)

    def rope_scaling(self) -> RopeScaling | None:
        kind = self._metadata.get(f"{self.architecture}.rope.scaling.type", "none")
        if kind == "none":
            return None
        if kind != "linear":
            raise ModelLoadError(f"{self._path}: rope scaling of type {kind!r} is not built (known: none, linear)")
        return RopeScaling(self.number("rope.scaling.factor"))


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
