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
from sglang_lite.runtime.model.config import ModelConfig
from sglang_lite.runtime.model.loader import LoadedModel, gguf_weights, load_model, open_folder, open_gguf
from sglang_lite.runtime.model.weight_names import WeightSource
from tests.support.paged_driver import PagedDriver, Sequence
from tests.support.tiny_gguf import VOCAB, TinyLlama, gguf_tensors, make_model, write_gguf
from tests.support.tiny_models import ARCHITECTURES, save_gguf

pytestmark = pytest.mark.native

TEXT = Path(__file__).parents[2] / "data" / "lighthouse.txt"
IDS = np.random.default_rng(7).integers(0, VOCAB, 90).tolist()


def opened(path: Path, int8: bool = False) -> tuple[WeightSource, ModelConfig]:
    if path.is_dir():
        weights, config = open_folder(path)
        return replace(weights, int8=int8), config
    file, config = open_gguf(path)
    return gguf_weights(file, config), config


def native_driver(
    path: Path,
    cache: Path,
    *,
    page_size: int = 16,
    threads: int = 1,
    pages: int = 100,
    int8: bool = False,
    kv: torch.dtype = torch.float32,
) -> PagedDriver:
    """The native step over a pool full of NaN, so that reading what nobody wrote shows."""
    weights, config = opened(path, int8)
    pool = KvPool(config.num_layers, pages, config.num_kv_heads, config.head_dim, page_size, dtype=kv)
    for part in (pool.k, pool.v) if kv.is_floating_point else (pool.k_scales, pool.v_scales):
        part.fill_(float("nan"))
    native = build_native(weights, config, pool, StepTeam(threads), cache, lambda line: None)
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
        ({"head_dim": 8}, "head_dim is 8"),
        ({"head_dim": 16, "heads": 2}, "head_dim is 16 with 1 query heads"),
    ],
)
def test_what_it_cannot_run_is_said(tmp_path: Path, sizes: dict[str, Any], reason: str) -> None:
    weights, config = opened(tiny_file(tmp_path, **sizes))
    pool = KvPool(config.num_layers, 4, config.num_kv_heads, config.head_dim, 16)
    why = build_native(weights, config, pool, StepTeam(1), tmp_path, lambda line: None)
    assert isinstance(why, str)
    assert reason in why
    assert not (tmp_path / "packed").exists()


def test_an_architecture_without_a_step_is_refused_by_name(tmp_path: Path) -> None:
    weights, config = opened(tiny_file(tmp_path))
    config = replace(config, architecture="mamba")
    pool = KvPool(config.num_layers, 4, config.num_kv_heads, config.head_dim, 16)
    assert "'mamba'" in str(NativeStep.supports(weights, config, pool))


def arch_model(name: str) -> Any:
    """A tiny model of the architecture, of sizes that the step takes; GGUF has no key for Gemma's scale."""
    tiny = ARCHITECTURES[name]
    changes = {"query_pre_attn_scalar": 16} if name.startswith("gemma2") else {}
    return replace(tiny, settings=tiny.settings | changes).make()


@pytest.mark.parametrize("name", ["llama", "qwen2", "qwen3", "gemma2"])
def test_float_files_of_every_architecture_give_what_the_torch_modules_give(tmp_path: Path, name: str) -> None:
    """Beyond every window; in one piece, and in chunks beside another row."""
    path = save_gguf(tmp_path / f"{name}.gguf", arch_model(name), name)
    expected = torch_driver(load_model(path)).step([(Sequence(), IDS)])
    got = native_driver(path, tmp_path).step([(Sequence(), IDS)])
    torch.testing.assert_close(got, expected, atol=3e-4, rtol=1e-4)
    driver, one, other, parts = native_driver(path, tmp_path, threads=2), Sequence(), Sequence(), []
    for first in range(0, 90, 17):
        parts.append(driver.step([(other, [IDS[first]]), (one, IDS[first : first + 17])])[1:])
    assert torch.equal(torch.cat(parts), got)


def test_a_window_stated_by_a_llama_file_holds(tmp_path: Path) -> None:
    """Files of Mistral call themselves llama."""

    def state_window(metadata: dict[str, Any], tensors: dict[str, np.ndarray]) -> None:
        metadata["llama.attention.sliding_window"] = 13

    path = save_gguf(tmp_path / "m.gguf", arch_model("mistral"), "llama", change=state_window)
    expected = torch_driver(load_model(path)).step([(Sequence(), IDS)])
    got = native_driver(path, tmp_path).step([(Sequence(), IDS)])
    torch.testing.assert_close(got, expected, atol=3e-4, rtol=1e-4)


@pytest.mark.parametrize("storage", ["F16", "Q4_0", "Q4_1", "Q8_0", "Q5_0"])
@pytest.mark.parametrize("name", ["qwen2", "qwen3", "gemma2"])
def test_quantised_files_of_every_architecture_differ_by_rounding_only(tmp_path: Path, name: str, storage: str) -> None:
    kind = GGMLQuantizationType[storage]
    path = save_gguf(tmp_path / f"{name}.gguf", arch_model(name), name, kind)
    expected = torch_driver(load_model(path)).step([(Sequence(), IDS)])
    got = native_driver(path, tmp_path).step([(Sequence(), IDS)])
    assert float((got - expected).std()) < 0.1 * float(expected.std())


