"""The native step beside the torch modules on the same file, and beside itself in other batches, to the bit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType

import tests.support.kernel_cache  # noqa: F401
from sglang_lite.kernels.cpu.step_team import StepTeam
from sglang_lite.kernels.cpu.threads import KernelThreads
from sglang_lite.runtime.attention.cpu import CpuAttention
from sglang_lite.runtime.attention.kv_pool import KvPool
from sglang_lite.runtime.attention.torch_ref import TorchAttention
from sglang_lite.runtime.execution.native_step import NativeStep, build_native
from sglang_lite.runtime.model.gguf_config import gguf_config
from sglang_lite.runtime.model.gguf_file import GgufFile
from sglang_lite.runtime.model.loader import LoadedModel, load_model
from tests.support.paged_driver import PagedDriver, Sequence
from tests.support.tiny_gguf import VOCAB, TinyLlama, gguf_tensors, make_model, write_gguf

pytestmark = pytest.mark.native

TEXT = Path(__file__).parents[2] / "data" / "lighthouse.txt"
IDS = np.random.default_rng(7).integers(0, VOCAB, 90).tolist()


def native_driver(path: Path, cache: Path, *, page_size: int = 16, threads: int = 1, pages: int = 100) -> PagedDriver:
    """The native step over a pool full of NaN, so that reading what nobody wrote shows."""
    file = GgufFile(path)
    config = gguf_config(file.metadata, "output.weight" in file.tensors, path)
    pool = KvPool(config.num_layers, pages, config.num_kv_heads, config.head_dim, page_size)
    pool.k.fill_(float("nan"))
    pool.v.fill_(float("nan"))
    native = build_native(file, config, pool, StepTeam(threads), cache, lambda line: None)
    assert isinstance(native, NativeStep), native
    return PagedDriver(native, pool, TorchAttention(pool))


def torch_driver(loaded: LoadedModel) -> PagedDriver:
    config = loaded.config
    pool = KvPool(config.num_layers, 100, config.num_kv_heads, config.head_dim, 16)
    return PagedDriver(loaded.module, pool, CpuAttention(pool, config.num_heads, KernelThreads(1)))


def tiny_file(folder: Path, **sizes: Any) -> Path:
    tiny = TinyLlama(**{"head_dim": 32, **sizes})
    return write_gguf(folder / "tiny.gguf", tiny, gguf_tensors(make_model(tiny), tiny))


@pytest.mark.parametrize("page_size", [1, 4, 16, 32])
@pytest.mark.parametrize("tied", [False, True])
def test_float_weights_give_what_the_torch_modules_give(tmp_path: Path, page_size: int, tied: bool) -> None:
    """Nothing is rounded to int8 here, so embedding, norms, rotation, attention, gate and head all show."""
    path = tiny_file(tmp_path, tied=tied, heads=6, kv_heads=2, layers=3)
    expected = torch_driver(load_model(path)).step([(Sequence(), IDS[:70]), (Sequence(), IDS[5:9])])
    got = native_driver(path, tmp_path, page_size=page_size, pages=200).step(
        [(Sequence(), IDS[:70]), (Sequence(), IDS[5:9])]
    )
    torch.testing.assert_close(got, expected, atol=2e-4, rtol=1e-4)


@pytest.mark.parametrize("storage", ["F16", "Q4_0", "Q4_1", "Q8_0"])
def test_quantised_weights_give_it_up_to_the_rounding_of_activations(tmp_path: Path, storage: str) -> None:
    path = tiny_file(tmp_path, storage=GGMLQuantizationType[storage])
    expected = torch_driver(load_model(path)).step([(Sequence(), IDS)])
    got = native_driver(path, tmp_path).step([(Sequence(), IDS)])
    assert float((got - expected).std()) < 0.1 * float(expected.std())


def test_a_sequence_in_pieces_beside_others_equals_it_at_once_to_the_bit(tmp_path: Path) -> None:
    path = tiny_file(tmp_path, storage=GGMLQuantizationType.Q4_1)
    whole = native_driver(path, tmp_path).step([(Sequence(), IDS)])
    for threads, page_size in ((1, 16), (2, 4), (3, 16)):
        driver = native_driver(path, tmp_path, threads=threads, page_size=page_size, pages=300)
        sequence, other, got = Sequence(), Sequence(), []
        for chunk in (1, 33, 2, 1, 17, 1, 35):
            rows = [(other, IDS[3:6]), (sequence, IDS[sequence.length : sequence.length + chunk])]
            got.append(driver.step(rows)[3:])
        assert torch.equal(torch.cat(got), whole), f"{threads} threads, pages of {page_size}"


def test_a_row_may_read_what_an_earlier_row_of_the_step_writes(tmp_path: Path) -> None:
    path = tiny_file(tmp_path)
    whole = native_driver(path, tmp_path).step([(Sequence(), IDS[:37])])
    driver = native_driver(path, tmp_path)
    trunk = Sequence()
    branch = Sequence(trunk.pages, 32)
    got = driver.step([(trunk, IDS[:32]), (branch, IDS[32:37])])
    assert torch.equal(got, whole)


def test_no_row_of_logits_is_asked_for(tmp_path: Path) -> None:
    driver = native_driver(tiny_file(tmp_path), tmp_path)
    assert driver.module.logits(torch.empty(0, 128)).shape == (0, VOCAB)


def test_a_broken_row_breaks_no_other(tmp_path: Path) -> None:
    """A NaN among the keys of one sequence reaches its own logits only."""
    path = tiny_file(tmp_path, storage=GGMLQuantizationType.Q8_0)
    driver = native_driver(path, tmp_path)
    good, bad = Sequence(), Sequence()
    driver.step([(good, IDS[:20]), (bad, IDS[20:40])])
    clean = native_driver(path, tmp_path)
    twin = Sequence()
    clean.step([(twin, IDS[:20])])
    driver.pool.v[0, bad.pages[0], :, 3] = float("nan")
    got = driver.step([(bad, IDS[40:41]), (good, IDS[41:42])])
    assert torch.isnan(got[0]).all()
    assert torch.equal(got[1], clean.step([(twin, IDS[41:42])])[0])


@pytest.mark.parametrize(
    ("sizes", "reason"),
    [
        ({"head_dim": 16}, "head_dim is 16"),
        ({"storage": GGMLQuantizationType.Q5_0}, "stored as Q5_0"),
    ],
)
def test_what_it_cannot_run_is_said(tmp_path: Path, sizes: dict[str, Any], reason: str) -> None:
    file = GgufFile(tiny_file(tmp_path, **sizes))
    config = gguf_config(file.metadata, True, file.path)
    pool = KvPool(config.num_layers, 4, config.num_kv_heads, config.head_dim, 16)
    why = build_native(file, config, pool, StepTeam(1), tmp_path, lambda line: None)
    assert isinstance(why, str)
    assert reason in why
    assert not (tmp_path / "packed").exists()


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"architecture": "mamba"}, "'mamba'"),
        ({"windows": (None, 64)}, "a sliding window"),
        ({"attention_scale": 0.5}, "an attention scale"),
        ({"logit_soft_cap": 30.0}, "bounded scores"),
        ({"embedding_scale": 2.0}, "scaled embeddings"),
        ({"activation": "gelu_tanh"}, "gelu_tanh"),
        ({"qkv_bias": True}, "biases"),
        ({"qk_norm": True}, "norms of queries"),
    ],
)
def test_what_a_plain_llama_does_not_have_is_refused_by_name(
    tmp_path: Path, changes: dict[str, Any], reason: str
) -> None:
    file = GgufFile(tiny_file(tmp_path))
    config = replace(gguf_config(file.metadata, True, file.path), **changes)
    pool = KvPool(config.num_layers, 4, config.num_kv_heads, config.head_dim, 16)
    assert reason in str(NativeStep.supports(file, config, pool))


@pytest.fixture(scope="module")
def text_ids(tokenizer: Any) -> list[int]:
    return tokenizer.encode(TEXT.read_text(encoding="utf-8"), parse_special=False)


@pytest.mark.model
def test_logits_of_the_embedded_model_do_not_depend_on_the_batch_to_the_bit(
    embedded_model_path: Path, text_ids: list[int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """One sequence at once, in chunks, token by token, beside others, cached, on one thread, two and eight."""
    cache = tmp_path_factory.mktemp("native")
    ids, others = text_ids[:70], [text_ids[100:130], text_ids[200:203], text_ids[300:301]]
    whole = native_driver(embedded_model_path, cache).step([(Sequence(), ids)])
    for threads, chunks in ((1, [33, 37]), (2, [70]), (8, [64, 6]), (2, [40, *[1] * 30]), (1, [16, 1, 1, 52])):
        driver = native_driver(embedded_model_path, cache, threads=threads)
        sequence, got = Sequence(), []
        for number, chunk in enumerate(chunks):
            rows = [(Sequence(), other) for other in others[: number % 4]]
            row = (sequence, ids[sequence.length : sequence.length + chunk])
            got.append(driver.step([*rows, row])[-chunk:])
        assert torch.equal(torch.cat(got), whole), f"{threads} threads, chunks of {chunks[:3]}"
    again = Sequence(sequence.pages[:4], 64)
    assert torch.equal(driver.step([(again, ids[64:])]), whole[64:])


@dataclass(frozen=True)
class Quality:
    """Distance of the native step's distributions from those of the dequantised float32 model on the same tokens."""

    perplexity_ratio: float
    divergence: float
    same_best_token: float


