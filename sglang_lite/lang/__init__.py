"""The language: what a program author touches. It knows the contract (`request_tree`), not the runtime."""

from __future__ import annotations

from sglang_lite.lang.api import (
    assistant,
    assistant_begin,
    assistant_end,
    function,
    gen,
    gen_int,
    gen_string,
    image,
    literal,
    select,
    separate_reasoning,
    system,
    system_begin,
    system_end,
    user,
    user_begin,
    user_end,
    video,
)
from sglang_lite.lang.backends.hosted import Anthropic, LiteLLM, OpenAI, VertexAI
from sglang_lite.lang.backends.registry import (
    backend_scope,
    flush_cache,
    get_server_info,
    register_backend,
    resolve_backend,
    set_default_backend,
)
from sglang_lite.lang.backends.remote import RuntimeEndpoint
from sglang_lite.lang.backends.script import ScriptedCall, ScriptError
from sglang_lite.lang.backends.scripted import ScriptedBackend
from sglang_lite.lang.choices import (
    ChoicesDecision,
    ChoicesSamplingMethod,
    greedy_token_selection,
    token_length_normalized,
    unconditional_likelihood_normalized,
)
from sglang_lite.lang.global_config import global_config
from sglang_lite.lang.group import ProgramStateGroup
from sglang_lite.lang.options import RunOptions
from sglang_lite.lang.results import BatchReport, read_results
from sglang_lite.lang.sgl_function import SglFunction
from sglang_lite.lang.state import ProgramState
from sglang_lite.lang.summary import UsageTotals, count_usage
from sglang_lite.lang.tool_loop import ToolLoopError, tool_loop, tool_loop_async
from sglang_lite.lang.tools.values import ToolCall, ToolReply
from sglang_lite.lang.typed.describe import describe_type
from sglang_lite.lang.typed.gens import RETRY_TEXT, SglTypedGen
from sglang_lite.lang.typed.limits import Limits
from sglang_lite.records.record import RunRecord

__all__ = [
    "RETRY_TEXT",
    "Anthropic",
    "BatchReport",
    "ChoicesDecision",
    "ChoicesSamplingMethod",
    "Limits",
    "LiteLLM",
    "OpenAI",
    "ProgramState",
    "ProgramStateGroup",
    "RunOptions",
    "RunRecord",
    "RuntimeEndpoint",
    "ScriptError",
    "ScriptedBackend",
    "ScriptedCall",
    "SglFunction",
    "SglTypedGen",
    "ToolCall",
    "ToolLoopError",
    "ToolReply",
    "UsageTotals",
    "VertexAI",
    "assistant",
    "assistant_begin",
    "assistant_end",
    "backend_scope",
    "count_usage",
    "describe_type",
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
    "resolve_backend",
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
