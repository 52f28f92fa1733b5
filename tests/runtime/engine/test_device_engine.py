"""Engines over the device's way give what those over the host's give: a tiny model in every form, and the embedded one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import sglang_lite as sgl
from sglang_lite.runtime.attention.base import PLAIN, AttentionBackend, LayerAttention
from sglang_lite.runtime.attention.forward_batch import ForwardBatch
from sglang_lite.runtime.attention.kv_pool import KvPool
from sglang_lite.runtime.engine.engine import Engine
from sglang_lite.runtime.text.tokenizer import tokenizer_from_gguf
from tests.runtime.engine.test_model_folders import make_folder
from tests.runtime.text.tiny import byte_level_metadata
from tests.support.engine_fixture import Reference
from tests.support.fake_flashinfer import Fake
from tests.support.host_device import MEMORY, HostParts, host_device_engine

NEW_TOKENS = 24
TOKENS = len(tokenizer_from_gguf(byte_level_metadata()).token_bytes)
SETTINGS: dict[str, Any] = {
    "chunked_prefill_size": 16,
    "page_size": 4,
    "max_running_requests": 5,
    "cuda_graph_bs": [1, 3],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model")
    make_folder(path, "llama", TOKENS)
    return path


@pytest.fixture(scope="module")
def host(folder: Path) -> Iterator[Engine]:
    with sgl.Engine(str(folder), max_total_tokens=512, num_threads=1, attention_backend="torch_ref") as engine:
        yield engine


def all_of(engine: Engine, temperature: float = 0.0) -> list[list[int]]:
    """Prompts that share beginnings, more of them than run at once."""
    prompts = [[5 + (7 * i) % 200 for i in range(20)] + [30 + row] * (1 + row) for row in range(7)]
    params = [
        {
            "max_new_tokens": NEW_TOKENS - row,
            "min_new_tokens": NEW_TOKENS - row,
            "temperature": temperature,
            "seed": row,
        }
        for row in range(7)
    ]
    replies: Any = engine.generate(input_ids=prompts, sampling_params=params, return_logprob=True)
    return [reply["output_ids"] for reply in replies]


@pytest.mark.parametrize("overlap", [True, False])
@pytest.mark.parametrize("graphs", [True, False])
def test_tokens_are_those_of_the_host(folder: Path, host: Engine, overlap: bool, graphs: bool) -> None:
    parts = HostParts()
    changes = {"overlap": overlap, "graphs": graphs}
    with host_device_engine(str(folder), parts, changes, **SETTINGS) as engine:
        assert all_of(engine) == all_of(host)
        assert all_of(engine, temperature=0.9) == all_of(host, temperature=0.9)
        info = engine.get_server_info()
    assert info["disable_overlap_schedule"] is not overlap
    assert info["cuda_graph_bs"] == ([1, 3] if graphs else [])
    if graphs:
        assert sum(graph.num_replays for graph in parts.graphs[0].graphs) > NEW_TOKENS
        replays = info["graphs"]
        assert replays["replays"]["3"] > 0
        assert "more rows than the largest graph" in replays["eager"]


def test_chunks_of_prompts_may_be_replayed_and_distributions_cut_by_flashinfer(
    folder: Path, host: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    Fake(monkeypatch)
    choices = {"cuda_graph_prefill": True, "sampling_backend": "flashinfer"}
    with host_device_engine(str(folder), **(SETTINGS | choices)) as engine:
        assert all_of(engine) == all_of(host)
        assert all_of(engine, temperature=0.9) == all_of(host, temperature=0.9)
        info = engine.get_server_info()
    assert info["graphs"]["extend_replays"]["16"] > 0
    assert info["cuda_graph_bytes"] > 0


def test_a_small_pool_takes_requests_back_and_changes_no_token(folder: Path, host: Engine) -> None:
    with host_device_engine(str(folder), max_total_tokens=100, schedule_conservativeness=0.1, **SETTINGS) as engine:
        got = all_of(engine)
        assert engine.get_server_info()["retractions"] > 0
    assert got == all_of(host)


def test_attention_that_cannot_be_captured_runs_without_graphs(folder: Path, host: Engine) -> None:
    with host_device_engine(str(folder), changes={"attention": "torch_ref"}, **SETTINGS) as engine:
        assert all_of(engine) == all_of(host)
        info = engine.get_server_info()
    assert (info["attention_backend"], info["cuda_graph_bs"]) == ("TorchAttention", [])


def test_in_bfloat16_programs_run_to_their_ends(folder: Path) -> None:
    """Weights, activations, keys and values of 16 bits; masks and draws over float32 logits."""
    changes = {"dtype": torch.bfloat16, "kv_dtype": torch.bfloat16, "attention": "torch_ref"}
    with host_device_engine(str(folder), None, changes, **SETTINGS) as engine:
        assert [len(ids) for ids in all_of(engine)] == [NEW_TOKENS - row for row in range(7)]
        assert answers(engine)["digits"].isdigit()
        info = engine.get_server_info()
    assert (info["dtype"], info["kv_cache_dtype"]) == ("bfloat16", "bfloat16")
    assert info["plan"]["kv_bytes_per_number"] == 2


def test_the_pool_gets_what_the_measured_weights_leave_of_the_share(folder: Path) -> None:
    taken = MEMORY - (32 << 20)
    share = 1 - (16 << 20) / MEMORY
    settings = SETTINGS | {"mem_fraction_static": share, "max_total_tokens": None}
    with host_device_engine(
        str(folder), HostParts(taken), {"mem_fraction": share, "graphs": False}, **settings
    ) as engine:
        plan = engine.get_server_info()["plan"]
    assert plan["device_weight_bytes"] == taken
    assert (16 << 20) - 4 * plan["kv_bytes_per_token"] < plan["pool_bytes"] <= 16 << 20


def test_where_flashinfer_does_not_take_the_model_and_nobody_asked_for_it_triton_does(folder: Path) -> None:
    parts = HostParts()
    with host_device_engine(str(folder), parts, {"attention": "flashinfer"}, **SETTINGS):
        assert parts.kinds == ["flashinfer", "triton"]


class Uncompiled:
    """Attention whose kernels do not compile when they are first used."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def plan(self, fb: ForwardBatch) -> None:
        raise self._error

    def forward(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, layer: int, options: LayerAttention = PLAIN
    ) -> torch.Tensor:
        raise AssertionError("nothing is planned")


