"""SGLang's surface, name by name: what a program may import, call by position and leave out."""

from __future__ import annotations

import importlib
import inspect
from typing import Any

import pytest

import sglang_lite as sgl
from sglang_lite.compat import install, uninstall
from sglang_lite.lang import ProgramStateGroup, SglFunction, choices, ir
from sglang_lite.runtime_process import Runtime

GEN = (
    "name=None, max_tokens=None, min_tokens=None, n=None, stop=None, stop_token_ids=None, stop_regex=None, "
    "temperature=None, top_p=None, top_k=None, min_p=None, frequency_penalty=None, presence_penalty=None, "
    "ignore_eos=None, return_logprob=None, logprob_start_len=None, top_logprobs_num=None, "
    "return_text_in_logprobs=None, dtype=None, choices=None, choices_method=None, regex=None, json_schema=None"
)
SHORT = ", ".join(
    part for part in GEN.split(", ")
    if part.partition("=")[0] not in ("min_tokens", "dtype", "choices", "choices_method", "regex", "json_schema")
)  # fmt: skip
SAMPLING = (
    "max_new_tokens=128, n=1, stop=None, stop_token_ids=None, stop_regex=None, temperature=1.0, top_p=1.0, top_k=-1, "
    "min_p=0.0, frequency_penalty=0.0, presence_penalty=0.0, ignore_eos=False, return_logprob=None, "
    "logprob_start_len=None, top_logprobs_num=None, return_text_in_logprobs=None"
)
STATE = sgl.ProgramState

# Each: what is called, and SGLang's parameters in their order with their defaults. More may follow, or be by name only.
SIGNATURES: list[tuple[str, Any, str]] = [
    ("function", sgl.function, "func=None, num_api_spec_tokens=None"),
    ("gen", sgl.gen, GEN),
    ("gen_int", sgl.gen_int, SHORT),
    ("gen_string", sgl.gen_string, SHORT),
    ("select", sgl.select, "name=None, choices=None, temperature=0.0, choices_method=..."),
    ("image", sgl.image, "expr"),
    ("video", sgl.video, "path, num_frames"),
    ("separate_reasoning", sgl.separate_reasoning, "expr=None, model_type=None"),
    ("set_default_backend", sgl.set_default_backend, "backend"),
    ("flush_cache", sgl.flush_cache, "backend=None"),
    ("get_server_info", sgl.get_server_info, "backend=None"),
    *((role, getattr(sgl, role), "expr=None") for role in ("system", "user", "assistant")),
    *((f"{role}_begin", getattr(sgl, f"{role}_begin"), "") for role in ("system", "user", "assistant")),
    *((f"{role}_end", getattr(sgl, f"{role}_end"), "") for role in ("system", "user", "assistant")),
    ("run", SglFunction.run, f"*args, {SAMPLING}, stream=False, backend=None, use_thread=True, **kwargs"),
    (
        "run_batch",
        SglFunction.run_batch,
        f"batch_kwargs, *, {SAMPLING}, backend=None, num_threads='auto', progress_bar=False, generator_style=False",
    ),
    ("bind", SglFunction.bind, "**kwargs"),
    ("trace", SglFunction.trace, "*, backend=None, **kwargs"),
    ("cache", SglFunction.cache, "backend=None"),
    ("__call__", SglFunction.__call__, "*args, **kwargs"),
    *((f"s.{role}", getattr(STATE, role), "expr=None") for role in ("system", "user", "assistant")),
    ("s.var_scope", STATE.var_scope, "name"),
    ("s.fork", STATE.fork, "size=1, position_ids_offset=None"),
    ("s.copy", STATE.copy, ""),
    *((f"s.{name}", getattr(STATE, name), "") for name in ("text", "messages", "sync", "error")),
    ("s.text_iter", STATE.text_iter, "var_name=None"),
    ("s.text_async_iter", STATE.text_async_iter, "var_name=None, return_meta_data=False"),
    ("s.get_var", STATE.get_var, "name"),
    ("s.set_var", STATE.set_var, "name, value"),
    ("s.get_meta_info", STATE.get_meta_info, "name"),
    ("group.join", ProgramStateGroup.join, "mode='gather_variable'"),
    ("RuntimeEndpoint", sgl.RuntimeEndpoint, "base_url, api_key=None, verify=None, chat_template_name=None"),
    ("OpenAI", sgl.OpenAI, "model_name, is_chat_model=None, chat_template=None, is_azure=False"),
    ("Anthropic", sgl.Anthropic, "model_name"),
    (
        "LiteLLM",
        sgl.LiteLLM,
        "model_name, chat_template=None, api_key=None, organization=None, base_url=None, timeout=600, max_retries=None, "
        "default_headers=None",
    ),
    ("VertexAI", sgl.VertexAI, "model_name"),
    ("Runtime.cache_prefix", Runtime.cache_prefix, "prefix"),
    ("Runtime.encode", Runtime.encode, "prompt"),
    ("Runtime.shutdown", Runtime.shutdown, ""),
    ("Runtime.get_tokenizer", Runtime.get_tokenizer, ""),
]


def wanted(text: str) -> list[tuple[str, str]]:
    """(name with stars, default) of each parameter."""
    return [(name, default) for name, _, default in (part.partition("=") for part in text.split(", ") if part)]


def found(call: Any) -> list[inspect.Parameter]:
    parameters = list(inspect.signature(call).parameters.values())
    return parameters[1:] if parameters and parameters[0].name == "self" else parameters


