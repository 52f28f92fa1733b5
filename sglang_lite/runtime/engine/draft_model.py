"""The draft model of an engine: opened like the target, its vocabulary compared, and put behind the target's runner."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from sglang_lite.errors import RequestError
from sglang_lite.runtime.attention.kv_pool import KvPool
from sglang_lite.runtime.config import EngineConfig
from sglang_lite.runtime.engine.cache_folder import cache_folder
from sglang_lite.runtime.engine.device_executor import open_on_device, run_on_device
from sglang_lite.runtime.engine.model_executor import ModelExecutor, OpenedModel, make_executor, open_source
from sglang_lite.runtime.engine.model_sizes import ModelSizes
from sglang_lite.runtime.engine.placement import Placement
from sglang_lite.runtime.execution.draft_runner import DraftRunner
from sglang_lite.runtime.execution.threaded_runner import CountingRunner
from sglang_lite.runtime.text.tokenizer import Tokenizer
from sglang_lite.runtime.text.tokenizer_cache import load_tokenizer


@dataclass(frozen=True)
class DraftModel:
    """A draft model that is ready to run over its own pool."""

    source: OpenedModel
    executor: ModelExecutor
    pool: KvPool
    device: str

    def behind(self, target: CountingRunner, vocab_size: int) -> DraftRunner:
        """`target`, whose model has `vocab_size` tokens, with this model's guesses."""
        return DraftRunner(
            target,
            self.executor.model,
            self.executor.attention,
            self.pool,
            draft_vocab_size=self.source.config.vocab_size,
            vocab_size=vocab_size,
            device=self.device,
        )

    def to_dict(self) -> dict[str, Any]:
        """For the information page."""
        return {
            "model_path": str(self.source.path),
            "architecture": self.source.config.architecture,
            "executor": self.executor.name,
            "attention_backend": self.executor.attention_name,
        }


def open_draft(placed: Placement, sizes: ModelSizes, tokenizer: Tokenizer) -> OpenedModel:
    """The draft model, on a device with its weights; `tokenizer`: the target's.

    Raises:
        ModelLoadError: it is damaged.
        RequestError: its tokens are not the target's.
    """
    if placed.parts is not None:
        source = open_on_device(sizes.path, placed)
    else:
        source = open_source(sizes.path, _settings(placed, sizes), sizes.gguf)
    check_vocabulary(tokenizer, load_tokenizer(sizes.path, cache_folder(), lambda _: source.metadata))
    return source


def run_draft(
    placed: Placement,
    sizes: ModelSizes,
    source: OpenedModel,
    pool: KvPool,
    context_length: int,
    num_threads: int,
    notice: Callable[[str], None],
) -> DraftModel:
    """The opened draft model, ready to run; on a device without graphs, since its rows differ from step to step."""
    if placed.parts is not None:
        executor = run_on_device(replace(placed, graphs=False), source, pool, context_length, notice)
    else:
        executor = make_executor(_settings(placed, sizes), source, pool, num_threads, notice)
    return DraftModel(source, executor, pool, placed.device)


def check_vocabulary(target: Tokenizer, draft: Tokenizer) -> None:
    """Compare every token; ids without text beyond one vocabulary, as embeddings are padded with, count as the same.

    Raises:
        RequestError: names the first token that differs.
    """
    ours, theirs = target.token_bytes, draft.token_bytes
    what = "configuring the engine: the draft model's vocabulary is not the model's"
    remedy = "take a draft model of the same family (speculative_draft_model_path)"
    for i in range(max(len(ours), len(theirs))):
        one, other = (tokens[i] if i < len(tokens) else b"" for tokens in (ours, theirs))
        if one != other:
            raise RequestError(
                f"{what}: token {i} is {one!r} in the model's {len(ours)} tokens and {other!r} in the draft model's "
                f"{len(theirs)}; {remedy}"
            )
    if odd := sorted(target.special_ids ^ draft.special_ids):
        i = odd[0]
        where = (
            ("the model's", "the draft model's") if i in target.special_ids else ("the draft model's", "the model's")
        )
        raise RequestError(f"{what}: token {i} is special in {where[0]} and not in {where[1]}; {remedy}")


def _settings(placed: Placement, sizes: ModelSizes) -> EngineConfig:
    """The engine's own; a GGUF file brings its own quantisation."""
    return replace(placed.config, quantization=placed.config.quantization if sizes.path.is_dir() else None)
