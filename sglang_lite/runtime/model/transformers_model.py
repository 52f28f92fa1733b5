"""Causal models that have no class of ours, run by transformers' own modules over our paged attention.

transformers looks attention up by name; under ours stands a function that hands queries, keys and values to the attention
backend of the step. All tokens of a step go through the modules as one sequence with their own positions; nothing but
attention looks from one token to another. Imported only where such a model is loaded: transformers is heavy.
"""

from __future__ import annotations

import logging
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import torch
import transformers
from torch import nn
from transformers import AttentionInterface, AutoConfig, AutoModelForCausalLM
from transformers.masking_utils import AttentionMaskInterface
from transformers.modeling_outputs import BaseModelOutputWithPastAndCrossAttentions

from sglang_lite.errors import ModelLoadError
from sglang_lite.runtime.attention.base import AttentionBackend, LayerAttention
from sglang_lite.runtime.attention.forward_batch import ForwardBatch
from sglang_lite.runtime.model.config import ModelConfig
from sglang_lite.runtime.model.registry import ARCHITECTURES

logger = logging.getLogger(__name__)

_NAME = "sglang_lite_paged"
_BATCH_DEPENDENT_ROPES = ("dynamic", "longrope")


class TransformersCausalLM:
    """A `CausalLM` of transformers' modules. One thread uses it at a time."""

    def __init__(self, model: Any, config: ModelConfig, layers: list[str]) -> None:
        """Bind to a loaded model; `layers`: names of its attention modules in the order of the KV pool's layers."""
        self.config = config
        self._attention: AttentionBackend | None = None
        self._body = model.base_model
        modules = dict(model.named_modules())
        for index, name in enumerate(layers):
            _owners[modules[name]] = (self._attend, index)
        # What is left of the model without its body is the head, with whatever its class does to logits.
        setattr(model, model.base_model_prefix, _PassOn())
        self._head = model

    @torch.inference_mode()
    def forward(self, fb: ForwardBatch, attention: AttentionBackend) -> torch.Tensor:
        """See `Decoder.forward`."""
        attention.plan(fb)
        self._attention = attention
        out = _run(self._body, fb.input_ids[None], fb.positions[None])
        self._attention = None
        return out.last_hidden_state[0]

    @torch.inference_mode()
    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """See `Decoder.logits`."""
        return self._head(inputs_embeds=hidden[None], use_cache=False).logits[0].float()

    def _attend(
        self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, options: LayerAttention
    ) -> torch.Tensor:
        assert self._attention is not None, "attention was called outside of a step"
        return self._attention.forward(q, k, v, layer, options)


def _run(body: Any, ids: torch.Tensor, positions: torch.Tensor) -> Any:
    """Tokens through a model's body; with a mask that hides nothing nobody looks for borders of packed sequences."""
    return body(input_ids=ids, position_ids=positions, attention_mask=torch.ones_like(ids), use_cache=False)


class _PassOn(nn.Module):
    """Stands where a model's body was: what it is given is what it gives."""

    def forward(self, *_: Any, inputs_embeds: torch.Tensor, **__: Any) -> BaseModelOutputWithPastAndCrossAttentions:
        return BaseModelOutputWithPastAndCrossAttentions(last_hidden_state=inputs_embeds)  # pyright: ignore[reportArgumentType]


_owners: WeakKeyDictionary[nn.Module, tuple[Any, int]] = WeakKeyDictionary()
"""Attention module -> who attends for it, and its layer."""


def _paged(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None = None,
    scaling: float | None = None,
    **options: Any,
) -> tuple[torch.Tensor, None]:
    """What transformers calls; [1, heads, T, head_dim] each, gives [1, T, query heads, head_dim]."""
    attend, layer = _owners[module]
    asked = LayerAttention(scaling, options.get("sliding_window"), options.get("softcap"))
    out = attend(layer, *(x[0].transpose(0, 1) for x in (query, key, value)), asked)
    return out[None], None


AttentionInterface.register(_NAME, _paged)
AttentionMaskInterface.register(_NAME, lambda *_, **__: None)


def transformers_config(path: Path, class_name: str) -> ModelConfig:
    """Sizes of a model folder that transformers knows, without its weights.

    Raises:
        ModelLoadError: transformers does not know it, or it cannot run over paged attention; says which.

    """
    return _probe(path, class_name)[1]


