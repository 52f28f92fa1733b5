"""Puts an engine together: model, tokenizer, KV pool, scheduler and runner from one configuration."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sglang_lite import env
from sglang_lite.chat_formats.thinking import THINKING_FORMATS
from sglang_lite.chat_formats.tools import tool_format
from sglang_lite.runtime.attention.kv_pool import KvPool
from sglang_lite.runtime.config import EngineConfig
from sglang_lite.runtime.engine.cache_folder import cache_folder
from sglang_lite.runtime.engine.device_executor import open_on_device, run_on_device
from sglang_lite.runtime.engine.draft_model import open_draft, run_draft
from sglang_lite.runtime.engine.memory_plan import MemoryPlan, draft_sizes, plan_for, plan_on_device
from sglang_lite.runtime.engine.model_executor import ModelExecutor, OpenedModel, make_executor, open_source
from sglang_lite.runtime.engine.model_sizes import ModelSizes, read_sizes
from sglang_lite.runtime.engine.notices import progress, tell
from sglang_lite.runtime.engine.placement import Placement, place
from sglang_lite.runtime.engine.requests import Limits
from sglang_lite.runtime.engine.resources import available_bytes, choose_threads
from sglang_lite.runtime.execution.device_runner import DeviceRunner, sampling_ops
from sglang_lite.runtime.execution.draft_runner import DraftRunner
from sglang_lite.runtime.execution.grammar_backend import GrammarBackend, NativeBackend
from sglang_lite.runtime.execution.grammar_manager import GrammarManager
from sglang_lite.runtime.execution.graph_model import GraphedModel
from sglang_lite.runtime.execution.model_runner import ModelRunner
from sglang_lite.runtime.execution.outlines_backend import OutlinesBackend
from sglang_lite.runtime.execution.thinking_gate import ThinkingGates
from sglang_lite.runtime.execution.threaded_runner import ThreadedRunner
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
    runner: ModelRunner | ThreadedRunner | DeviceRunner | DraftRunner
    grammars: GrammarManager
    text: TextParts
    limits: Limits
    info: dict[str, Any]
    statistics: Callable[[], dict[str, Any]]


def build_parts(config: EngineConfig, placement: Placement | None = None) -> EngineParts:
    """Load the model and size everything by `config` and by what the process may use.

    Args:
        config: the settings.
        placement: where and how it runs; None: chosen by the settings. Given where a device's way is driven without one.

    Raises:
        ModelLoadError: the model is missing or damaged.
        RequestError: the configuration does not fit this model or machine.
    """
    placed = placement or place(config)
    config = placed.config
    path = resolve_model(config.model_path or None, HuggingFaceHub()).path
    sizes = read_sizes(path)
    draft = draft_sizes(config)
    memory = _memory(placed, sizes, draft)
    for line in memory.lines():
        progress(line)
    source = open_source(path, config, sizes.gguf) if placed.parts is None else open_on_device(path, placed)
    model = source.config
    tokenizer = load_tokenizer(path, cache_folder(), lambda _: source.metadata)
    tokenizer.cover(model.vocab_size)
    draft_source = None if draft is None else open_draft(placed, draft, tokenizer)
    if placed.parts is not None:
        memory = plan_on_device(placed, sizes, placed.free_bytes - placed.parts.free_bytes(), draft)
    context, num_pages = memory.context_length, memory.pool_tokens // config.page_size
    pool = _pool(placed, model, num_pages)
    num_threads, why = choose_threads(config.num_threads, env.num_threads(), _MAX_DEFAULT_THREADS)
    progress(f"threads  {num_threads} ({why})")
    _name_kernel_folder()
    progress("loading the weights, compiling what is not compiled yet ...")
    executor = _executor(placed, source, pool, context, num_threads)
    eos_ids = frozenset(i for i in tokenizer.eos_ids if i < model.vocab_size)
    drafter = None
    if draft is not None and draft_source is not None:
        own_pool = _pool(placed, draft_source.config, num_pages)
        drafter = run_draft(placed, draft, draft_source, own_pool, context, num_threads, tell)
    scheduler = _scheduler(placed, model, tokenizer, context, num_pages, eos_ids)
    plain = _runner(placed, executor, pool, model.vocab_size, eos_ids)
    behind = None if drafter is None else drafter.behind(plain, model.vocab_size)
    runner = behind or plain
    if config.overlap_thread and placed.parts is None:
        runner = ThreadedRunner(runner)
    text = TextParts(tokenizer, chat_of(config, tokenizer), tokenizer.visible_bytes, context_len=context)
    pool_tokens = num_pages * config.page_size
    info = (
        config.to_dict()
        | placed.to_dict()
        | {
            "model_path": str(path),
            "architecture": model.architecture,
            "context_length": context,
            "max_total_tokens": pool_tokens,
            "num_threads": num_threads,
            "executor": executor.name,
            "attention_backend": executor.attention_name,
            "draft_model": None if drafter is None else drafter.to_dict(),
            "cuda_graph_bs": list(executor.model.sizes) if isinstance(executor.model, GraphedModel) else [],
            "cuda_graph_bytes": executor.model.num_bytes if isinstance(executor.model, GraphedModel) else 0,
            "chat_format": text.chat.format.to_json(),
            "kv_bytes": memory.pool_bytes,
            "plan": memory.to_dict(),
        }
    )

    def statistics() -> dict[str, Any]:
        return scheduler.statistics().to_dict() | {
            "runner": asdict(runner.counters),
            "graphs": executor.model.counters.to_dict() if isinstance(executor.model, GraphedModel) else None,
            "draft": None if behind is None else asdict(behind.draft_counters),
            "tokenizer": asdict(tokenizer.statistics()),
        }

    limits = Limits(model.vocab_size, context, pool_tokens)
    grammars = _grammar_manager(config, tokenizer, model.vocab_size, eos_ids)
    return EngineParts(scheduler, runner, grammars, text, limits, info, statistics)


def chat_of(config: EngineConfig, tokenizer: Tokenizer) -> ChatTemplate:
    """The model's template; what the settings say of its tool calls and thinking goes before what it says itself."""
    chat = ChatTemplate(tokenizer.chat_template, tokenizer.template_variables, tokens=tokenizer.special_tokens)
    if config.tool_call_parser is not None:
        own = tool_format(config.tool_call_parser).name
        chat.format = replace(chat.format, tools=own, shows_tools=chat.format.shows_tools and own == chat.format.tools)
    if config.reasoning_parser is not None:
        chat.format = replace(chat.format, thinking=THINKING_FORMATS[config.reasoning_parser])
    return chat