@pytest.mark.parametrize(("call", "signature"), [pytest.param(c, s, id=name) for name, c, s in SIGNATURES])
def test_parameters_have_sglangs_order_and_defaults(call: Any, signature: str) -> None:
    ours = found(call)
    by_name = {parameter.name: parameter for parameter in ours}
    positions = [p.name for p in ours if p.kind is p.POSITIONAL_OR_KEYWORD]
    named_only = False
    place = 0
    for name, default in wanted(signature):
        if name == "*" or name.startswith("*"):
            if name != "*":
                assert by_name[name.strip("*")].kind in (
                    inspect.Parameter.VAR_POSITIONAL,
                    inspect.Parameter.VAR_KEYWORD,
                )
            named_only = True
            continue
        parameter = by_name[name]
        if not named_only:
            assert positions[place] == name, f"{name} is not argument number {place}"
            place += 1
        if default == "":
            assert parameter.default is parameter.empty, f"{name} is needed in SGLang"
        elif default != "...":
            assert repr(parameter.default) == default


def test_what_is_ours_beside_that_can_be_left_out() -> None:
    for name, call, signature in SIGNATURES:
        known = {part.strip("*") for part, _ in wanted(signature)}
        needed = [
            p.name
            for p in found(call)
            if p.name not in known and p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
        ]
        assert needed == [], name


def test_gen_takes_the_tokens_by_position() -> None:
    node = sgl.gen("tip", 24, 2, None, [".", "\n"])
    assert isinstance(node, ir.SglGen)
    assert (node.name, node.max_tokens, node.min_tokens, node.n, node.stop) == ("tip", 24, 2, None, (".", "\n"))


def test_the_names_of_the_package_are_all_there() -> None:
    names = [
        "function",
        "gen",
        "gen_int",
        "gen_string",
        "select",
        "image",
        "video",
        "system",
        "user",
        "assistant",
        "system_begin",
        "system_end",
        "user_begin",
        "user_end",
        "assistant_begin",
        "assistant_end",
        "separate_reasoning",
        "set_default_backend",
        "flush_cache",
        "get_server_info",
        "Runtime",
        "Engine",
        "RuntimeEndpoint",
        "OpenAI",
        "Anthropic",
        "LiteLLM",
        "VertexAI",
        "global_config",
        "token_length_normalized",
        "greedy_token_selection",
        "unconditional_likelihood_normalized",
        "__version__",
    ]
    assert [name for name in names if not hasattr(sgl, name)] == []


IMPORTS = {
    "sglang": [
        "function",
        "ServerArgs",
        "Engine",
        "Runtime",
        "RuntimeEndpoint",
        "OpenAI",
        "global_config",
        "__version__",
    ],
    "sglang.lang.api": ["set_default_backend", "gen"],
    "sglang.lang.ir": [
        *("REGEX_INT", "REGEX_FLOAT", "REGEX_BOOL", "REGEX_STR", "SglExprList", "SglGen", "SglSeparateReasoning"),
    ],
    "sglang.lang.choices": ["token_length_normalized", "greedy_token_selection", "unconditional_likelihood_normalized"],
    "sglang.lang.interpreter": ["ProgramState"],
    "sglang.utils": [
        *("read_jsonl", "dump_state_text", "http_request", "download_and_cache_file", "print_highlight"),
        *("wait_for_server", "terminate_process", "convert_json_schema_to_str"),
    ],
    "sglang.test.test_utils": [
        *("add_common_sglang_args_and_parse", "select_sglang_backend", "CustomTestCase", "DEFAULT_MODEL_NAME_FOR_TEST"),
    ],
    "sglang.srt.utils": ["is_hip", "load_image"],
    "sglang.srt.utils.hf_transformers_utils": ["get_tokenizer"],
    "sglang.srt.constrained.outlines_backend": ["build_regex_from_object"],
}


def test_what_examples_import_is_found_under_sglangs_names() -> None:
    install()
    try:
        for module, names in IMPORTS.items():
            found_module = importlib.import_module(module)
            assert [name for name in names if not hasattr(found_module, name)] == [], module
    finally:
        uninstall()


def test_settings_have_sglangs_names_and_defaults() -> None:
    expected = {
        "verbosity": 0,
        "default_backend": None,
        "skip_special_tokens_in_output": True,
        "spaces_between_special_tokens_in_out": True,
        "enable_precache_with_tracing": True,
        "enable_parallel_encoding": True,
    }
    fresh = type(sgl.global_config)()
    assert {name: getattr(fresh, name) for name in expected} == expected


def test_a_choice_method_is_called_by_name() -> None:
    call = inspect.signature(choices.ChoicesSamplingMethod.__call__)
    assert [p.name for p in call.parameters.values()][1:] == [
        *("choices", "normalized_prompt_logprobs", "input_token_logprobs", "output_token_logprobs"),
        "unconditional_token_logprobs",
    ]
    assert all(p.kind is p.KEYWORD_ONLY for p in list(call.parameters.values())[1:])
    assert choices.unconditional_likelihood_normalized.requires_unconditional_logprobs
    assert not choices.token_length_normalized.requires_unconditional_logprobs


def test_a_runtime_has_sglangs_parts() -> None:
    for name in (
        "endpoint",
        "url",
        "generate",
        "async_generate",
        "add_request",
        "encode",
        "get_tokenizer",
        "cache_prefix",
    ):
        assert hasattr(Runtime, name) or name in ("endpoint", "url"), name
    for name in ("get_model_name", "flush_cache", "get_server_info", "cache_prefix", "shutdown"):
        assert hasattr(sgl.RuntimeEndpoint, name), name


def test_the_wires_of_dtype_are_sglangs() -> None:
    assert (ir.REGEX_INT, ir.REGEX_FLOAT) == (r"[-+]?[0-9]+[ \n]*", r"[-+]?[0-9]*\.?[0-9]+[ \n]*")
    assert (ir.REGEX_STR, ir.REGEX_BOOL) == (r"\"[\w\d\s]*\"", r"(True|False)")
