"""An engine on a model folder: weights from safetensors, text through its tokenizer.json, ends from its generation config."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import sglang_lite as sgl
from sglang_lite.errors import ModelLoadError, RequestError
from sglang_lite.runtime.engine.engine import Engine
from sglang_lite.runtime.text.tokenizer import tokenizer_from_gguf
from tests.runtime.text.tiny import byte_level_metadata
from tests.support.tiny_models import ARCHITECTURES, TinyModel, all_logits

TEMPLATE = "{% for m in messages %}<|im_start|>{{ m['content'] }}<|im_end|>{% endfor %}"
PROMPT = "hello world"
NEW_TOKENS = 40


def make_folder(folder: Path, name: str, vocab: int = 272) -> Any:
    """A tiny model with a byte-level tokenizer; returns transformers' own."""
    metadata = byte_level_metadata()
    tiny = ARCHITECTURES[name]
    peer = TinyModel(tiny.config_class, tiny.model_class, tiny.settings | {"vocab_size": vocab}).make()
    peer.save_pretrained(folder, max_shard_size="60KB")
    (folder / "tokenizer.json").write_text(tokenizer_from_gguf(metadata).backend_json(), encoding="utf-8")
    config = {"bos_token": "<s>", "eos_token": "<|im_end|>", "add_bos_token": False, "chat_template": TEMPLATE}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [2]}))
    return peer


def start(folder: Path, **changes: Any) -> Engine:
    return sgl.Engine(model_path=str(folder), **({"max_total_tokens": 512, "num_threads": 1} | changes))


@pytest.fixture(scope="module", params=["gemma2", "mistral"])
def running(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Engine, Any, Path]]:
    """An engine that computes in chunks, transformers' model, and the folder of both."""
    folder = tmp_path_factory.mktemp("model")
    peer = make_folder(folder, request.param)
    with start(folder, chunked_prefill_size=16) as engine:
        yield engine, peer, folder


def greedy(engine: Engine, **more: Any) -> dict[str, Any]:
    return engine.generate(PROMPT, {"temperature": 0.0, "max_new_tokens": NEW_TOKENS} | more)


def test_greedy_tokens_are_those_of_transformers(running: tuple[Engine, Any, Path]) -> None:
    """Beyond the window, cold and from the cache."""
    engine, peer, _ = running
    prompt = engine.tokenizer.encode(PROMPT, parse_special=False)
    for _ in range(2):
        ids = greedy(engine, ignore_eos=True)["output_ids"]
        assert len(ids) == NEW_TOKENS
        best = all_logits(peer, [*prompt, *ids[:-1]])[len(prompt) - 1 :].argmax(-1)
        assert ids == best.tolist()


def test_prompt_log_probabilities_are_those_of_transformers(running: tuple[Engine, Any, Path]) -> None:
    engine, peer, _ = running
    prompt = engine.tokenizer.encode(PROMPT * 4, parse_special=False)
    reply = engine.generate(
        input_ids=prompt, sampling_params={"max_new_tokens": 1}, return_logprob=True, logprob_start_len=0
    )
    values = [entry[0] for entry in reply["meta_info"]["input_token_logprobs"]]
    rows = all_logits(peer, prompt).log_softmax(-1)
    expected = [float(rows[i, token]) for i, token in enumerate(prompt[1:])]
    torch.testing.assert_close(torch.tensor(values[1:]), torch.tensor(expected), atol=1e-3, rtol=0)


def test_each_end_of_the_generation_config_ends_a_generation(running: tuple[Engine, Any, Path], tmp_path: Path) -> None:
    """The list counts, not only the tokenizer's own end; its text is not in the output; `ignore_eos` goes on."""
    engine, _, folder = running
    ids = greedy(engine, ignore_eos=True)["output_ids"]
    end = ids[5]
    shutil.copytree(folder, tmp_path / "model")
    (tmp_path / "model" / "generation_config.json").write_text(json.dumps({"eos_token_id": [2, end]}))
    with start(tmp_path / "model") as other:
        reply = greedy(other)
        assert reply["meta_info"]["finish_reason"]["type"] == "stop"
        kept = ids[: ids.index(end)]
        assert reply["text"] == b"".join(engine.tokenizer.visible_bytes[i] for i in kept).decode(errors="replace")
        assert greedy(other, ignore_eos=True)["output_ids"] == ids


def test_the_engine_says_what_it_loaded(running: tuple[Engine, Any, Path]) -> None:
    engine, peer, folder = running
    info = engine.get_server_info()
    assert info["model_path"] == str(folder)
    assert info["architecture"] == peer.config.model_type
    assert info["context_length"] == 256
    assert engine.tokenizer.encode("<|im_end|>", parse_special=True) == [2]


def test_a_damaged_folder_starts_no_engine(running: tuple[Engine, Any, Path], tmp_path: Path) -> None:
    _, _, folder = running
    shutil.copytree(folder, tmp_path / "model")
    shard = next(iter(sorted((tmp_path / "model").glob("model-00001*"))))
    shard.write_bytes(shard.read_bytes()[:-10])
    with pytest.raises(ModelLoadError, match=f"{shard.name}: the file is cut short"):
        start(tmp_path / "model")


def test_other_dtypes_are_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="dtype='bfloat16', expected one of 'auto', 'float32' on device='cpu'"):
        start(tmp_path, dtype="bfloat16")
