"""Engines with a draft model: outputs are those without, and a draft of another vocabulary is refused by name."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import sglang_lite as sgl
from sglang_lite.errors import RequestError
from sglang_lite.runtime.engine.draft_model import check_vocabulary
from sglang_lite.runtime.engine.engine import Engine
from sglang_lite.runtime.model.hub import HuggingFaceHub
from sglang_lite.runtime.model.source import resolve_model
from sglang_lite.runtime.text.tokenizer import Tokenizer, tokenizer_from_gguf
from tests.runtime.engine.test_model_folders import make_folder
from tests.runtime.text.tiny import byte_level_metadata
from tests.support.host_device import host_device_engine

TOKENS = len(tokenizer_from_gguf(byte_level_metadata()).token_bytes)
SETTINGS: dict[str, Any] = {"max_total_tokens": 512, "num_threads": 1, "page_size": 4, "chunked_prefill_size": 16}
SEVEN = [[5 + (7 * i) % 200 for i in range(20)] + [30 + row] * (1 + row) for row in range(7)]


def tokenizer() -> Tokenizer:
    return tokenizer_from_gguf(byte_level_metadata())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model")
    make_folder(path, "llama", TOKENS)
    return path


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Another model of the same tokens."""
    path = tmp_path_factory.mktemp("draft")
    make_folder(path, "qwen2", TOKENS)
    return path


@pytest.fixture(scope="module")
def plain(folder: Path) -> Iterator[Engine]:
    with sgl.Engine(str(folder), attention_backend="torch_ref", **SETTINGS) as engine:
        yield engine


def all_of(engine: Engine) -> list[tuple[list[int], Any]]:
    """Greedy and drawn answers with their log-probabilities' tokens, and one that a pattern holds."""
    params = [
        {"max_new_tokens": 24 - row, "temperature": 0.8 * (row % 2), "seed": row, "ignore_eos": True}
        for row in range(7)
    ]
    replies: Any = engine.generate(input_ids=SEVEN, sampling_params=params, return_logprob=True)
    digits: Any = engine.generate("n:", {"regex": "[0-9]{9}", "temperature": 0.0})
    ids = [(r["output_ids"], [entry[1] for entry in r["meta_info"]["output_token_logprobs"]]) for r in replies]
    return [*ids, (digits["output_ids"], digits["text"])]


@pytest.mark.parametrize("overlap", [False, True])
def test_outputs_are_those_without_a_draft_model(folder: Path, other: Path, plain: Engine, overlap: bool) -> None:
    draft = {"speculative_algorithm": "STANDALONE", "speculative_draft_model_path": str(other)}
    choices = {"attention_backend": "torch_ref", "disable_overlap_schedule": not overlap}
    with sgl.Engine(str(folder), **choices, **draft, **SETTINGS) as engine:
        assert all_of(engine) == all_of(plain)
        info = engine.get_server_info()
    assert (info["speculative_algorithm"], info["draft_model"]["model_path"]) == ("DRAFT", str(other))
    assert info["draft"]["guesses"] > 0 < info["missed_tokens"]


def test_the_model_as_its_own_draft_is_mostly_right(folder: Path, plain: Engine) -> None:
    draft = {"speculative_algorithm": "DRAFT", "speculative_draft_model_path": str(folder)}
    params = {"max_new_tokens": 48, "temperature": 0.0, "ignore_eos": True}
    with sgl.Engine(str(folder), attention_backend="torch_ref", **draft, **SETTINGS) as engine:
        got: Any = engine.generate(input_ids=SEVEN[:3], sampling_params=params)
        info = engine.get_server_info()
    expected: Any = plain.generate(input_ids=SEVEN[:3], sampling_params=params)
    assert [r["output_ids"] for r in got] == [r["output_ids"] for r in expected]
    assert info["spec_accept_rate"] > 0.9
    assert info["spec_accept_length"] > 3
    assert info["plan"]["draft_model_path"] == str(folder)
    assert info["plan"]["draft_kv_bytes_per_token"] * 2 == info["plan"]["kv_bytes_per_token"]


def test_a_device_computes_the_draft_model_too(folder: Path, other: Path, plain: Engine) -> None:
    draft = {"speculative_algorithm": "DRAFT", "speculative_draft_model_path": str(other)}
    with host_device_engine(str(folder), None, {"overlap": False}, **(SETTINGS | draft)) as engine:
        assert [ids for ids, _ in all_of(engine)] == [ids for ids, _ in all_of(plain)]
        info = engine.get_server_info()
    assert info["draft"]["guesses"] > 0
    assert info["graphs"]["replays"]


def test_a_draft_model_of_a_shorter_context_is_refused_with_the_remedy(folder: Path, tmp_path: Path) -> None:
    make_folder(tmp_path, "llama", TOKENS)
    config = tmp_path / "config.json"
    config.write_text(config.read_text().replace('"max_position_embeddings": 256', '"max_position_embeddings": 64'))
    draft = {"speculative_algorithm": "DRAFT", "speculative_draft_model_path": str(tmp_path)}
    with pytest.raises(RequestError, match="set context_length=64"):
        sgl.Engine(str(folder), **draft, **SETTINGS)


def test_equal_vocabularies_pass_and_padding_is_no_difference() -> None:
    padded = tokenizer()
    padded.cover(TOKENS + 9)
    check_vocabulary(padded, tokenizer())
    check_vocabulary(tokenizer(), padded)


def test_the_first_token_that_differs_is_named() -> None:
    draft = tokenizer()
    draft.token_bytes[70] = b"other"
    with pytest.raises(RequestError, match=r"token 70 is .* in the model's .* b'other' in the draft"):
        check_vocabulary(tokenizer(), draft)
    longer = tokenizer()
    longer.token_bytes.append(b"more")
    with pytest.raises(RequestError, match=f"token {TOKENS} is b'' .* b'more'"):
        check_vocabulary(tokenizer(), longer)
    special = tokenizer()
    special.special_ids |= {70}
    with pytest.raises(RequestError, match="token 70 is special in the draft model's"):
        check_vocabulary(tokenizer(), special)


@pytest.mark.model
@pytest.mark.native
def test_two_native_steps_run_side_by_side() -> None:
    """The embedded model drafts for itself: nearly every guess stands, and tokens and log-probabilities are equal to the bit."""
    path = str(resolve_model(None, HuggingFaceHub()).path)
    params = {"temperature": 0.0, "max_new_tokens": 32, "ignore_eos": True}
    found: list[Any] = []
    for draft in ({}, {"speculative_algorithm": "DRAFT", "speculative_draft_model_path": path}):
        with sgl.Engine(max_total_tokens=512, num_threads=1, **draft) as engine:
            reply: Any = engine.generate("Water boils at a hundred", params, return_logprob=True)
            found.append((reply["output_ids"], reply["meta_info"]["output_token_logprobs"]))
            info = engine.get_server_info()
    assert found[0] == found[1]
    assert info["draft_model"]["executor"] == "native"
    assert info["spec_accept_rate"] > 0.95
