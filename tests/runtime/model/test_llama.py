from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType
from transformers import LlamaForCausalLM

from sglang_lite.kernels.cpu.threads import KernelThreads
from sglang_lite.runtime.attention.cpu import CpuAttention
from sglang_lite.runtime.attention.kv_pool import KvPool
from sglang_lite.runtime.attention.torch_ref import TorchAttention
from sglang_lite.runtime.model.linear import Fp32Linear
from sglang_lite.runtime.model.llama import LlamaForCausalLM as OurLlama
from sglang_lite.runtime.model.loader import LoadedModel, load_model
from tests.support.paged_driver import PagedDriver, Sequence
from tests.support.tiny_gguf import VOCAB, TinyLlama, gguf_tensors, make_model, write_gguf

IDS = np.random.default_rng(3).integers(0, VOCAB, 41).tolist()


def driver(model: LoadedModel, kind: str = "cpu", page_size: int = 16) -> PagedDriver:
    config = model.config
    pool = KvPool(config.num_layers, 400, config.num_kv_heads, config.head_dim, page_size)
    attention = TorchAttention(pool) if kind == "torch" else CpuAttention(pool, config.num_heads, KernelThreads(1))
    return PagedDriver(model.module, pool, attention)


def theirs(model: LlamaForCausalLM, ids: list[int]) -> torch.Tensor:
    with torch.inference_mode():
        return model(torch.tensor([ids])).logits[0]


def load_tiny(path: Path, tiny: TinyLlama) -> tuple[LoadedModel, LlamaForCausalLM]:
    peer = make_model(tiny)
    return load_model(write_gguf(path / "tiny.gguf", tiny, gguf_tensors(peer, tiny))), peer


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[LoadedModel, LlamaForCausalLM]:
    """A tiny model with three query heads to a kv head."""
    return load_tiny(tmp_path_factory.mktemp("tiny"), TinyLlama(heads=9, kv_heads=3, head_dim=32))


@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
@pytest.mark.parametrize("storage", ["F32", "F16", "Q8_0"])
@pytest.mark.parametrize("heads", [(4, 2, 16), (9, 3, 32)], ids=["4 on 2", "9 on 3"])
def test_logits_equal_those_of_transformers_at_all_positions(
    heads: tuple[int, int, int], storage: str, tied: bool, tmp_path: Path
) -> None:
    """Position 0 alone would not show keys that were un-permuted with the wrong head count."""
    tiny = TinyLlama(*heads, tied=tied, storage=GGMLQuantizationType[storage])
    model, peer = load_tiny(tmp_path, tiny)
    assert model.config.tie_word_embeddings is tied
    torch.testing.assert_close(driver(model).step([(Sequence(), IDS)]), theirs(peer, IDS), atol=1e-4, rtol=0)


def test_query_and_key_rows_equal_the_originals_after_loading(pair: tuple[LoadedModel, LlamaForCausalLM]) -> None:
    model, peer = pair
    assert isinstance(model.module, OurLlama)
    for ours, their in zip(model.module.layers, peer.model.layers, strict=True):
        qkv = ours.attn.qkv  # pyright: ignore[reportAttributeAccessIssue]
        assert isinstance(qkv, Fp32Linear)
        attention = their.self_attn
        expected = torch.cat([attention.q_proj.weight, attention.k_proj.weight, attention.v_proj.weight])
        assert torch.equal(qkv.weight, expected)


@pytest.mark.parametrize("kind", ["cpu", "torch"])
@pytest.mark.parametrize("page_size", [1, 4, 16])
@pytest.mark.parametrize("chunk", [1, 5, 16, 40])
def test_chunked_prefill_and_decode_equal_one_prefill(
    chunk: int, page_size: int, kind: str, pair: tuple[LoadedModel, LlamaForCausalLM]
) -> None:
    """Chunks of one token are decode."""
    model, peer = pair
    run, sequence = driver(model, kind, page_size), Sequence()
    parts = [run.step([(sequence, IDS[i : i + chunk])]) for i in range(0, len(IDS), chunk)]
    torch.testing.assert_close(torch.cat(parts), theirs(peer, IDS), atol=1e-4, rtol=0)


@pytest.mark.parametrize("kind", ["cpu", "torch"])
def test_ragged_rows_that_extend_and_decode_in_one_batch_equal_single_ones(
    kind: str, pair: tuple[LoadedModel, LlamaForCausalLM]
) -> None:
    model, peer = pair
    run, sequences = driver(model, kind), [Sequence() for _ in range(3)]
    prompts = [IDS[:7], IDS[3:40], IDS[20:21]]
    first = run.step(list(zip(sequences, prompts, strict=True)))
    second = run.step([(sequences[0], [9]), (sequences[1], [1, 2, 3]), (sequences[2], IDS[:17])])
    expected = [
        theirs(peer, prompts[0] + [9]),
        theirs(peer, prompts[1] + [1, 2, 3]),
        theirs(peer, prompts[2] + IDS[:17]),
    ]
    lens = [len(prompt) for prompt in prompts]
    torch.testing.assert_close(
        first, torch.cat([e[:n] for e, n in zip(expected, lens, strict=True)]), atol=1e-4, rtol=0
    )
    torch.testing.assert_close(
        second, torch.cat([e[n:] for e, n in zip(expected, lens, strict=True)]), atol=1e-4, rtol=0
    )


def test_the_head_runs_for_the_rows_that_are_asked_for(pair: tuple[LoadedModel, LlamaForCausalLM]) -> None:
    model, peer = pair
    run = driver(model)
    last = run.next_tokens([(Sequence(), IDS[:5]), (Sequence(), IDS)])
    assert last.shape == (2, VOCAB)
    expected = torch.stack([theirs(peer, IDS[:5])[-1], theirs(peer, IDS)[-1]])
    torch.testing.assert_close(last, expected, atol=1e-4, rtol=0)


def test_linear_rope_scaling_divides_positions(tmp_path: Path) -> None:
    tiny = TinyLlama()
    peer = make_model(tiny)
    tensors = gguf_tensors(peer, tiny)

    def scale(metadata: dict[str, object]) -> None:
        metadata |= {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 4.0}

    model = load_model(write_gguf(tmp_path / "scaled.gguf", tiny, tensors, scale))
    positions = torch.arange(len(IDS))[None] / 4.0
    with torch.inference_mode():
        expected = peer(torch.tensor([IDS]), position_ids=positions).logits[0]
    torch.testing.assert_close(driver(model).step([(Sequence(), IDS)]), expected, atol=1e-4, rtol=0)


def test_frequency_factors_of_the_file_slow_the_rotation(tmp_path: Path) -> None:
    """With all factors equal to 4, positions count a quarter."""
    tiny = TinyLlama()
    peer = make_model(tiny)
    tensors = gguf_tensors(peer, tiny) | {"rope_freqs.weight": np.full(tiny.head_dim // 2, 4.0, dtype=np.float32)}
    model = load_model(write_gguf(tmp_path / "factors.gguf", tiny, tensors))
    with torch.inference_mode():
        expected = peer(torch.tensor([IDS]), position_ids=torch.arange(len(IDS))[None] / 4.0).logits[0]
    torch.testing.assert_close(driver(model).step([(Sequence(), IDS)]), expected, atol=1e-4, rtol=0)