def compare(got: torch.Tensor, expected: torch.Tensor, ids: list[int]) -> Quality:
    """Logits [T, vocab] of both after each of `ids`."""
    ours, theirs = got.double().log_softmax(-1), expected.double().log_softmax(-1)
    target = torch.tensor(ids[1:])[:, None]
    return Quality(
        float((theirs[:-1].gather(1, target).mean() - ours[:-1].gather(1, target).mean()).exp()),
        float((theirs.exp() * (theirs - ours)).sum(-1).mean()),
        float((ours.argmax(-1) == theirs.argmax(-1)).double().mean()),
    )


@pytest.mark.model
@pytest.mark.slow
def test_quality_is_that_of_the_dequantised_model(
    embedded_model_path: Path,
    text_ids: list[int],
    tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> None:
    """On a text: perplexity within 0.5 %, KL under 0.01, the same best token at 97 % of the positions or more."""
    ids = text_ids[:800]
    expected = torch_driver(load_model(embedded_model_path)).step([(Sequence(), ids)])
    quality = compare(native_driver(embedded_model_path, tmp_path).step([(Sequence(), ids)]), expected, ids)
    print(f"{len(ids)} tokens: {quality}")
    for name, value in vars(quality).items():
        record_property(name, value)
    assert abs(quality.perplexity_ratio - 1) < 0.005
    assert quality.divergence < 0.01
    assert quality.same_best_token >= 0.97
