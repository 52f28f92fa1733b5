"""Every flag of `serve` and what becomes of it, in one table; it knows no value."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import MISSING, Field, dataclass, fields
from typing import Any, Literal

from sglang_lite.runtime.config import REFUSED, WITHOUT_EFFECT, EngineConfig
from sglang_lite.runtime.server.config import SERVER_REFUSED, SERVER_WITHOUT_EFFECT, ServerConfig

Kind = Literal["engine", "server", "without effect", "refused"]


@dataclass(frozen=True, slots=True)
class Flag:
    """One flag: what becomes of it, which setting it is, and what its value is (None: a switch)."""

    kind: Kind
    setting: str
    parse: Callable[[str], Any] | None = str
    is_list: bool = False
    help: str = ""

    @property
    def dest(self) -> str:
        """Its name among the parsed arguments."""
        return f"{self.kind}:{self.setting}"


_HELP = {
    "model_path": "a GGUF file (default: the embedded model)",
    "host": "address to listen on (default 127.0.0.1: this machine only)",
    "port": "port to listen on (default 30000; 0: any free one)",
    "served_model_name": "the model's name in replies (default: the file's)",
    "api_key_file": "a file of API keys, one a line; read again on SIGHUP",
    "api_key_env": "a variable that holds an API key (may be repeated)",
    "cors_origins": "an origin whose pages may call the server from a browser (may be repeated)",
    "device": "cpu (default), cuda, or auto: the GPU if there is one",
    "dtype": "auto (default: the file's own values on the CPU; on a GPU 4-bit matrices as stored, else bfloat16), float32, on a GPU bfloat16, float16",
    "attention_backend": "auto (default), on the CPU cpu, on a GPU flashinfer or triton, on both torch_ref",
    "kv_cache_dtype": "type of keys and values: auto (default: fp32 on the CPU, the model's on a GPU), fp32, fp16, on the CPU int8, on a GPU bf16",
    "mem_fraction_static": "CPU: share of free memory for the KV pool (default 0.1); GPU: for weights and KV pool together (default 0.88)",
    "disable_overlap_schedule": "plan a step after the one before it has ended (default on the CPU; on a GPU the two overlap)",
    "overlap_thread": "CPU: plan a step while the one before it is computed on a thread of its own",
    "disable_cuda_graph": "GPU: launch every kernel of a decode step instead of replaying a graph",
    "cuda_graph_bs": "GPU: numbers of rows that get a graph, such as 1 2 4 8 (default: up to --cuda-graph-max-bs)",
    "cuda_graph_max_bs": "GPU: most rows of a decode step that is replayed as a graph",
    "cuda_graph_prefill": "GPU: replay steps of one prompt's chunk as a graph, too (with flashinfer)",
    "sampling_backend": "GPU: what cuts distributions: auto (default, our kernels), flashinfer or pytorch",
    "enable_deterministic_inference": "GPU: a request's result does not depend on those beside it (on the CPU it never does)",
    "max_total_tokens": "KV pool in tokens",
    "speculative_algorithm": "guess next tokens and check them together: NGRAM (from earlier text), DRAFT or STANDALONE (by a draft model)",
    "speculative_draft_model_path": "the draft model: a file, a folder or a hub id, with the same tokens as the model",
    "speculative_num_draft_tokens": "most tokens guessed at a time (default 8)",
    "context_length": "longest sequence in tokens",
    "max_running_requests": "most requests that run at a time",
    "schema_in_prompt": "show the model the schema of its answer: auto (where the messages lack it, default), never, always",
    "tool_call_parser": "form of tool calls: hermes, llama3, mistral (default: what the model's template says)",
    "reasoning_parser": "form of thinking, such as qwen3 or deepseek-r1 (default: what the model's template says)",
    "cache_isolation": "key: requests reuse the cached prefixes of their own API key only (default: none)",
    "viewer": "the page at /: off, stats (numbers only) or full (default: full on this machine only)",
    "admin_key_file": "a file of keys of those who run the server: they see texts of others and may flush, abort, profile",
    "admin_key_env": "a variable that holds such a key (may be repeated)",
    "drain_deadline_s": "seconds that running requests get after SIGTERM",
    "log_level": "least level of lines in the log: debug, info, warning, error (default info)",
    "log_format": "form of the log: text or json (default text)",
    "log_requests_level": "what of requests the log shows: 0 sizes, 1 also parameters, 2 also the begin of texts, 3 whole texts (default 0)",
}
_ALIASES = {"cors_origins": "cors_origin"}
_NOT_FLAGS = ("api_keys",)  # keys do not stand on command lines


def _flags_of(kind: Literal["engine", "server"], config: type[Any]) -> dict[str, Flag]:
    return {flag_name(f.name): _flag(kind, f) for f in fields(config) if f.name not in _NOT_FLAGS}


def _flag(kind: Literal["engine", "server"], setting: Field[Any]) -> Flag:
    text = str(setting.type)
    is_list = text.startswith("tuple")
    parse: Callable[[str], Any] | None = str
    if text.startswith("bool"):
        parse = None
    elif text.startswith(("int", "tuple[int")):
        parse = int
    elif text.startswith("float"):
        parse = float
    default = "" if setting.default in (MISSING, None, ()) or parse is None else f"default {setting.default}"
    return Flag(kind, setting.name, parse, is_list, _HELP.get(setting.name, default))


def flag_name(setting: str) -> str:
    """The flag of a setting."""
    return "--" + _ALIASES.get(setting, setting).replace("_", "-")


FLAGS: dict[str, Flag] = {
    **{flag_name(name): Flag("without effect", name, None) for name in (*WITHOUT_EFFECT, *SERVER_WITHOUT_EFFECT)},
    **{flag_name(name): Flag("refused", name, None) for name in (*REFUSED, *SERVER_REFUSED)},
    **_flags_of("engine", EngineConfig),
    **_flags_of("server", ServerConfig),
    "--tp": Flag("refused", "tp_size", None),
    "--dp": Flag("refused", "dp_size", None),
    "--enable-mixed-chunk": Flag("engine", "enable_mixed_chunk", None, help="prompts and running requests in one step"),
    "--model": Flag("engine", "model_path", help="the same as --model-path"),
    "--admin-api-key-file": Flag("server", "admin_key_file", help="the same as --admin-key-file"),
}
"""Every flag of `serve`, and what becomes of it."""


def add_flags(parser: argparse.ArgumentParser, kinds: tuple[Kind, ...]) -> None:
    """The flags of these kinds; what is not given stays None."""
    for name, flag in FLAGS.items():
        if flag.kind not in kinds:
            continue
        if flag.kind in ("without effect", "refused"):
            parser.add_argument(name, dest=flag.dest, nargs="*", default=None, help=argparse.SUPPRESS)
            continue
        options: dict[str, Any] = {"dest": flag.dest, "default": None, "help": flag.help or None}
        if flag.parse is None:
            options["action"] = argparse.BooleanOptionalAction
        else:
            options |= {"type": flag.parse, "metavar": "N" if flag.parse in (int, float) else "X"}
            if flag.is_list:
                options |= {"action": "append"} if flag.parse is str else {"action": "extend", "nargs": "+"}
        parser.add_argument(name, **options)


def flags_table() -> str:
    """The table of docs/flags.md: every flag in its class."""
    remedies = REFUSED | SERVER_REFUSED
    honoured = [
        f"| `{name}` | {flag.help} |" for name, flag in sorted(FLAGS.items()) if flag.kind in ("engine", "server")
    ]
    idle = ", ".join(f"`{name}`" for name, flag in sorted(FLAGS.items()) if flag.kind == "without effect")
    refused = [
        f"| `{name}` | {remedies[flag.setting]} |" for name, flag in sorted(FLAGS.items()) if flag.kind == "refused"
    ]
    return "\n".join(
        [
            "## Honoured\n\n| flag | |\n|---|---|",
            *honoured,
            f"\n## Taken without effect, with one warning\n\n{idle}\n",
            "## Refused, since the meaning would change\n\n| flag | instead |\n|---|---|",
            *refused,
            "",
        ]
    )
