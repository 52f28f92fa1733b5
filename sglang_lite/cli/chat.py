"""Chat with the model in the terminal; replies appear as they are generated.

Type a message and press return. /reset forgets the dialogue, /quit or Ctrl-D ends; Ctrl-C stops a reply. The dialogue so
far is reused from the cache, so each turn computes only what is new.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any

from sglang_lite.cli.options import add_backend_argument, backend_named
from sglang_lite.cli.summary import summary_line
from sglang_lite.lang.api import assistant, function, gen, system, user
from sglang_lite.lang.summary import count_usage
from sglang_lite.request_tree import Backend

NAME = "chat"
SUMMARY = "chat with the model in the terminal"

_ROLES = {"system": system, "user": user, "assistant": assistant}


@function
def _turn(s: Any, messages: list[dict[str, str]], max_tokens: int, temperature: float) -> None:
    for message in messages:
        s += _ROLES[message["role"]](message["content"])
    s += assistant(gen("reply", max_tokens=max_tokens, temperature=temperature))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `sglang-lite chat`."""
    parser.add_argument("--system", metavar="TEXT", help="the system message (default: the model's own)")
    parser.add_argument(
        "--max-tokens", type=int, default=256, metavar="N", help="longest reply in tokens (default 256)"
    )
    parser.add_argument("--temperature", type=float, default=0.7, metavar="T", help="0 is greedy (default 0.7)")
    add_backend_argument(parser)


def main(args: argparse.Namespace) -> int:
    """Read, reply, repeat."""
    backend = backend_named(args.backend)
    started_s = time.perf_counter()
    print("Type a message. /reset forgets the dialogue, /quit ends.", file=sys.stderr)
    with count_usage() as totals:
        _converse(args, backend)
    print(summary_line(totals, time.perf_counter() - started_s), file=sys.stderr)
    return 0


def _converse(args: argparse.Namespace, backend: Backend) -> None:
    opening = [{"role": "system", "content": args.system}] if args.system else []
    messages = list(opening)
    while (text := _read()) is not None:
        if text == "/quit":
            return
        if text == "/reset":
            messages = list(opening)
            continue
        if not text:
            continue
        messages.append({"role": "user", "content": text})
        messages.append({"role": "assistant", "content": _reply(args, backend, messages)})


def _reply(args: argparse.Namespace, backend: Backend, messages: list[dict[str, str]]) -> str:
    """Print the reply piece by piece; what Ctrl-C cuts off stays as it is."""
    pieces: list[str] = []
    state = _turn.run(list(messages), args.max_tokens, args.temperature, stream=True, backend=backend)
    try:
        for piece in state.text_iter("reply"):
            pieces.append(piece)
            print(piece, end="", flush=True)
    except KeyboardInterrupt:
        state.cancel()
    print()
    return "".join(pieces)


def _read() -> str | None:
    """A line of input, or None at its end."""
    try:
        return input("> " if sys.stdin.isatty() else "").strip()
    except (EOFError, KeyboardInterrupt):
        return None
