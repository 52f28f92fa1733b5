"""Where the time of a run goes: scheduler, batch preparation or kernels.

FILE.py[:NAME]     the @function runs on an engine in this process, and its steps are recorded
(no file)          a built-in load: --requests prompts that share a beginning, --tokens tokens each

A table on the screen shows the time by part of a step, each part without the parts that it calls; --out writes every call as
a trace for Perfetto (https://ui.perfetto.dev) and chrome://tracing. On a GPU the table also shows what the device did and
how long it stood still, and NVIDIA's tools see the parts as NVTX ranges. Takes the engine's flags of `sglang-lite serve`.

Examples:
  sglang-lite profile
  sglang-lite profile quiz.py:ask --arg question="How high is Mount Kenya?" --out ask.trace.json
  sglang-lite profile --requests 1 --tokens 256 --dtype float32
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from sglang_lite import env
from sglang_lite.cli.options import parse_assignment
from sglang_lite.cli.serve_flags import add_flags
from sglang_lite.cli.serve_settings import PRECEDENCE, resolve
from sglang_lite.cli.target import check_arguments, find_function, load_module, split_target
from sglang_lite.errors import RequestError

NAME = "profile"
SUMMARY = "show where the time of a run goes: scheduler, batch preparation or kernels"

_BEGINNING = "You are a careful assistant. Answer in plain words, and say so where you do not know.\n"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `sglang-lite profile`."""
    parser.add_argument("target", nargs="?", metavar="FILE.py[:NAME]", help="what to run (default: a built-in load)")
    parser.add_argument("--arg", action="append", default=[], metavar="NAME=VALUE", help="an argument of the @function")
    parser.add_argument("--requests", type=int, default=16, metavar="N", help="of the built-in load (default 16)")
    parser.add_argument("--tokens", type=int, default=64, metavar="N", help="of each answer of the load (default 64)")
    parser.add_argument("--out", type=Path, metavar="TRACE.json", help="write every call as a trace")
    parser.add_argument("--json", action="store_true", help="print the summary as JSON")
    parser.add_argument("--config", metavar="FILE", help=f"a YAML file of settings; {PRECEDENCE}")
    add_flags(parser, ("engine",))


def main(args: argparse.Namespace) -> int:
    """Run once to warm up, then once recorded."""
    if args.requests < 1 or args.tokens < 1:
        raise RequestError(
            f"profiling a load: got --requests {args.requests} and --tokens {args.tokens}, expected at least 1 of each"
        )
    given = dict(parse_assignment(text) for text in args.arg)
    function = None
    if args.target is not None:
        path, name = split_target(args.target)
        function = find_function(load_module(path), name, path)
        check_arguments(function, given)
    elif given:
        raise RequestError("profiling the built-in load: it takes no --arg; name a file")
    from sglang_lite import Engine  # torch: for no other command's help

    def work(engine: Any) -> None:
        if function is None:
            prompts = [f"{_BEGINNING}Question {i}: what is {i} times {i + 7}?\n" for i in range(args.requests)]
            engine.generate(prompts, {"temperature": 0, "max_new_tokens": args.tokens, "ignore_eos": True})
            return
        (state,) = function.run_batch([given], backend=engine)
        if (error := state.error()) is not None:
            raise error

    settings = resolve(args, env.settings(), args.config).engine
    with tempfile.TemporaryDirectory() as folder, Engine(settings.pop("model_path", None), **settings) as engine:
        work(engine)
        engine.flush_cache()
        engine.start_profile(folder)
        work(engine)
        trace = Path(engine.stop_profile())
        summary = json.loads(trace.read_text(encoding="utf-8"))["otherData"]
        if args.out is not None:
            try:
                shutil.copyfile(trace, args.out)
            except OSError as error:
                raise RequestError(f"writing the trace {str(args.out)!r}: {error.strerror or error}") from error
    print(json.dumps(summary, indent=2) if args.json else "\n".join(table(summary)))
    if args.out is not None:
        print(f"{args.out}: open it in https://ui.perfetto.dev", file=sys.stderr)
    return 0


def table(summary: dict[str, Any]) -> list[str]:
    """The summary of a recording as lines for the screen."""
    parts: dict[str, float] = summary["parts"]
    steps = max(summary["steps"], 1)
    total = sum(parts.values()) or 1.0
    lines = [
        f"{summary['steps']} steps in {summary['seconds']:.2f} s",
        "",
        f"{'part':<24}{'ms a step':>12}{'share':>9}",
    ]
    lines += [f"{part:<24}{1e3 * value / steps:>12.3f}{value / total:>9.1%}" for part, value in parts.items()]
    lines += ["", f"{'of the time with work':<36}{'share':>9}"]
    ranked = sorted(summary["shares"].items(), key=lambda item: -item[1])
    lines += [f"{group:<36}{share:>9.1%}" for group, share in ranked]
    if summary["device_seconds"]:
        lines += ["", f"{'on the device':<24}{'ms a step':>12}"]
        lines += [f"{part:<24}{1e3 * value / steps:>12.3f}" for part, value in summary["device_seconds"].items()]
        lines.append(f"{'standing still':<36}{summary['device_idle_share']:>9.1%}")
    if ranked:
        lines += ["", f"most of the time goes to: {ranked[0][0]}"]
    return lines
