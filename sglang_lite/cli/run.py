"""Run an LLM program from a Python file, or the demo.

FILE.py            a script with code at module level runs as python would run it; else its main() is called;
                   else its only @function runs
FILE.py:NAME       the @function NAME runs
(no file)          the demo: a ReAct agent and a tree of thought on the embedded model

With --openai-batch the lines of a file of OpenAI batch requests are answered into --out, by the server that --backend
names or by one that is started for them; lines that --out has already are left out.

What follows -- goes to the script.

A @function gets its arguments by --arg; its variables are printed as JSON. With --rows it runs once for each line of a
file (an object of arguments, beside those of --arg), and each row is written to --out as it ends; a batch that was
interrupted goes on with --resume. At the end one line (on stderr) says how many
tokens were computed, reused and forced. The exit code is 1 after an error.

Examples:
  sglang-lite run
  sglang-lite run examples/agents/react.py --backend scripted
  sglang-lite run quiz.py:ask --rows in.jsonl --out out.jsonl --resume
  sglang-lite run quiz.py:ask --arg question="How high is Mount Kenya?" --arg n=3
  sglang-lite run --openai-batch requests.jsonl --out answers.jsonl
"""

from __future__ import annotations

import argparse
import json
import runpy
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sglang_lite import env
from sglang_lite.cli.demo import run_demo
from sglang_lite.cli.openai_batch import local_model, run_batch
from sglang_lite.cli.options import add_backend_argument, backend_named, parse_assignment
from sglang_lite.cli.summary import summary_line
from sglang_lite.cli.target import check_arguments, find_function, has_module_level_code, load_module, split_target
from sglang_lite.errors import RequestError
from sglang_lite.lang.backends.registry import set_default_backend
from sglang_lite.lang.sgl_function import SglFunction
from sglang_lite.lang.state import ProgramState
from sglang_lite.lang.summary import count_usage

NAME = "run"
SUMMARY = "run a program from a Python file, or the demo"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `sglang-lite run`."""
    parser.add_argument("target", nargs="?", metavar="FILE.py[:NAME]", help="what to run (default: the demo)")
    parser.add_argument("--arg", action="append", default=[], metavar="NAME=VALUE", help="an argument of the @function")
    parser.add_argument("--rows", metavar="IN.jsonl", help="run the @function once for each line")
    parser.add_argument("--openai-batch", metavar="IN.jsonl", help="answer the requests of an OpenAI batch file")
    parser.add_argument("--out", metavar="OUT.jsonl", help="where the results of --rows or --openai-batch go")
    parser.add_argument("--resume", action="store_true", help="leave out rows that --out has already")
    parser.add_argument("--ordered", action="store_true", help="write the results in the order of the rows")
    add_backend_argument(parser)


def main(args: argparse.Namespace) -> int:
    """Run it; prints the summary whatever happens."""
    started_s = time.perf_counter()
    with count_usage() as totals:
        try:
            return _run(args)
        finally:
            print(summary_line(totals, time.perf_counter() - started_s), file=sys.stderr)


def _run(args: argparse.Namespace) -> int:
    given = dict(parse_assignment(text) for text in args.arg)
    if args.openai_batch is not None:
        return _run_openai_batch(args)
    if args.rows is not None or args.out is not None:
        return _run_rows(args, given)
    if args.target is None:
        if given:
            raise RequestError("running the demo: it takes no --arg; name a file")
        return run_demo(args.backend)
    path, name = split_target(args.target)
    if name is None and has_module_level_code(path.read_text(encoding="utf-8")):
        _start_script(args, given, path)
        sys.path.insert(0, str(path.resolve().parent))
        runpy.run_path(str(path), run_name="__main__")
        return 0
    module = load_module(path)
    main_function = getattr(module, "main", None) if name is None else None
    if callable(main_function):
        _start_script(args, given, path)
        code = main_function()
        return code if isinstance(code, int) else 0
    return _run_function(args, find_function(module, name, path), given)


def _run_function(args: argparse.Namespace, function: SglFunction, given: dict[str, Any]) -> int:
    """Run it as a batch of one row: there the row carries the arguments, whatever they are called."""
    check_arguments(function, given)
    (state,) = function.run_batch([given], backend=backend_named(args.backend))
    if (error := state.error()) is not None:
        raise error
    print(json.dumps(variables_of(state), ensure_ascii=False, indent=2))
    return 0


def _run_rows(args: argparse.Namespace, given: dict[str, Any]) -> int:
    """A @function over the lines of a file; the exit code is 1 where rows failed, 130 after Ctrl-C."""
    if args.rows is None or args.out is None or args.target is None:
        raise RequestError("running rows: expected FILE.py[:NAME] with both --rows IN.jsonl and --out OUT.jsonl")
    path, name = split_target(args.target)
    function = find_function(load_module(path), name, path)
    report = function.run_batch(
        read_rows(Path(args.rows), given),
        backend=backend_named(args.backend),
        out=args.out,
        resume=args.resume,
        ordered=args.ordered,
    )
    print(
        f"{report.path}: {report.done} rows written, {report.failed} failed, {report.skipped} there already",
        file=sys.stderr,
    )
    return 130 if report.interrupted else 1 if report.failed else 0


def _run_openai_batch(args: argparse.Namespace) -> int:
    """The lines of a batch file; the exit code is 1 where some had errors."""
    if args.out is None or args.target is not None or args.rows is not None:
        raise RequestError("running a batch: expected --openai-batch IN.jsonl with --out OUT.jsonl and nothing to run")
    name = args.backend or env.backend() or "local"
    url, model_path = (name, None) if name.startswith(("http://", "https://")) else (None, local_model(name))
    done, failed, there = run_batch(Path(args.openai_batch), Path(args.out), url, model_path)
    print(f"{args.out}: {done} answers written, {failed} with errors, {there} there already", file=sys.stderr)
    return 1 if failed else 0


def read_rows(path: Path, given: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The rows of a file with one JSON object a line, each beside `given`; read as they are wanted.

    Raises:
        RequestError: the file cannot be read, or a line is no object; names the line.
    """
    try:
        with path.open(encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    row = json.loads(line)
                    if not isinstance(row, dict):
                        raise RequestError(
                            f"reading {path}, line {number}: got {line.strip()[:80]!r}, expected an object"
                        )
                    yield {**given, **row}
    except (OSError, ValueError) as error:
        if isinstance(error, RequestError):
            raise
        raise RequestError(f"reading the rows {str(path)!r}: {error}") from error


def variables_of(state: ProgramState) -> dict[str, Any]:
    """All named values of a finished run."""
    return {name: state[name] for name in state.branch.variables}


def _start_script(args: argparse.Namespace, given: dict[str, Any], path: Path) -> None:
    """A script gets its own arguments and the default backend, and no `--arg`."""
    if given:
        raise RequestError(
            f"running {path}: --arg {sorted(given)} given, but the file runs as a script; name a @function: {path}:NAME"
        )
    sys.argv = [str(path), *args.rest]
    set_default_backend(backend_named(args.backend))