def _memory(placed: Placement, sizes: ModelSizes, draft: ModelSizes | None) -> MemoryPlan:
    """The plan before anything is loaded."""
    if placed.parts is None:
        return plan_for(placed.config, sizes, available_bytes(), draft)
    return plan_on_device(placed, sizes, draft=draft)


def _executor(placed: Placement, source: OpenedModel, pool: KvPool, context: int, num_threads: int) -> ModelExecutor:
    if placed.parts is None:
        return make_executor(placed.config, source, pool, num_threads, tell)
    return run_on_device(placed, source, pool, context, progress)


def _pool(placed: Placement, model: ModelConfig, num_pages: int) -> KvPool:
    sizes = (model.num_layers, num_pages + 1, model.num_kv_heads, model.head_dim, placed.config.page_size)
    return KvPool(*sizes, placed.device, placed.kv_dtype, token_major=placed.parts is not None)


def _runner(
    placed: Placement, executor: ModelExecutor, pool: KvPool, vocab_size: int, eos_ids: frozenset[int]
) -> ModelRunner | DeviceRunner:
    model, attention = executor.model, executor.attention
    if placed.parts is None:
        return ModelRunner(model, attention, pool, vocab_size=vocab_size, eos_ids=eos_ids)
    ops = sampling_ops(pool.k.device, placed.config.sampling_backend)
    return DeviceRunner(model, attention, pool, vocab_size=vocab_size, eos_ids=eos_ids, device=placed.device, ops=ops)


