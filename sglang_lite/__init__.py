"""The public surface of sglang_lite: SGLang's names for programs, the lazy `Engine`, and the `local` backend scheme.

Importing it loads neither torch nor the runtime: `Engine` is resolved on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sglang_lite import errors
from sglang_lite.lang import (
    RETRY_TEXT,
    Anthropic,
    BatchReport,
    Limits,
    LiteLLM,
    OpenAI,
    ProgramState,
    RunOptions,
    RunRecord,
    RuntimeEndpoint,
    ScriptedBackend,
    ScriptedCall,
    SglFunction,
    ToolCall,
    ToolLoopError,
    ToolReply,
    UsageTotals,
    VertexAI,
    assistant,
    assistant_begin,
    assistant_end,
    backend_scope,
    count_usage,
    describe_type,
    flush_cache,
    function,
    gen,
    gen_int,
    gen_string,
    get_server_info,
    global_config,
    greedy_token_selection,
    image,
    literal,
    read_results,
    register_backend,
    select,
    separate_reasoning,
    set_default_backend,
    system,
    system_begin,
    system_end,
    token_length_normalized,
    tool_loop,
    tool_loop_async,
    unconditional_likelihood_normalized,
    user,
    user_begin,
    user_end,
    video,
)
from sglang_lite.request_tree import SamplingParams

if TYPE_CHECKING:
    from sglang_lite.request_tree import Backend
    from sglang_lite.runtime.engine.engine import Engine
    from sglang_lite.runtime_process import Runtime

__version__ = "0.1.0"

__all__ = [
    "RETRY_TEXT",
    "Anthropic",
    "BatchReport",
    "Engine",
    "Limits",
    "LiteLLM",
    "OpenAI",
    "ProgramState",
    "RunOptions",
    "RunRecord",
    "Runtime",
    "RuntimeEndpoint",
    "SamplingParams",
    "ScriptedBackend",
    "ScriptedCall",
    "SglFunction",
    "ToolCall",
    "ToolLoopError",
    "ToolReply",
    "UsageTotals",
    "VertexAI",
    "__version__",
    "assistant",
    "assistant_begin",
    "assistant_end",
    "backend_scope",
    "count_usage",
    "describe_type",
    "errors",
    "flush_cache",
    "function",
    "gen",
    "gen_int",
    "gen_string",
    "get_server_info",
    "global_config",
    "greedy_token_selection",
    "image",
    "literal",
    "read_results",
    "register_backend",
    "select",
    "separate_reasoning",
    "set_default_backend",
    "system",
    "system_begin",
    "system_end",
    "token_length_normalized",
    "tool_loop",
    "tool_loop_async",
    "unconditional_likelihood_normalized",
    "user",
    "user_begin",
    "user_end",
    "video",
]


def __getattr__(name: str) -> object:
    """Load the runtime (and with it torch) when `Engine` or `Runtime` is first asked for."""
    if name == "Engine":
        from sglang_lite.runtime.engine.engine import Engine  # torch is heavy: programs on other backends never need it

        return Engine
    if name == "Runtime":
        from sglang_lite.runtime_process import Runtime  # starts processes: only where one is wanted

        return Runtime
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def _local_backend(path: str) -> Backend:
    """Start an engine in this process for the backend string `local` (embedded model) or `local:PATH`."""
    from sglang_lite.runtime.engine.engine import Engine  # see __getattr__

    return Engine(path or None)


def _runtime_backend(rest: str) -> Backend:
    """Find a living `Runtime` by its `url`."""
    from sglang_lite.runtime_process import runtime_named  # see __getattr__

    return runtime_named(rest)


register_backend("local", _local_backend)
register_backend("runtime", _runtime_backend)
