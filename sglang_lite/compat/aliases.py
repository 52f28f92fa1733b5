"""Which names of SGLang are which of ours: a table, and nothing that uses it."""

from __future__ import annotations

from collections.abc import Iterable

_ROOT = "sglang_lite"
_API = "sglang_lite.lang.api"
_IR = "sglang_lite.lang.ir"
_SYMBOLS = "sglang_lite.lang.symbols"
_CHOICES = "sglang_lite.lang.choices"
_HELPERS = "sglang_lite.compat.helpers"
_MODELS = "sglang_lite.compat.models"
_BENCH = "sglang_lite.compat.bench"


def _of(module: str, names: Iterable[str]) -> dict[str, str]:
    return {name: f"{module}:{name}" for name in names}


_CHOICE_METHODS = ("token_length_normalized", "greedy_token_selection", "unconditional_likelihood_normalized")
_ROLES = tuple(f"{role}{part}" for role in ("system", "user", "assistant") for part in ("", "_begin", "_end"))
_BACKENDS = ("Engine", "Runtime", "RuntimeEndpoint", "OpenAI", "Anthropic", "LiteLLM", "VertexAI")
_LANGUAGE = (
    *("function", "gen", "gen_int", "gen_string", "select", "image", "video", "separate_reasoning", *_ROLES),
    *("set_default_backend", "flush_cache", "get_server_info"),
)
_NODES = (
    *("SglExpr", "SglExprList", "SglConstantText", "SglGen", "SglSelect", "SglSeparateReasoning"),
    *("SglRoleBegin", "SglRoleEnd", "SglVarScopeBegin", "SglVarScopeEnd"),
    *("REGEX_INT", "REGEX_FLOAT", "REGEX_BOOL", "REGEX_STR"),
)

MODULES: dict[str, dict[str, str]] = {
    "sglang": {
        **_of(_ROOT, (*_LANGUAGE, *_CHOICE_METHODS, "global_config", "__version__")),
        **_of(_MODELS, _BACKENDS),
    },
    "sglang.version": _of(_ROOT, ("__version__",)),
    "sglang.global_config": _of(_ROOT, ("global_config",)),
    "sglang.lang": {},
    "sglang.lang.api": {**_of(_ROOT, _LANGUAGE), **_of(_MODELS, ("Engine", "Runtime"))},
    "sglang.lang.ir": {
        **_of(_IR, _NODES),
        **_of(_SYMBOLS, ("SglArgument",)),
        "SglFunction": f"{_ROOT}:SglFunction",
        "SglSamplingParams": f"{_ROOT}:SamplingParams",
    },
    "sglang.lang.choices": _of(_CHOICES, (*_CHOICE_METHODS, "ChoicesDecision", "ChoicesSamplingMethod")),
    "sglang.lang.interpreter": _of("sglang_lite.lang", ("ProgramState", "ProgramStateGroup")),
    "sglang.lang.tracer": _of("sglang_lite.lang.tracer", ("TracerProgramState",)),
    "sglang.lang.backend": {},
    "sglang.lang.backend.runtime_endpoint": _of(_MODELS, ("Runtime", "RuntimeEndpoint")),
    "sglang.lang.backend.openai": _of(_MODELS, ("OpenAI",)),
    "sglang.lang.backend.anthropic": _of(_MODELS, ("Anthropic",)),
    "sglang.lang.backend.litellm": _of(_MODELS, ("LiteLLM",)),
    "sglang.utils": _of(
        _HELPERS,
        (
            *("read_jsonl", "dump_state_text", "http_request", "download_and_cache_file", "print_highlight"),
            *("wait_for_server", "terminate_process", "convert_json_schema_to_str"),
        ),
    ),
    "sglang.test": {},
    "sglang.test.test_utils": _of(
        _BENCH,
        (
            *("add_common_sglang_args_and_parse", "select_sglang_backend", "CustomTestCase"),
            "DEFAULT_MODEL_NAME_FOR_TEST",
        ),
    ),
    "sglang.srt": {},
    "sglang.srt.utils": _of(_HELPERS, ("is_hip",)),
    "sglang.srt.utils.hf_transformers_utils": _of(_MODELS, ("get_tokenizer",)),
    "sglang.srt.hf_transformers_utils": _of(_MODELS, ("get_tokenizer",)),
    "sglang.srt.server_args": {},
    "sglang.srt.constrained": {},
    "sglang.srt.constrained.outlines_backend": {},
}
"""By SGLang's module: its names that exist here, each as `our.module:name`."""

LACKING: dict[str, dict[str, str]] = {
    "sglang": {
        "ServerArgs": "give the settings to Engine or Runtime as arguments",
    },
    "sglang.lang.interpreter": {
        "StreamExecutor": "there is no thread per state; use ProgramState",
        "run_program": "use f.run(...)",
        "run_program_batch": "use f.run_batch(...)",
    },
    "sglang.srt.utils": {"load_image": "images are not supported"},
    "sglang.srt.server_args": {"ServerArgs": "give the settings to Engine or Runtime as arguments"},
    "sglang.srt.constrained.outlines_backend": {
        "build_regex_from_object": "use gen(json_schema=json.dumps(Model.model_json_schema()))"
    },
}
"""Names that SGLang has and we lack, with what to do in place of them. They import; using one is an error."""
