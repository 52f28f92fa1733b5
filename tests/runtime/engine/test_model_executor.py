"""Which executor an engine gets, and that on the native one a request's output does not depend on its neighbours."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tests.support.kernel_cache  # noqa: F401
from sglang_lite.errors import RequestError
from sglang_lite.runtime.attention.kv_pool import KvPool
from sglang_lite.runtime.config import EngineConfig
from sglang_lite.runtime.engine.engine import Engine
from sglang_lite.runtime.engine.model_executor import make_executor, open_source
from tests.support.tiny_gguf import TinyLlama, gguf_tensors, make_model, write_gguf
from tests.support.tiny_models import ARCHITECTURES, save_gguf

PROMPTS = [np.random.default_rng(seed).integers(500, 40000, size).tolist() for seed, size in enumerate((5, 70, 33, 16))]


def executor_of(folder: Path, head_dim: int, heads: int = 4, **settings: Any) -> Any:
    tiny = TinyLlama(head_dim=head_dim, heads=heads)
    path = write_gguf(folder / "tiny.gguf", tiny, gguf_tensors(make_model(tiny), tiny))
    return executor_on(path, **settings)


def executor_on(path: Path, **settings: Any) -> Any:
    config = EngineConfig(**settings)
    source = open_source(path, config)
    pool = KvPool(source.config.num_layers, 4, source.config.num_kv_heads, source.config.head_dim, 16)
    return make_executor(config, source, pool, 1, lambda line: None)


def test_the_native_step_is_taken_where_it_can_run_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("SGLANG_LITE_CACHE", str(tmp_path))
    with caplog.at_level(logging.INFO):
        assert executor_of(tmp_path, 32).name == "native"
    assert "one native call" in caplog.text


def test_where_it_cannot_torch_runs_and_the_log_says_why(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        executor = executor_of(tmp_path, 16, heads=2)
    assert (executor.name, executor.attention_name) == ("torch", "CpuAttention")
    assert "head_dim is 16" in caplog.text


def test_experts_run_on_torch_and_the_log_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    peer = ARCHITECTURES["qwen3moe"].make()
    path = save_gguf(tmp_path / "tiny.gguf", peer, "qwen3moe")
    peer.save_pretrained(tmp_path / "tiny")
    with caplog.at_level(logging.INFO):
        assert executor_on(path).name == "torch"
        assert executor_on(tmp_path / "tiny").name == "torch"
    assert "architecture 'qwen3moe' has no native step" in caplog.text
    assert "tiny runs on torch modules in float32: the native step has no experts" in caplog.text
    with pytest.raises(RequestError, match=r"quantization='int8' needs the native step, .*qwen3moe"):
        executor_on(tmp_path / "tiny", quantization="int8")


@pytest.mark.parametrize("settings", [{"dtype": "float32"}, {"attention_backend": "torch_ref"}])
def test_torch_can_be_asked_for(tmp_path: Path, settings: dict[str, Any]) -> None:
    assert executor_of(tmp_path, 32, **settings).name == "torch"


def test_a_folder_runs_natively_on_int8_weights_when_asked_and_on_torch_otherwise(tmp_path: Path) -> None:
    ARCHITECTURES["qwen3"].make().save_pretrained(tmp_path)
    assert executor_on(tmp_path).name == "torch"
    assert executor_on(tmp_path, quantization="int8").name == "native"


def test_int8_is_refused_where_it_cannot_be_had(tmp_path: Path) -> None:
    """A GGUF file has its own storage; a folder of other sizes has no native step to run it."""
    with pytest.raises(RequestError, match="brings its own quantisation"):
        executor_of(tmp_path, 32, quantization="int8")
    odd = ARCHITECTURES["llama"]
    replace(odd, settings=odd.settings | {"intermediate_size": 72}).make().save_pretrained(tmp_path / "odd")
    with pytest.raises(RequestError, match="intermediate_size is 72"):
        executor_on(tmp_path / "odd", quantization="int8")


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with Engine(max_total_tokens=2048, num_threads=2, chunked_prefill_size=32) as running:
        yield running


def run(engine: Engine, prompts: list[list[int]], **params: Any) -> list[Any]:
    params = {"max_new_tokens": 12, "temperature": 0.8, "ignore_eos": True, **params}
    sampling = [params | {"seed": len(prompt)} for prompt in prompts]
    return engine.generate(input_ids=prompts, sampling_params=sampling, return_logprob=True)


@pytest.mark.model
def test_tokens_and_their_logprobs_are_equal_to_the_bit_alone_together_and_cached(engine: Engine) -> None:
    assert engine.get_server_info()["executor"] == "native"
    alone = []
    for prompt in PROMPTS:
        engine.flush_cache()
        alone += run(engine, [prompt])
    engine.flush_cache()
    for others in (run(engine, PROMPTS), run(engine, PROMPTS), run(engine, PROMPTS[::-1])[::-1]):
        for one, other in zip(alone, others, strict=True):
            assert other["output_ids"] == one["output_ids"]
            key = "output_token_logprobs"
            assert other["meta_info"][key] == one["meta_info"][key]
