"""Prepare this machine: compile all kernels and keep the model's tokenizer, grammar tables and packed weights on disk.

What is made lies in the folder that the variable SGLANG_LITE_CACHE names (default ~/.cache/sglang_lite), where later starts
find it; they are then quick, and may have the folder read-only. Takes the engine's flags of `sglang-lite serve`.

Examples:
  sglang-lite warmup
  SGLANG_LITE_CACHE=/cache sglang-lite warmup --model-path model.gguf
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from sglang_lite import env
from sglang_lite.cli.serve_flags import add_flags
from sglang_lite.cli.serve_settings import PRECEDENCE, resolve

NAME = "warmup"
SUMMARY = "compile kernels and prepare a model's files ahead of the first start"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `sglang-lite warmup`."""
    parser.add_argument("--config", metavar="FILE", help=f"a YAML file of settings; {PRECEDENCE}")
    add_flags(parser, ("engine",))


def main(args: argparse.Namespace) -> int:
    """Do once what is slow the first time."""
    from sglang_lite.runtime.engine.cache_folder import cache_folder
    from sglang_lite.runtime.engine.warm import warm_machine  # torch: for no other command's help

    folder = cache_folder()
    if _wanted_folder() != folder:  # a private one, which goes with this process
        _say(
            "warming up: the cache folder cannot be written, so nothing would be kept; name one with SGLANG_LITE_CACHE"
        )
        return 1
    engine = resolve(args, env.settings(), args.config).engine
    warm_machine(engine.pop("model_path", None), engine, _say)
    _say(f"ready; everything lies in {folder}")
    return 0


def _wanted_folder() -> Path | None:
    """The folder that was asked for; None: this user has no home."""
    try:
        return env.cache_dir()
    except RuntimeError:
        return None


def _say(line: str) -> None:
    print(f"sglang-lite: {line}", file=sys.stderr, flush=True)
