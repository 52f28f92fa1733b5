"""The command `sglang-lite`: finds the subcommand and turns errors of users into one line and an exit code."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import sglang_lite
from sglang_lite.cli import bench, chat, grammar, inspect, plan, profile, run, serve, step, tree, warmup
from sglang_lite.errors import SglangLiteError

COMMANDS = (run, chat, serve, plan, warmup, bench, profile, tree, inspect, step, grammar)
"""Modules of the subcommands, in the order of the help; each has NAME, SUMMARY, `add_arguments` and `main`."""


def build_parser() -> argparse.ArgumentParser:
    """The parser of all commands."""
    parser = argparse.ArgumentParser(
        prog="sglang-lite",
        description="Run LLM programs and chat with a model, in this process. Start with: sglang-lite run",
        epilog="Every command explains itself: sglang-lite COMMAND --help",
    )
    parser.add_argument("--version", action="version", version=f"sglang-lite {sglang_lite.__version__}")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for command in COMMANDS:
        sub = subparsers.add_parser(
            command.NAME,
            help=command.SUMMARY,
            description=command.__doc__,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        command.add_arguments(sub)
        sub.set_defaults(main=command.main)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code: 0 done, 1 an error, 2 wrong arguments, 130 interrupted."""
    given = list(sys.argv[1:] if argv is None else argv)
    end = given.index("--") if "--" in given else len(given)
    args = build_parser().parse_args(given[:end], argparse.Namespace(rest=given[end + 1 :]))
    try:
        return args.main(args)
    except SglangLiteError as error:
        print(f"sglang-lite: {type(error).__name__}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("sglang-lite: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        return 0


if __name__ == "__main__":
    raise SystemExit(main())