def _scheduler(
    placed: Placement,
    model: ModelConfig,
    tokenizer: Tokenizer,
    context: int,
    num_pages: int,
    eos_ids: frozenset[int],
) -> Scheduler:
    config = placed.config
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
        disable_overlap_schedule=not placed.overlap,
        launch_ahead=placed.overlap and placed.parts is not None,
        num_ngram_tokens=config.speculative_num_draft_tokens if config.speculative_algorithm == "NGRAM" else 0,
        num_draft_tokens=config.speculative_num_draft_tokens if config.speculative_algorithm == "DRAFT" else 0,
        jump_forward=config.jump_forward,  # pyright: ignore[reportArgumentType] - checked there
    )
    return Scheduler(settings, kv, tokenizer.visible_bytes)


def _name_kernel_folder() -> None:
    """Compiled kernels are kept on disk, so their folder is named before one of them is imported."""
    prepare_grammar_kernels(cache_folder())  # Numba loads here, after the model's own errors


def prepare_grammar_kernels(cache_dir: Path) -> None:
    """Name the folder of compiled kernels by their sources; before the first of them is imported."""
    from sglang_lite.kernels.cpu.jit import prepare_cache

    prepare_cache(cache_dir, _grammar_sources())


def _grammar_sources() -> Iterable[Path]:
    import sglang_lite.grammar

    return Path(sglang_lite.grammar.__file__).parent.glob("*.py")  # all: constants of any module go into compiled code


def _grammar_manager(
    config: EngineConfig, tokenizer: Tokenizer, vocab_size: int, eos_ids: frozenset[int]
) -> GrammarManager:
    gates = ThinkingGates(
        tokenizer.visible_bytes,
        tokenizer.special_ids,
        eos_ids,
        vocab_size,
        lambda text: tokenizer.encode(text, parse_special=True, previous_id=_ordinary_id(tokenizer)),
    )
    timeout_s = config.grammar_compile_timeout_s
    make = {"native": _native_grammars, "outlines": _outlines_grammars}[config.grammar_backend]
    return GrammarManager(lambda: make(tokenizer), timeout_s=timeout_s, gates=gates)


def _native_grammars(tokenizer: Tokenizer) -> GrammarBackend:
    return NativeBackend.of_vocab(lambda: _token_vocab(tokenizer))


def _outlines_grammars(tokenizer: Tokenizer) -> GrammarBackend:
    return OutlinesBackend(tokenizer.token_bytes, tokenizer.special_ids, tokenizer.eos_ids)


def _ordinary_id(tokenizer: Tokenizer) -> int:
    """A token that is text: behind one, no tokenizer puts a space of its own."""
    return next(i for i, data in enumerate(tokenizer.visible_bytes) if data and i not in tokenizer.special_ids)


def _token_vocab(tokenizer: Tokenizer) -> TokenVocab:
    """Called once, on a compiling thread, when the first constraint comes: the kernels take long to compile once."""
    from sglang_lite.grammar import TokenVocab, compile_all  # compiled functions: only after prepare_cache
    from sglang_lite.kernels.cpu.jit import is_compiled, mark_compiled

    if not is_compiled("grammar"):
        tell("compiling the grammar kernels (once for this machine, about 20 s)")
        compile_all()
        mark_compiled("grammar")
    ordinary = _ordinary_id(tokenizer)

    def encode(text: str) -> list[int]:
        return tokenizer.encode(text, parse_special=False, previous_id=ordinary)

    return TokenVocab.from_tokenizer(tokenizer, encode=encode, cache_dir=cache_folder())
