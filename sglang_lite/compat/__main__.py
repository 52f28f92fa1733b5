"""Run a script written for SGLang on sglang_lite.

  python -m sglang_lite.compat SCRIPT.py [ARGS]
  python -m sglang_lite.compat -m MODULE [ARGS]
  python -m sglang_lite.compat -c CODE [ARGS]
  python -m sglang_lite.compat --report SCRIPT.py

Options come before the script; what follows it is the script's.
"""

from __future__ import annotations

import argparse
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path

from sglang_lite.compat.finder import install
from sglang_lite.compat.report import report
from sglang_lite.errors import SglangLiteError


def main(argv: Sequence[str] | None = None) -> int:
    """Run one script; returns the exit code: 0 done, 1 an error of ours. What the script raises goes through."""
    parser = argparse.ArgumentParser(
        prog="python -m sglang_lite.compat", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--model-path", metavar="PATH", help="loaded in place of hub names; 'embedded': the one that ships"
    )
    parser.add_argument("--backend", metavar="B", help="used in place of every server and hosted API of the script")
    parser.add_argument("--replace", action="store_true", help="stand in for SGLang although it is installed")
    parser.add_argument(
        "--report", action="store_true", help="list what the script needs and does not find; run nothing"
    )
    parser.add_argument("-m", dest="module", metavar="MODULE", help="run a module")
    parser.add_argument("-c", dest="code", metavar="CODE", help="run a text")
    own, rest = _split(list(sys.argv[1:] if argv is None else argv))
    args = parser.parse_args(own, argparse.Namespace(rest=rest))
    if args.module is None and args.code is None and not rest:
        parser.error("got no script, expected SCRIPT.py, -m MODULE or -c CODE")
    try:
        if args.report:
            for lack in report(args.rest[0]):
                sys.stdout.write(f"{lack}\n")
            return 0
        install(model_path=args.model_path, backend=args.backend, replace=args.replace)
    except SglangLiteError as error:
        sys.stderr.write(f"sglang_lite.compat: {type(error).__name__}: {error}\n")
        return 1
    _run(args)
    return 0


def _split(argv: list[str]) -> tuple[list[str], list[str]]:
    """Our options, and what belongs to the script: it begins with the script, or behind MODULE or CODE."""
    at = 0
    while at < len(argv) and argv[at].startswith("-"):
        at += 2 if argv[at] in ("--model-path", "--backend", "-m", "-c") else 1
        if argv[at - 2 : at - 1] in (["-m"], ["-c"]):
            break
    return argv[:at], argv[at:]


def _run(args: argparse.Namespace) -> None:
    if args.code is not None:
        sys.argv = ["-c", *args.rest]
        exec(compile(args.code, "<string>", "exec"), {"__name__": "__main__"})
    elif args.module is not None:
        sys.argv = [args.module, *args.rest]
        runpy.run_module(args.module, run_name="__main__", alter_sys=True)
    else:
        sys.argv = list(args.rest)
        sys.path.insert(0, str(Path(args.rest[0]).resolve().parent))
        runpy.run_path(args.rest[0], run_name="__main__")


if __name__ == "__main__":
    raise SystemExit(main())
