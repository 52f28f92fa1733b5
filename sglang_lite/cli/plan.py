"""Show what a model would take in memory and what would fit, without loading it.

Takes the engine's flags of `sglang-lite serve`. Only the headers of the model's files are read. The exit code is 1 where
a server with these flags would refuse to start.

Examples:
  sglang-lite plan
  sglang-lite plan --model-path model.gguf --context-length 4096 --max-running-requests 16
  sglang-lite plan --model-path folder --json
"""

from __future__ import annotations

import argparse
import json

from sglang_lite import env
from sglang_lite.cli.serve_flags import add_flags
from sglang_lite.cli.serve_settings import PRECEDENCE, resolve
from sglang_lite.runtime.config import EngineConfig

NAME = "plan"
SUMMARY = "show what a model takes in memory and what fits, without loading it"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `sglang-lite plan`."""
    parser.add_argument("--json", action="store_true", help="as one JSON object; sizes in bytes")
    parser.add_argument("--config", metavar="FILE", help=f"a YAML file of settings; {PRECEDENCE}")
    add_flags(parser, ("engine",))


def main(args: argparse.Namespace) -> int:
    """Print the plan."""
    from sglang_lite.runtime.engine.memory_plan import plan_memory  # torch: for no other command's help

    engine = resolve(args, env.settings(), args.config).engine
    plan = plan_memory(EngineConfig.from_server_args(engine.pop("model_path", None), engine))
    print(json.dumps(plan.to_dict()) if args.json else "\n".join(plan.lines()))
    return 0
