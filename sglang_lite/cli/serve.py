"""Serve a model over HTTP: SGLang's native routes, OpenAI's API, programs.

Address: http://127.0.0.1:30000 unless said. Without a model the embedded one is served.

  curl http://127.0.0.1:30000/generate -H 'Content-Type: application/json' -d '{"text": "Hello"}'
  OpenAI(base_url="http://127.0.0.1:30000/v1", api_key="none")
  sglang-lite run FILE.py --backend http://127.0.0.1:30000

Flags are SGLang's. Some tune what does not exist here: they are taken, with one warning. Some would mean something else
here: they are refused, with the remedy. Ctrl-C lets running requests end; a second one stops at once.

Examples:
  sglang-lite serve
  sglang-lite serve --model-path model.gguf --port 8000 --max-running-requests 16
  sglang-lite serve --host 0.0.0.0 --api-key-file keys.txt
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Callable
from dataclasses import MISSING, Field, dataclass, fields
from typing import Any, Literal

from sglang_lite.errors import RequestError, UnsupportedError
from sglang_lite.runtime.config import REFUSED, WITHOUT_EFFECT, EngineConfig
from sglang_lite.runtime.server.config import SERVER_REFUSED, SERVER_WITHOUT_EFFECT, ServerConfig

NAME = "serve"
SUMMARY = "serve a model over HTTP"


@dataclass(frozen=True, slots=True)
class Flag:
    """One flag: what becomes of it, which setting it is, and what its value is (None: a switch)."""

    kind: Literal["engine", "server", "without effect", "refused"]
    setting: str
    parse: Callable[[str], Any] | None = str
    is_list: bool = False
    help: str = ""


_HELP = {
    "model_path": "a GGUF file (default: the embedded model)",
    "host": "address to listen on (default 127.0.0.1: this machine only)",
    "port": "port to listen on (default 30000; 0: any free one)",
    "served_model_name": "the model's name in replies (default: the file's)",
    "api_key_file": "a file of API keys, one a line; read again on SIGHUP",
    "api_key_env": "a variable that holds an API key (may be repeated)",
    "cors_origins": "an origin whose pages may call the server from a browser (may be repeated)",
    "max_total_tokens": "KV pool in tokens",
    "context_length": "longest sequence in tokens",
    "max_running_requests": "most requests that run at a time",
    "tool_call_parser": "form of tool calls: hermes, llama3, mistral (default: what the model's template says)",
    "reasoning_parser": "form of thinking, such as qwen3 or deepseek-r1 (default: what the model's template says)",
    "viewer": "the page at /: off, stats (numbers only) or full (default: full on this machine only)",
    "admin_key_file": "a file of keys for whom the page shows what others wrote",
    "admin_key_env": "a variable that holds such a key (may be repeated)",
    "drain_deadline_s": "seconds that running requests get after SIGTERM",
}
_ALIASES = {"cors_origins": "cors_origin"}
_NOT_FLAGS = ("api_keys",)  # keys do not stand on command lines


def _flags_of(kind: Literal["engine", "server"], config: type[Any]) -> dict[str, Flag]:
    return {_name(f.name): _flag(kind, f) for f in fields(config) if f.name not in _NOT_FLAGS}


def _flag(kind: Literal["engine", "server"], setting: Field[Any]) -> Flag:
    text = str(setting.type)
    is_list = text.startswith("tuple")
    parse: Callable[[str], Any] | None = str
    if text.startswith("bool"):
        parse = None
    elif text.startswith("int"):
        parse = int
    elif text.startswith("float"):
        parse = float
    default = "" if setting.default in (MISSING, None, ()) or parse is None else f"default {setting.default}"
    return Flag(kind, setting.name, parse, is_list, _HELP.get(setting.name, default))


def _name(setting: str) -> str:
    return "--" + _ALIASES.get(setting, setting).replace("_", "-")


FLAGS: dict[str, Flag] = {
    **{_name(name): Flag("without effect", name, None) for name in (*WITHOUT_EFFECT, *SERVER_WITHOUT_EFFECT)},
    **{_name(name): Flag("refused", name, None) for name in (*REFUSED, *SERVER_REFUSED)},
    **_flags_of("engine", EngineConfig),
    **_flags_of("server", ServerConfig),
    "--tp": Flag("refused", "tp_size", None),
    "--dp": Flag("refused", "dp_size", None),
    "--enable-mixed-chunk": Flag("engine", "enable_mixed_chunk", None, help="prompts and running requests in one step"),
    "--model": Flag("engine", "model_path", help="the same as --model-path"),
}
"""Every flag of `serve`, and what becomes of it."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `sglang-lite serve`."""
    for name, flag in FLAGS.items():
        if flag.kind in ("without effect", "refused"):
            parser.add_argument(
                name, dest=f"{flag.kind}:{flag.setting}", nargs="*", default=None, help=argparse.SUPPRESS
            )
            continue
        options: dict[str, Any] = {"dest": f"{flag.kind}:{flag.setting}", "default": None, "help": flag.help or None}
        if flag.parse is None:
            options["action"] = "store_true"
        else:
            options |= {"type": flag.parse, "metavar": "N" if flag.parse in (int, float) else "X"}
            if flag.is_list:
                options["action"] = "append"
        parser.add_argument(name, **options)


def settings_of(args: argparse.Namespace) -> tuple[dict[str, Any], ServerConfig, list[str]]:
    """Engine settings, server settings, and the flags that were given without effect.

    Raises:
        UnsupportedError: a flag whose meaning would be lost; with the remedy.
    """
    given = {name: value for name, value in vars(args).items() if ":" in name and value is not None}
    values: dict[str, dict[str, Any]] = {"engine": {}, "server": {}, "without effect": {}, "refused": {}}
    for dest, value in given.items():
        kind, _, setting = dest.partition(":")
        values[kind][setting] = value
    remedies = REFUSED | SERVER_REFUSED
    for setting, value in values["refused"].items():
        if value not in (["1"], ["none"]):  # one device, one replica: what is here anyway
            raise UnsupportedError(f"serving: {_name(setting)} is not supported: {remedies[setting]}")
    server: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in values["server"].items()
    }
    return values["engine"], ServerConfig(**server), [_name(name) for name in values["without effect"]]


def main(args: argparse.Namespace) -> int:
    """Load, listen, serve until a signal comes."""
    from sglang_lite.runtime.server.launch import launch  # the web framework: for no other command

    engine_settings, config, without_effect = settings_of(args)
    if without_effect:
        _say(f"without effect here: {' '.join(sorted(without_effect))}")
    if config.host not in ("127.0.0.1", "::1", "localhost") and not config.read_keys():
        _say(f"anybody who reaches {config.host} may use this server: give it keys with --api-key-file")
    _log_to_stderr()
    return launch(engine_settings.pop("model_path", None), engine_settings, config, _say)


def standalone(argv: list[str] | None = None) -> int:
    """`python -m sglang_lite.launch_server`: the same command without its name."""
    parser = argparse.ArgumentParser(
        prog="python -m sglang_lite.launch_server",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_arguments(parser)
    args = parser.parse_args(argv)
    try:
        return main(args)
    except RequestError as error:
        print(f"launch_server: {type(error).__name__}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def _say(line: str) -> None:
    print(f"sglang-lite: {line}", file=sys.stderr, flush=True)


def _log_to_stderr() -> None:
    """One line a request; what libraries have to say only where it is a warning."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    root = logging.getLogger("sglang_lite")
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    uvicorn = logging.getLogger("uvicorn.error")
    uvicorn.addHandler(handler)
    uvicorn.setLevel(logging.WARNING)
