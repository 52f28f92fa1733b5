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
from typing import Any

from sglang_lite import env
from sglang_lite.cli.serve_flags import FLAGS, add_flags, flags_table
from sglang_lite.cli.serve_settings import PRECEDENCE, Settings, from_mapping, resolve, settled
from sglang_lite.errors import RequestError, SglangLiteError
from sglang_lite.runtime.server.config import ServerConfig

__all__ = ["FLAGS", "NAME", "SUMMARY", "add_arguments", "flags_table", "main", "settings_of", "standalone"]

NAME = "serve"
SUMMARY = "serve a model over HTTP"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `sglang-lite serve`."""
    parser.add_argument("--config", metavar="FILE", help=f"a YAML file of settings; {PRECEDENCE}")
    parser.add_argument(
        "--print-config", action="store_true", help="show every setting and where it comes from, then end"
    )
    parser.add_argument(
        "--owned", action="store_true", help=argparse.SUPPRESS
    )  # by another process, see runtime_process
    add_flags(parser, ("without effect", "refused", "engine", "server"))


def settings_of(args: argparse.Namespace) -> tuple[dict[str, Any], ServerConfig, list[str]]:
    """Engine settings, server settings, and the flags that were given without effect, by flags alone.

    Raises:
        UnsupportedError: a flag whose meaning would be lost; with the remedy.
    """
    settings = resolve(args, {})
    return settings.engine, settings.server, settings.without_effect


def main(args: argparse.Namespace) -> int:
    """Load, listen, serve until a signal comes."""
    if args.owned:
        return _serve_owner()
    settings = resolve(args, env.settings(), args.config)
    if args.print_config:
        print("\n".join(settings.lines()))
        return 0
    if settings.without_effect:
        _say(f"without effect here: {' '.join(sorted(settings.without_effect))}")
    config = settings.server
    if config.host not in ("127.0.0.1", "::1", "localhost") and not config.read_keys():
        _say(f"anybody who reaches {config.host} may use this server: give it keys with --api-key-file")
    _log_to_stderr(config)
    from sglang_lite.runtime.server.launch import launch  # the web framework: for no other command

    return launch(_model(settings), settings.engine, config, _say)


def _model(settings: Settings) -> str | None:
    return settings.engine.pop("model_path", None)


def _serve_owner() -> int:
    """Serve the process at the other end of our standard input and output."""
    from sglang_lite.runtime.server.launch import launch  # as above
    from sglang_lite.runtime.server.owned import Owner

    owner = Owner(sys.stdin.buffer, sys.stdout.buffer)
    try:
        values = owner.settings()
        keys = (values.pop("api_key"),) if values.get("api_key") else ()
        settings = settled(from_mapping(values, "Runtime", "its owner"), api_keys=keys)
        _log_to_stderr(settings.server)

        def say(line: str) -> None:
            logging.getLogger("sglang_lite.server").info("%s", line)

        return launch(_model(settings), settings.engine, settings.server, say, owner)
    except SglangLiteError as error:
        owner.failed(error)
        return 1


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


def _log_to_stderr(config: ServerConfig) -> None:
    """One line a request; what libraries have to say only where it is a warning."""
    from sglang_lite.runtime.server.log_lines import formatter  # as above

    handler = logging.StreamHandler()
    handler.setFormatter(formatter(config.log_format))
    root = logging.getLogger("sglang_lite")
    root.addHandler(handler)
    root.setLevel(config.log_level.upper())
    uvicorn = logging.getLogger("uvicorn.error")
    uvicorn.addHandler(handler)
    uvicorn.setLevel(logging.WARNING)
