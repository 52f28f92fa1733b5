"""Every architecture and every RoPE variant against transformers: prefill, chunks, decode, greedy tokens."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType

from sglang_lite.kernels.cpu.threads import KernelThreads
from sglang_lite.runtime.attention.cpu import CpuAttention
from sglang_lite.runtime.attention.kv_pool import KvPool
from sglang_lite.runtime.attention.torch_ref import TorchAttention
from sglang_lite.runtime.model.loader import LoadedModel, load_model
from tests.support.paged_driver import PagedDriver, Sequence
from tests.support.tiny_models import ARCHITECTURES, ORIGINAL, ROPES, VOCAB, all_logits, round_to, save_gguf

TOLERANCE = 1e-4
IDS = np.random.default_rng(11).integers(0, VOCAB, 90).tolist()
"""Longer than every window, and than the original context of every scaled RoPE."""

MODELS = ARCHITECTURES | {f"rope {name}": tiny for name, tiny in ROPES.items()}
GGUF_FILES = ("llama", "qwen2", "qwen3", "gemma2", "mixtral", "qwen3moe")


def driver(model: LoadedModel, kind: str = "cpu") -> PagedDriver:
    config = model.config
    pool = KvPool(config.num_layers, 40, config.num_kv_heads, config.head_dim, 16)
    attention = TorchAttention(pool) if kind == "torch" else CpuAttention(pool, config.num_heads, KernelThreads(1))
    return PagedDriver(model.module, pool, attention)


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[LoadedModel, Any]]:
    """Makes a model once: as loaded here from its folder, and transformers' own."""
    made: dict[str, tuple[LoadedModel, Any]] = {}

    def pair(name: str) -> tuple[LoadedModel, Any]:
        if name not in made:
            peer = MODELS[name].make()
            folder = tmp_path_factory.mktemp("model")
            peer.save_pretrained(folder)
            made[name] = (load_model(folder), peer)
        return made[name]

    return pair


@pytest.fixture(scope="module")
def expected(pairs: Callable[[str], tuple[LoadedModel, Any]]) -> Callable[[str], torch.Tensor]:
    """Logits of transformers after each of `IDS`."""
    known: dict[str, torch.Tensor] = {}

    def logits(name: str) -> torch.Tensor:
        if name not in known:
            known[name] = all_logits(pairs(name)[1], IDS, one_by_one=turns_with_length(name))
        return known[name]

    return logits


def turns_with_length(name: str) -> bool:
    """Whether transformers' result depends on how the prompt is cut; token by token is what a shared cache can hold."""
    return name == "rope dynamic"


@pytest.mark.parametrize("kind", ["cpu", "torch"])
@pytest.mark.parametrize("name", MODELS)
def test_prefill_logits_agree(name: str, kind: str, pairs: Any, expected: Any) -> None:
    got = driver(pairs(name)[0], kind).step([(Sequence(), IDS)])
    torch.testing.assert_close(got, expected(name), atol=TOLERANCE, rtol=0)


@pytest.mark.parametrize("kind", ["cpu", "torch"])
@pytest.mark.parametrize("name", MODELS)
def test_chunked_prefill_and_decode_logits_agree_beside_another_row(
    name: str, kind: str, pairs: Any, expected: Any
) -> None:
    """Two rows: one in chunks of 17, one token by token; each has its own place in the window and the context."""
    run, one, other = driver(pairs(name)[0], kind), Sequence(), Sequence()
    chunks: list[torch.Tensor] = []
    singles: list[torch.Tensor] = []
    for i, first in enumerate(range(0, len(IDS), 17)):
        got = run.step([(one, IDS[first : first + 17]), (other, [IDS[i]])])
        chunks.append(got[:-1])
        singles.append(got[-1:])
    singles += [run.step([(other, [IDS[i]])]) for i in range(other.length, len(IDS))]
    torch.testing.assert_close(torch.cat(chunks), expected(name), atol=TOLERANCE, rtol=0)
    torch.testing.assert_close(torch.cat(singles), expected(name), atol=TOLERANCE, rtol=0)