class UncompiledParts(HostParts):
    def __init__(self, error: Exception) -> None:
        super().__init__()
        self._error = error

    def make_attention(self, kind: str, pool: KvPool, num_heads: int, *, deterministic: bool) -> AttentionBackend:
        if kind == "flashinfer":
            self.kinds.append(kind)
            return Uncompiled(self._error)
        return super().make_attention(kind, pool, num_heads, deterministic=deterministic)


def test_where_flashinfer_does_not_compile_and_nobody_asked_for_it_triton_does(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its kernels are compiled when they are first used, which takes a compiler that need not be there."""
    parts = UncompiledParts(RuntimeError("Could not find nvcc\nand more"))
    with host_device_engine(str(folder), parts, {"attention": "flashinfer"}, **SETTINGS) as engine:
        assert engine.get_server_info()["attention_backend"] == "StaticAttention"
    assert parts.kinds == ["flashinfer", "triton"]
    assert "FlashInfer's did not run: Could not find nvcc" in caplog.text


@pytest.mark.parametrize(
    ("error", "settings"),
    [
        (RuntimeError("Could not find nvcc"), {"attention_backend": "flashinfer", "device": "cuda"}),
        (torch.OutOfMemoryError("no memory"), {}),
    ],
)
def test_what_was_asked_for_and_lack_of_memory_end_the_start(
    folder: Path, error: Exception, settings: dict[str, Any]
) -> None:
    parts = UncompiledParts(error)
    with (
        pytest.raises(type(error), match=str(error)),
        host_device_engine(str(folder), parts, {"attention": "flashinfer"}, **(SETTINGS | settings)),
    ):
        pass
    assert parts.kinds == ["flashinfer"]


@sgl.function
def program(s: Any) -> None:
    """Forks, choices, constraints, and text in between."""
    s += "hello"
    branches = s.fork(3)
    for i, branch in enumerate(branches):
        branch += f" number {i}" + sgl.gen("text", max_tokens=6)
    s += branches[0]["text"] + sgl.select("which", ["hello", "world", "low"])
    s += sgl.gen("digits", regex="[0-9]{3}") + " and " + sgl.gen("rest", max_tokens=8, stop="lo")


def answers(engine: Engine) -> dict[str, Any]:
    state = program.run(backend=engine, temperature=0)
    return {name: state[name] for name in ("which", "digits", "rest")}


def test_programs_run(folder: Path, host: Engine) -> None:
    with host_device_engine(str(folder), **SETTINGS) as engine:
        assert answers(engine) == answers(host)


@pytest.mark.model
def test_the_embedded_model_says_the_same_on_both_ways(engine: Engine) -> None:
    """In float32 and with 4-bit matrices as stored, over keys token by token, replayed and overlapped."""
    encode = engine.tokenizer.encode
    prompts = [encode(text, parse_special=False) for text in ("The capital of France is", "One, two, three, four,")]
    reference = Reference(engine, prompts, 8)
    settings: dict[str, Any] = {"context_length": 32, "max_running_requests": 2, "chunked_prefill_size": 16}
    parts = HostParts(tokens=32)
    with host_device_engine(None, parts, {"keeps_q4": True}, **settings) as device:
        replies: Any = device.generate(input_ids=reference.prompts, sampling_params=reference.params)
        info = device.get_server_info()
    reference.check([reply["output_ids"] for reply in replies])
    assert set(parts.q4.packed) == {"Q4_1"}
    assert info["keeps_q4"]
    assert info["cuda_graph_bs"] == [1, 2]
    assert info["executor"] == "torch"
