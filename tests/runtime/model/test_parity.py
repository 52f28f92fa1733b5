"""The embedded model against transformers on the same file."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from transformers import DynamicCache, LlamaForCausalLM

from sglang_lite.kernels.cpu.threads import KernelThreads
from sglang_lite.runtime.attention.cpu import CpuAttention
from sglang_lite.runtime.attention.kv_pool import KvPool
from sglang_lite.runtime.attention.torch_ref import TorchAttention
from sglang_lite.runtime.model.loader import LoadedModel
from tests.support.paged_driver import PagedDriver, Sequence

pytestmark = pytest.mark.model

TOLERANCE = 1e-3
NEW_TOKENS = 64
TEXT_IDS = [
    504, 3575, 282, 4649, 314, 7042, 30, 657, 314, 260, 1022, 282, 260, 905, 28, 284, 357, 436, 253, 1685,
    282, 655, 7271, 5752, 327, 624, 4590, 5893, 284, 5176, 30, 378, 2644, 553, 2951, 7151, 411, 260, 1343, 1116,
]  # fmt: skip


def driver(model: LoadedModel, kind: str = "cpu", page_size: int = 16) -> PagedDriver:
    config = model.config
    pool = KvPool(config.num_layers, 2560 // page_size, config.num_kv_heads, config.head_dim, page_size)
    attention = TorchAttention(pool) if kind == "torch" else CpuAttention(pool, config.num_heads, KernelThreads(1))
    return PagedDriver(model.module, pool, attention)


@pytest.fixture(scope="module")
def ids() -> list[int]:
    """Ids from all over the vocabulary behind some of plain English; 100 tokens."""
    return TEXT_IDS + np.random.default_rng(0).integers(0, 49152, 60).tolist()


@pytest.fixture(scope="module")
def expected(peer: LlamaForCausalLM, ids: list[int]) -> torch.Tensor:
    with torch.inference_mode():
        return peer(torch.tensor([ids])).logits[0]


@pytest.mark.parametrize("kind", ["cpu", "torch"])
def test_prefill_logits_agree(
    kind: str,
    embedded: LoadedModel,
    ids: list[int],
    expected: torch.Tensor,
    record_property: Callable[[str, object], None],
) -> None:
    got = driver(embedded, kind).step([(Sequence(), ids)])
    record_property("max_abs_diff", float((got - expected).abs().max()))
    torch.testing.assert_close(got, expected, atol=TOLERANCE, rtol=0)


@pytest.mark.parametrize(("chunk", "page_size"), [(13, 16), (64, 4), (64, 1)])
def test_chunked_prefill_logits_agree(
    chunk: int, page_size: int, embedded: LoadedModel, ids: list[int], expected: torch.Tensor
) -> None:
    run, sequence = driver(embedded, page_size=page_size), Sequence()
    got = torch.cat([run.step([(sequence, ids[i : i + chunk])]) for i in range(0, len(ids), chunk)])
    torch.testing.assert_close(got, expected, atol=TOLERANCE, rtol=0)


def test_decode_logits_agree_beside_ragged_rows(embedded: LoadedModel, ids: list[int], expected: torch.Tensor) -> None:
    """One row decodes token by token while another extends in uneven steps."""
    run, one, other = driver(embedded), Sequence(), Sequence()
    run.step([(one, ids[:80])])
    for i in range(80, 95):
        step = run.step([(other, ids[other.length : other.length + 1 + i % 5]), (one, [ids[i]])])
        torch.testing.assert_close(step[-1], expected[i], atol=TOLERANCE, rtol=0)
        torch.testing.assert_close(step[-2], expected[other.length - 1], atol=TOLERANCE, rtol=0)


def peer_greedy(peer: LlamaForCausalLM, prompts: list[list[int]]) -> tuple[torch.Tensor, torch.Tensor]:
    """Greedy ids and the top-2 margin at each, both [prompts, NEW_TOKENS]; the end token does not stop it.

    Prompts are padded on the left; positions and mask leave the padding out.
    """
    width = max(map(len, prompts))
    tokens = torch.tensor([[0] * (width - len(p)) + p for p in prompts])
    mask = torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in prompts])
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    cache, chosen, margins = DynamicCache(), [], []
    with torch.inference_mode():
        for _ in range(NEW_TOKENS):
            out = peer(tokens, attention_mask=mask, position_ids=positions, past_key_values=cache, logits_to_keep=1)
            top = out.logits[:, -1].topk(2)
            margins.append(top.values[:, 0] - top.values[:, 1])
            tokens = top.indices[:, :1]
            chosen.append(tokens[:, 0])
            mask = torch.cat((mask, torch.ones(len(prompts), 1, dtype=mask.dtype)), dim=1)
            positions = positions[:, -1:] + 1
    return torch.stack(chosen, dim=1), torch.stack(margins, dim=1)


# The older name of the argument works in every version 5 so far.
@pytest.mark.filterwarnings("ignore:.past_key_values. is deprecated:FutureWarning")
def test_64_greedy_tokens_of_20_prompts_are_those_of_transformers(
    embedded: LoadedModel, peer: LlamaForCausalLM
) -> None:
    """A first difference counts only where the two best tokens lie 1e-3 or more apart."""
    rng = np.random.default_rng(7)
    prompts = [
        TEXT_IDS[start : start + length]
        for start, length in zip(rng.integers(0, 20, 20), rng.integers(4, 21, 20), strict=True)
    ]
    expected, margins = peer_greedy(peer, prompts)
    run, sequences = driver(embedded), [Sequence() for _ in prompts]
    logits = run.next_tokens(list(zip(sequences, prompts, strict=True)))
    steps = [logits.argmax(-1)]
    for _ in range(NEW_TOKENS - 1):
        logits = run.next_tokens(
            [(sequence, [int(token)]) for sequence, token in zip(sequences, steps[-1], strict=True)]
        )
        steps.append(logits.argmax(-1))
    differs = torch.stack(steps, dim=1) != expected
    near_ties = 0
    for row in range(len(prompts)):
        if differs[row].any():
            first = int(differs[row].int().argmax())
            assert margins[row, first] < TOLERANCE, (
                f"prompt {row} differs at token {first}, margin {margins[row, first]:.4f}"
            )
            near_ties += 1
    print(f"near ties: {near_ties} of {len(prompts)} prompts")