def test_a_storage_without_a_kernel_is_kept_as_floats_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tiny_file(tmp_path, storage=GGMLQuantizationType.Q5_0)
    expected = torch_driver(load_model(path)).step([(Sequence(), IDS)])
    got = native_driver(path, tmp_path).step([(Sequence(), IDS)])
    torch.testing.assert_close(got, expected, atol=3e-4, rtol=1e-4)
    assert "stored as Q5_0 have no kernel" in caplog.text
    assert "MB" in caplog.text


@pytest.mark.parametrize(
    "name",
    ["llama with all biases", "mistral", "qwen2 with window", "qwen3 with bias", "gemma2", "gemma2 without caps"],
)
def test_folders_run_on_weights_rounded_to_int8_when_asked(tmp_path: Path, name: str) -> None:
    """Against torch on the float weights: only rounding is between them. Without int8 the same step is exact."""
    peer = ARCHITECTURES[name].make()
    peer.save_pretrained(tmp_path / "model")
    expected = torch_driver(load_model(tmp_path / "model")).step([(Sequence(), IDS)])
    rounded = native_driver(tmp_path / "model", tmp_path, int8=True).step([(Sequence(), IDS)])
    assert 0 < float((rounded - expected).std()) < 0.15 * float(expected.std())
    exact = native_driver(tmp_path / "model", tmp_path).step([(Sequence(), IDS)])
    torch.testing.assert_close(exact, expected, atol=3e-4, rtol=1e-4)


@pytest.mark.parametrize(
    ("kv", "page_size"), [(torch.float16, 4), (torch.float16, 16), (torch.int8, 4), (torch.int8, 16)]
)
def test_smaller_keys_and_values_give_what_the_reference_gives_with_them(
    tmp_path: Path, kv: torch.dtype, page_size: int
) -> None:
    """The same rounding on both sides, so the step is as near to torch as with float32; the rounding itself shows, and is small."""
    path = tiny_file(tmp_path, heads=6, kv_heads=2, layers=3)
    loaded = load_model(path)
    pool = KvPool(loaded.config.num_layers, 100, 2, 32, page_size, dtype=kv)
    expected = PagedDriver(loaded.module, pool, TorchAttention(pool)).step([(Sequence(), IDS)])
    driver = native_driver(path, tmp_path, kv=kv, page_size=page_size)
    got = driver.step([(Sequence(), IDS)])
    full = native_driver(path, tmp_path).step([(Sequence(), IDS)])
    assert float((got - expected).abs().max()) < 0.05 * float(expected.std())
    assert 0 < float((got - full).std()) < 0.1 * float(full.std())
    again, parts = Sequence(), []
    for chunk in (1, 33, 2, 54):
        parts.append(driver.step([(again, IDS[again.length : again.length + chunk])]))
    assert torch.equal(torch.cat(parts), got)


@pytest.mark.parametrize("kv", [torch.float32, torch.float16, torch.int8])
def test_rows_that_share_pages_get_what_they_get_alone_to_the_bit(tmp_path: Path, kv: torch.dtype) -> None:
    """Seven rows behind a trunk of two blocks of keys, some of them further together, decode in one step."""
    path = tiny_file(tmp_path, heads=6, kv_heads=2, storage=GGMLQuantizationType.Q8_0)
    ids = np.random.default_rng(3).integers(0, VOCAB, 800).tolist()
    driver = native_driver(path, tmp_path, pages=400, kv=kv)
    trunk, branch = Sequence(), Sequence()
    driver.step([(trunk, ids[:560])])
    branch = Sequence(trunk.pages[:34], 544)
    driver.step([(branch, ids[560:800])])
    rows = [Sequence(trunk.pages[:34], 544) for _ in range(4)] + [Sequence(branch.pages[:48], 768) for _ in range(3)]
    steps = [(row, [number]) for number, row in enumerate(rows)]
    alone = [driver.step([(Sequence(list(row.pages), row.length), tokens)]) for row, tokens in steps]
    together = driver.step(steps)
    assert torch.equal(together, torch.cat(alone))


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


@pytest.mark.model
def test_int8_keys_of_the_embedded_model_do_not_depend_on_the_batch_to_the_bit(
    embedded_model_path: Path, text_ids: list[int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """At once, in chunks beside others, token by token and from cached pages, on one thread and two."""
    cache = tmp_path_factory.mktemp("native")
    ids, other = text_ids[:70], text_ids[100:130]
    whole = native_driver(embedded_model_path, cache, kv=torch.int8).step([(Sequence(), ids)])
    for threads, chunks in ((1, [33, 37]), (2, [40, *[1] * 30])):
        driver = native_driver(embedded_model_path, cache, threads=threads, kv=torch.int8)
        sequence, got = Sequence(), []
        for chunk in chunks:
            row = (sequence, ids[sequence.length : sequence.length + chunk])
            got.append(driver.step([(Sequence(), other), row])[-chunk:])
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
