"""Puts an engine together: model, tokenizer, KV pool, scheduler and runner from one configuration."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sglang_lite import env
from sglang_lite.errors import RequestError
from sglang_lite.runtime.attention.kv_pool import KvPool
from sglang_lite.runtime.config import EngineConfig
from sglang_lite.runtime.engine.model_executor import make_executor, open_source
from sglang_lite.runtime.engine.requests import Limits
from sglang_lite.runtime.engine.resources import available_bytes, usable_cpus
from sglang_lite.runtime.execution.grammar_manager import GrammarManager
from sglang_lite.runtime.execution.model_runner import ModelRunner
from sglang_lite.runtime.executor.ports import TextParts
from sglang_lite.runtime.memory.kv import KvManager
from sglang_lite.runtime.model.config import ModelConfig
from sglang_lite.runtime.model.hub import HuggingFaceHub
from sglang_lite.runtime.model.source import resolve_model
from sglang_lite.runtime.scheduler.config import SchedulerConfig
from sglang_lite.runtime.scheduler.scheduler import Scheduler
from sglang_lite.runtime.text.chat import ChatTemplate
from sglang_lite.runtime.text.tokenizer import Tokenizer
from sglang_lite.runtime.text.tokenizer_cache import load_tokenizer

if TYPE_CHECKING:
    from sglang_lite.grammar import TokenVocab

logger = logging.getLogger(__name__)

_EDGE_ROWS = 64
"""Rows beside those of running requests: the edges of a `select` that are scored at once. A row is a few kilobytes."""

_MAX_DEFAULT_THREADS = 8
"""More threads than this gain nothing on models of the sizes a CPU serves."""


@dataclass(frozen=True)
class EngineParts:
    """What an engine consists of. `info`: what was loaded and chosen. `statistics`: the counters, read on the engine's thread."""

    scheduler: Scheduler
    runner: ModelRunner
    grammars: GrammarManager
    text: TextParts
    limits: Limits
    info: dict[str, Any]
    statistics: Callable[[], dict[str, Any]]


def build_parts(config: EngineConfig) -> EngineParts:
    """Load the model and size everything by `config` and by what the process may use.

    Raises:
        ModelLoadError: the model is missing or damaged.
        RequestError: the configuration does not fit this model or machine.
    """
    path = resolve_model(config.model_path or None, HuggingFaceHub()).path
    source = open_source(path, config)
    model = source.config
    tokenizer = load_tokenizer(path, env.cache_dir(), lambda _: source.metadata)
    context = _context_length(config, model)
    num_pages = _num_pages(config, model, context)
    pool = KvPool(model.num_layers, num_pages + 1, model.num_kv_heads, model.head_dim, config.page_size)
    num_threads = config.num_threads or env.num_threads() or min(usable_cpus(), _MAX_DEFAULT_THREADS)
    _name_kernel_folder()
    executor = make_executor(config, source, pool, num_threads, notice)
    eos_ids = frozenset(i for i in tokenizer.eos_ids if i < model.vocab_size)
    scheduler = _scheduler(config, model, tokenizer, context, num_pages, eos_ids)
    runner = ModelRunner(executor.model, executor.attention, pool, vocab_size=model.vocab_size, eos_ids=eos_ids)
    text = TextParts(
        tokenizer, ChatTemplate(tokenizer.chat_template, tokenizer.template_variables), tokenizer.visible_bytes
    )
    pool_tokens = num_pages * config.page_size
    info = config.to_dict() | {
        "model_path": str(path),
        "architecture": model.architecture,
        "context_length": context,
        "max_total_tokens": pool_tokens,
        "num_threads": num_threads,
        "executor": executor.name,
        "attention_backend": executor.attention_name,
        "kv_bytes": pool_tokens * KvPool.bytes_per_page(model.num_layers, model.num_kv_heads, model.head_dim, 1),
    }

    def statistics() -> dict[str, Any]:
        return scheduler.statistics().to_dict() | {"runner": asdict(runner.counters)}

    limits = Limits(model.vocab_size, context, pool_tokens)
    grammars = GrammarManager(lambda: _token_vocab(tokenizer))
    return EngineParts(scheduler, runner, grammars, text, limits, info, statistics)