def load_transformers(
    path: Path, class_name: str, device: str = "cpu", dtype: torch.dtype = torch.float32
) -> TransformersCausalLM:
    """Load a model folder; its weights go through main memory in `dtype` on their way to `device`.

    Raises:
        ModelLoadError: see `transformers_config`; or a weight is missing or of another shape.

    """
    their_config, config, layers = _probe(path, class_name)
    try:
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            path,
            config=their_config,
            dtype=dtype,
            attn_implementation=_NAME,
            local_files_only=True,
            use_safetensors=True,
            output_loading_info=True,
        )
    except (OSError, RuntimeError, ValueError) as error:
        raise ModelLoadError(f"{path}: transformers cannot load the weights ({error}); download them again") from error
    model, report = loaded
    if report["missing_keys"]:
        names = ", ".join(sorted(report["missing_keys"])[:3])
        raise ModelLoadError(f"{path}: missing tensors: {names}; the model is incomplete, download it again")
    config = replace(config, dtype=str(dtype).removeprefix("torch."))
    return TransformersCausalLM(model.eval().to(device), config, layers)


def _probe(path: Path, class_name: str) -> tuple[Any, ModelConfig, list[str]]:
    """The configuration of transformers, ours, and the attention modules, found by sending one token through a model without weights."""
    their = _their_config(path, class_name)
    with torch.device("meta"):
        model: Any = AutoModelForCausalLM.from_config(their, attn_implementation=_NAME).eval()
    if "ALL_ATTENTION_FUNCTIONS" not in vars(sys.modules[type(model).__module__]):
        raise ModelLoadError(
            f"{path}: {class_name} does not look its attention up by name in transformers {transformers.__version__},"
            " so it cannot run over paged keys and values; use a model of another architecture"
        )
    seen: list[tuple[nn.Module, tuple[int, int, int, int]]] = []
    names = {module: name for name, module in model.named_modules()}
    for module in names:
        _owners[module] = (_Recorder(module, seen), 0)
    token = torch.zeros((1, 1), dtype=torch.int64, device="meta")
    with torch.inference_mode():
        _run(model.base_model, token, token)
    sizes = {size for _, size in seen}
    if len(sizes) != 1 or len({id(module) for module, _ in seen}) != len(seen):
        raise ModelLoadError(
            f"{path}: {class_name} has attention of {len(sizes)} sizes in {len(seen)} calls; only layers of one size,"
            " each with keys and values of its own, are built"
        )
    heads, kv_heads, head_dim, value_dim = sizes.pop()
    if head_dim != value_dim:
        raise ModelLoadError(
            f"{path}: {class_name} has keys of {head_dim} and values of {value_dim}; equal ones are built"
        )
    config = ModelConfig(
        architecture=class_name,
        hidden_size=their.hidden_size,
        intermediate_size=1,
        num_layers=len(seen),
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=head_dim,
        vocab_size=model.get_output_embeddings().weight.shape[0],
        rms_norm_eps=1.0,
        max_position=their.max_position_embeddings,
        tie_word_embeddings=bool(their.tie_word_embeddings),
    )
    return their, config, [names[module] for module, _ in seen]


class _Recorder:
    """Notes an attention module's sizes instead of attending."""

    def __init__(self, module: nn.Module, seen: list[tuple[nn.Module, tuple[int, int, int, int]]]) -> None:
        self._module, self._seen = module, seen

    def __call__(
        self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, options: LayerAttention
    ) -> torch.Tensor:
        self._seen.append((self._module, (q.shape[1], k.shape[1], k.shape[2], v.shape[2])))
        return torch.empty((*q.shape[:2], v.shape[2]), device=q.device)


def _their_config(path: Path, class_name: str) -> Any:
    config: Any = None
    found = None
    try:
        config = AutoConfig.from_pretrained(path, local_files_only=True)
        known: Any = AutoModelForCausalLM._model_mapping[type(config)]
        found = known.__name__
    except (OSError, ValueError, KeyError) as error:
        logger.debug("%s: transformers does not know it (%s)", path, error)
    if found != class_name:
        ours = ", ".join(sorted(entry.class_name for entry in ARCHITECTURES))
        raise ModelLoadError(
            f"{path / 'config.json'}: unknown architecture {class_name!r} (known: {ours}, and the causal language models of"
            f" transformers {transformers.__version__}, of which 'model_type' names {found or 'none'})"
        )
    rope = config.to_dict().get("rope_parameters") or {}
    kinds = {str(part.get("rope_type")) for part in (rope, *rope.values()) if isinstance(part, dict)}
    if batch_dependent := sorted(kinds.intersection(_BATCH_DEPENDENT_ROPES)):
        raise ModelLoadError(
            f"{path}: rotary positions of type {batch_dependent[0]!r} turn a token by the longest sequence beside it in the modules"
            f" of {class_name}; keys that requests share cannot"
        )
    return config
