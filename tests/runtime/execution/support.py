"""Small parts that the execution tests share: plans by hand, a tiny random Llama, attention without pages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from sglang_lite.request_tree import LogprobParams, SamplingParams
from sglang_lite.runtime.attention.base import PLAIN, LayerAttention
from sglang_lite.runtime.attention.forward_batch import ForwardBatch
from sglang_lite.runtime.model.config import ModelConfig
from sglang_lite.runtime.model.linear import Fp32Linear
from sglang_lite.runtime.model.llama import LlamaForCausalLM
from sglang_lite.runtime.scheduler.messages import GrammarCursor
from sglang_lite.runtime.scheduler.plan import ForwardMode, LogprobTarget, PageCopy, Plan, RowPlan, SampleSpec

TINY = ModelConfig(
    architecture="llama",
    hidden_size=32,
    intermediate_size=48,
    num_layers=2,
    num_heads=4,
    num_kv_heads=2,
    head_dim=16,
    vocab_size=97,
    rms_norm_eps=1e-5,
    max_position=256,
    tie_word_embeddings=True,
)


def tiny_llama(seed: int = 0) -> LlamaForCausalLM:
    """Two layers with random weights large enough that logits differ clearly between tokens."""
    model = LlamaForCausalLM(TINY, Fp32Linear)
    generator = torch.Generator().manual_seed(seed)
    for name, weight in model.named_parameters():
        if "norm" not in name and "freq_factors" not in name:
            weight.data.normal_(0, 1.0 if name == "embed" else 0.3, generator=generator)
    return model


class DenseAttention:
    """Causal attention of one whole sequence, from its own keys and values: no pool, no pages, no state."""

    def plan(self, fb: ForwardBatch) -> None:
        assert fb.num_rows == 1, f"dense attention computes one sequence, got {fb.num_rows} rows"

    def forward(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, layer: int, options: LayerAttention = PLAIN
    ) -> torch.Tensor:
        assert options == PLAIN, f"dense attention is plain attention, got {options}"
        group = q.shape[1] // k.shape[1]
        keys, values = (x.repeat_interleave(group, dim=1).transpose(0, 1) for x in (k, v))
        scores = q.transpose(0, 1) @ keys.transpose(1, 2) * q.shape[-1] ** -0.5
        scores = scores.masked_fill(torch.ones(scores.shape[1:]).triu(1).bool(), float("-inf"))
        return (scores.softmax(dim=-1) @ values).transpose(0, 1).contiguous()


def plain_logits(model: LlamaForCausalLM, ids: Sequence[int]) -> np.ndarray:
    """Logits after every token of one sequence, float32 [T, V], computed at once and without paging."""
    table = np.zeros((1, len(ids)), dtype=np.int32)
    fb = ForwardBatch.build(np.array(ids), np.array([len(ids)]), np.array([0]), table, page_size=1)
    return model.logits(model.forward(fb, DenseAttention())).numpy()


def spec(
    params: SamplingParams | None = None,
    *,
    position: int = 0,
    prompt_ids: Sequence[int] = (),
    output_ids: Sequence[int] = (),
    grammar: GrammarCursor | None = None,
    logprob: LogprobParams | None = None,
    **changes: Any,
) -> SampleSpec:
    """A sample spec; `changes` are sampling parameters, greedy unless said."""
    params = params or SamplingParams(**{"temperature": 0.0, "seed": 0, **changes})
    return SampleSpec(params, params.seed or 0, position, prompt_ids, output_ids, grammar, logprob)


def row(
    rid: str,
    ids: Sequence[int],
    pages: Sequence[int],
    *,
    prefix_len: int = 0,
    sample: SampleSpec | None = None,
    targets: Sequence[LogprobTarget] = (),
) -> RowPlan:
    return RowPlan(rid, tuple(ids), prefix_len, np.array(pages, dtype=np.int32), sample, tuple(targets))


def plan_of(*rows: RowPlan, copies: Sequence[PageCopy] = (), step: int = 1) -> Plan:
    return Plan(step, ForwardMode.MIXED, rows, tuple(copies))


class AllowedTokens:
    """A grammar that allows a fixed set of tokens; counts how often it was asked."""

    def __init__(self, allowed: Sequence[int]) -> None:
        self.allowed = tuple(allowed)
        self.num_fills = 0

    def accept_token(self, token_id: int) -> bool:
        return token_id in self.allowed

    def fill_bitmask(self, bitmask: Any, index: int = 0) -> None:
        self.num_fills += 1
        flags = np.zeros(bitmask.shape[1] * 32, dtype=np.uint8)
        flags[list(self.allowed)] = 1
        bitmask[index] = np.packbits(flags, bitorder="little").view("<i4")

    def fork(self) -> AllowedTokens:
        return AllowedTokens(self.allowed)

    def jump_forward(self, before: Sequence[int] = ()) -> list[int]:
        return []

    @property
    def is_terminated(self) -> bool:
        return False

    @property
    def has_only_end(self) -> bool:
        return False