@pytest.mark.parametrize("name", MODELS)
def test_64_greedy_tokens_are_those_of_transformers(name: str, pairs: Any) -> None:
    """Over what was generated, transformers' best token after each prefix is the one that follows."""
    model, peer = pairs(name)
    run, sequence, ids = driver(model), Sequence(), IDS[:10]
    logits = run.next_tokens([(sequence, ids)])
    for _ in range(64):
        ids = [*ids, int(logits.argmax())]
        logits = run.next_tokens([(sequence, ids[-1:])])
    best = all_logits(peer, ids[:-1], one_by_one=turns_with_length(name))[9:].argmax(-1)
    assert ids[10:] == best.tolist()


@pytest.mark.parametrize("storage", ["F32", "F16", "Q8_0"])
@pytest.mark.parametrize("name", GGUF_FILES)
def test_a_gguf_file_gives_the_logits_of_the_folder(name: str, storage: str, tmp_path: Path) -> None:
    tiny = ARCHITECTURES[name]
    if name == "gemma2":  # GGUF has no key for the scale; it is the head's width but for one size
        tiny = type(tiny)(tiny.config_class, tiny.model_class, tiny.settings | {"query_pre_attn_scalar": 16})
    peer = tiny.make()
    round_to(peer, GGMLQuantizationType[storage])
    stated = "llama" if name == "mixtral" else name
    model = load_model(save_gguf(tmp_path / f"{name}.gguf", peer, stated, GGMLQuantizationType[storage]))
    torch.testing.assert_close(driver(model).step([(Sequence(), IDS)]), all_logits(peer, IDS), atol=TOLERANCE, rtol=0)


def test_a_gguf_file_may_state_a_window_or_a_scale(tmp_path: Path) -> None:
    """Mistral's files call themselves llama; Gemma's may carry their scale."""
    peer = ARCHITECTURES["mistral"].make()

    def state_window(metadata: dict[str, Any], tensors: dict[str, np.ndarray]) -> None:
        metadata["llama.attention.sliding_window"] = 13

    model = load_model(save_gguf(tmp_path / "mistral.gguf", peer, "llama", change=state_window))
    torch.testing.assert_close(driver(model).step([(Sequence(), IDS)]), all_logits(peer, IDS), atol=TOLERANCE, rtol=0)
    peer = ARCHITECTURES["gemma2"].make()

    def state_scale(metadata: dict[str, Any], tensors: dict[str, np.ndarray]) -> None:
        metadata["gemma2.attention.scale"] = 24**-0.5

    model = load_model(save_gguf(tmp_path / "gemma.gguf", peer, "gemma2", change=state_scale))
    torch.testing.assert_close(driver(model).step([(Sequence(), IDS)]), all_logits(peer, IDS), atol=TOLERANCE, rtol=0)


@pytest.mark.parametrize("name", ["linear", "yarn"])
def test_a_gguf_file_states_its_rope_variant(name: str, tmp_path: Path) -> None:
    peer = ROPES[name].make()

    def state(metadata: dict[str, Any], tensors: dict[str, np.ndarray]) -> None:
        metadata |= {"llama.rope.scaling.type": name, "llama.rope.scaling.factor": 4.0}
        if name == "yarn":
            metadata["llama.rope.scaling.original_context_length"] = ORIGINAL

    model = load_model(save_gguf(tmp_path / "scaled.gguf", peer, "llama", change=state))
    assert model.config.max_position == 4 * ORIGINAL
    torch.testing.assert_close(driver(model).step([(Sequence(), IDS)]), all_logits(peer, IDS), atol=TOLERANCE, rtol=0)


def test_llama3_frequencies_come_as_factors_in_gguf(tmp_path: Path) -> None:
    """As llama.cpp's converter writes them: plain frequency over scaled frequency."""
    peer = ROPES["llama3"].make()

    def factors(metadata: dict[str, Any], tensors: dict[str, np.ndarray]) -> None:
        plain = 1000.0 ** (-np.arange(0, 16, 2) / 16)
        tensors["rope_freqs.weight"] = (plain / peer.model.rotary_emb.inv_freq.numpy()).astype(np.float32)

    model = load_model(save_gguf(tmp_path / "llama3.gguf", peer, "llama", change=factors))
    torch.testing.assert_close(driver(model).step([(Sequence(), IDS)]), all_logits(peer, IDS), atol=TOLERANCE, rtol=0)