def notice(line: str) -> None:
    """Tell the user about a long wait; on the screen, since a silent program looks hung."""
    sys.stderr.write(f"sglang_lite: {line}\n")
    sys.stderr.flush()


def _context_length(config: EngineConfig, model: ModelConfig) -> int:
    if config.context_length is None:
        return model.max_position
    if config.context_length > model.max_position:
        raise RequestError(
            f"configuring the engine: context_length={config.context_length}, the model was made for at most "
            f"{model.max_position}; lower it"
        )
    return config.context_length


def _num_pages(config: EngineConfig, model: ModelConfig, context: int) -> int:
    """Pages of the KV pool, the sink page not counted: as asked for, or what the memory share holds."""
    if config.max_total_tokens is not None:
        pages = config.max_total_tokens // config.page_size
        asked = f"max_total_tokens={config.max_total_tokens}"
    else:
        per_page = KvPool.bytes_per_page(model.num_layers, model.num_kv_heads, model.head_dim, config.page_size)
        fit = int(available_bytes() * config.mem_fraction_static) // per_page
        pages = min(fit, config.max_running_requests * -(-context // config.page_size))
        asked = f"mem_fraction_static={config.mem_fraction_static}"
    if pages < 1:
        raise RequestError(
            f"configuring the engine: {asked} leaves no room for one page of {config.page_size} tokens; raise it"
        )
    return pages


def _scheduler(
    config: EngineConfig,
    model: ModelConfig,
    tokenizer: Tokenizer,
    context: int,
    num_pages: int,
    eos_ids: frozenset[int],
) -> Scheduler:
    kv = KvManager(
        num_rows=config.max_running_requests + _EDGE_ROWS,
        num_pages=num_pages + 1,
        page_size=config.page_size,
        max_len=context,
        enable_radix=not config.disable_radix_cache,
    )
    chunk = config.chunked_prefill_size
    settings = SchedulerConfig(
        context_length=context,
        vocab_size=model.vocab_size,
        eos_ids=eos_ids,
        max_running_requests=config.max_running_requests,
        chunked_prefill_size=None if chunk == -1 else chunk,
        max_prefill_tokens=config.max_prefill_tokens,
        schedule_policy=config.schedule_policy,  # pyright: ignore[reportArgumentType] - checked there
        batching=config.batching,  # pyright: ignore[reportArgumentType] - checked there
        schedule_conservativeness=config.schedule_conservativeness,
        enable_priority_scheduling=config.enable_priority_scheduling,
        schedule_low_priority_values_first=config.schedule_low_priority_values_first,
        max_queued_requests=config.max_queued_requests,
        random_seed=config.random_seed or 0,
        disable_overlap_schedule=config.disable_overlap_schedule,
    )
    return Scheduler(settings, kv, tokenizer.visible_bytes)


def _name_kernel_folder() -> None:
    """Compiled kernels are kept on disk, so their folder is named before one of them is imported."""
    from sglang_lite.kernels.cpu.jit import prepare_cache  # Numba loads here, after the model's own errors

    prepare_cache(env.cache_dir(), _grammar_sources())


def _grammar_sources() -> Iterable[Path]:
    import sglang_lite.grammar

    return Path(sglang_lite.grammar.__file__).parent.glob("*.py")  # all: constants of any module go into compiled code


def _token_vocab(tokenizer: Tokenizer) -> TokenVocab:
    """Called once, on a compiling thread, when the first constraint comes: the kernels take long to compile once."""
    from sglang_lite.grammar import TokenVocab, compile_all  # compiled functions: only after prepare_cache
    from sglang_lite.kernels.cpu.jit import is_compiled, mark_compiled

    if not is_compiled("grammar"):
        notice("compiling the grammar kernels (once for this machine, about 20 s)")
        compile_all()
        mark_compiled("grammar")
    return TokenVocab.from_tokenizer(tokenizer, cache_dir=env.cache_dir())
