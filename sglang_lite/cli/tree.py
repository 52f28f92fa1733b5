"""Print what a program would send, as far as that is known before it runs, and what is wrong with it.

The body is run on symbols: arguments that are not given by --arg (and have no default) are symbols, and so is everything that
a model would say. The tree ends where the body asks more of a symbol than to append it; then the last line says where,
and why. The programs that it runs inside are shown below it.

--check also asks the backend: constraints that no text matches, stops that never come, prompts that are longer than
the context, bounds of tokens and KV. The exit code is 1 where something is sure to fail.

Examples:
  sglang-lite tree quiz.py
  sglang-lite tree quiz.py:ask --arg question="Why?" --check --backend scripted
  sglang-lite tree quiz.py:ask --json > tree.json
"""

from __future__ import annotations

import argparse
import inspect
import json
from typing import Any

from sglang_lite.cli.options import add_backend_argument, backend_named, parse_assignment
from sglang_lite.cli.target import find_function, load_module, split_target
from sglang_lite.errors import RequestError, UnsupportedError
from sglang_lite.lang.sgl_function import SglFunction
from sglang_lite.lang.tracer import TracerProgramState
from sglang_lite.request_tree import Backend, Finding, TreeChecker

NAME = "tree"
SUMMARY = "print the request tree of a program and check it"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `sglang-lite tree`."""
    parser.add_argument("target", metavar="FILE.py[:NAME]", help="the @function (NAME may be left out if there is one)")
    parser.add_argument("--arg", action="append", default=[], metavar="NAME=VALUE", help="an argument of the @function")
    parser.add_argument("--json", action="store_true", help="print JSON: the tree, where it is open, findings")
    parser.add_argument("--check", action="store_true", help="ask the backend what is wrong with the tree")
    add_backend_argument(parser)


def main(args: argparse.Namespace) -> int:
    """Trace, print, and with --check or --backend check."""
    path, name = split_target(args.target)
    function = find_function(load_module(path), name, path)
    given = dict(parse_assignment(text) for text in args.arg)
    traced = function.trace(**(_defaults(function, given) | given))
    findings: list[Finding] | None = None
    if args.check or args.backend is not None:
        findings = check(traced, backend_named(args.backend))
    if args.json:
        print(json.dumps(as_json(traced, findings), ensure_ascii=False, indent=2))
    else:
        print(traced)
        for finding in findings or []:
            print(f"{finding.severity}: {finding.message}")
    return 1 if any(finding.severity == "error" for finding in findings or []) else 0


def check(traced: TracerProgramState, backend: Backend) -> list[Finding]:
    """What the backend finds in the tree and in those of the programs inside.

    Raises:
        UnsupportedError: the backend cannot look at trees.
    """
    if not isinstance(backend, TreeChecker):
        raise UnsupportedError(
            f"checking a tree: {type(backend).__name__} cannot look at a tree before it runs; use local, scripted or a server"
        )
    findings = backend.check(traced.tree)
    for nested in traced.nested:
        findings += [
            Finding(None, found.severity, f"{nested.label}: {found.message}") for found in check(nested, backend)
        ]
    return findings


def as_json(traced: TracerProgramState, findings: list[Finding] | None) -> dict[str, Any]:
    """The trace as plain data."""
    data: dict[str, Any] = {"program": traced.label, "tree": traced.tree.to_json(), "open_because": traced.open_because}
    if traced.nested:
        data["nested"] = [as_json(nested, None) for nested in traced.nested]
    if findings is not None:
        data["findings"] = [{"op": f.op, "severity": f.severity, "message": f.message} for f in findings]
    return data


def _defaults(function: SglFunction, given: dict[str, Any]) -> dict[str, Any]:
    """Default values of the arguments that are not given: as a run would have them.

    Raises:
        RequestError: something is given that the function has no parameter for.
    """
    parameters = list(inspect.signature(function.func).parameters.values())[1:]
    if unknown := sorted(set(given) - set(function.arg_names)):
        raise RequestError(
            f"tracing {function.__name__}({', '.join(function.arg_names)}): unknown {unknown}; give each as --arg name=value"
        )
    return {p.name: p.default for p in parameters if p.default is not p.empty and p.name not in function.bind_arguments}
