"""Put a load on a server and measure it: throughput, time to the first token, between tokens, from end to end.

Any server of OpenAI's API, with the address that comes before /v1. Requests come at random, --rate a second on average, whether the
server keeps up or not; without --rate as fast as --concurrency lets them. Bodies are made up from --seed: the same ones each time.

Data sets: shared-prefix (completions in groups of 8 with the same 300 words in front), chat (dialogues), json (answers held to a
schema), or a file of JSON lines, each a text or a body with prompt or messages.

Examples:
  sglang-lite bench http://127.0.0.1:30000 --num 200 --concurrency 16
  sglang-lite bench http://127.0.0.1:30000 --rate 4 --dataset chat --json chat.json
  sglang-lite bench http://127.0.0.1:30000 --dataset questions.jsonl --max-tokens 64
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from sglang_lite import env
from sglang_lite.cli import load_data
from sglang_lite.cli.load import PERCENTILES, Load, Measured, find_model, run_load, summary
from sglang_lite.errors import RequestError
from sglang_lite.lang.backends.http_client import HttpClient, shared_loop

NAME = "bench"
SUMMARY = "put a load on a server and measure it"

_ROWS = {"ttft_ms": "first token", "inter_token_ms": "between tokens", "end_to_end_ms": "end to end"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `sglang-lite bench`."""
    parser.add_argument("url", metavar="URL", help="http://host:port of a server of OpenAI's API")
    parser.add_argument("--rate", type=float, metavar="R", help="requests a second (default: as fast as may be)")
    parser.add_argument(
        "--concurrency", type=int, metavar="C", help="requests at a time (default: 16; with --rate: any)"
    )
    parser.add_argument("--dataset", default="shared-prefix", metavar="D", help="shared-prefix, chat, json or a FILE")
    parser.add_argument("--num", type=int, default=100, metavar="N", help="requests (default 100)")
    parser.add_argument("--max-tokens", type=int, default=32, metavar="N", help="most tokens of an answer (default 32)")
    parser.add_argument("--model", metavar="M", help="the model's name (default: the first that the server names)")
    parser.add_argument("--timeout", type=float, default=600.0, metavar="S", help="seconds for a request (default 600)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of bodies and arrivals (default 0)")
    parser.add_argument("--json", metavar="OUT", help="write what was measured, request by request; - prints it")


def main(args: argparse.Namespace) -> int:
    """Run, print the table; 1 where every request failed."""
    for name in ("num", "concurrency", "rate", "max_tokens", "timeout"):
        value = getattr(args, name)
        if value is not None and not value > 0:
            raise RequestError(f"reading --{name.replace('_', '-')} {value}: expected more than 0")
    bodies = load_data.load(args.dataset, args.num, args.max_tokens, args.seed)
    concurrency = args.concurrency if args.concurrency or args.rate else 16
    http = HttpClient(args.url.rstrip("/").removesuffix("/v1"), env.api_key())
    model = args.model or shared_loop.start(find_model(http)).result()
    load = Load(args.rate, concurrency, args.timeout, args.seed)
    measured = _run(http, bodies, model, load)
    result = summary(measured)
    settings = {"url": args.url, "model": model, "dataset": args.dataset, "rate": args.rate, "concurrency": concurrency}
    report = {"settings": settings | {"max_tokens": args.max_tokens, "seed": args.seed}, "summary": result}
    if args.json == "-":
        print(json.dumps(report, indent=1))
    else:
        print(table(result))
        if args.json is not None:
            requests = [_plain(one) for one in measured]
            Path(args.json).write_text(json.dumps(report | {"requests": requests}) + "\n", encoding="utf-8")
    return 1 if sum(result["errors"].values()) == len(measured) else 0


def _run(http: HttpClient, bodies: list[load_data.Body], model: str, load: Load) -> list[Measured]:
    num_ended = 0

    def on_end(_: Measured) -> None:
        nonlocal num_ended
        num_ended += 1
        if sys.stderr.isatty():
            print(f"\r{num_ended}/{len(bodies)}", end="", file=sys.stderr, flush=True)

    running = shared_loop.start(run_load(http, bodies, model, load, on_end))
    try:
        return running.result()
    finally:
        running.cancel()
        shared_loop.call(http.close)
        if sys.stderr.isatty():
            print("\r", end="", file=sys.stderr)


def table(result: dict[str, Any]) -> str:
    """The summary for people."""
    cached = result["cached_tokens"] / result["prompt_tokens"] if result["prompt_tokens"] else 0.0
    lines = [
        f"requests        {result['requests']} in {result['wall_s']:.1f} s, {result['requests_per_s']:.2f} a second",
        f"tokens          {result['completion_tokens']} written, {result['output_tokens_per_s']:.1f} a second",
        f"prompts         {result['prompt_tokens']} tokens, {cached:.0%} from the cache",
        f"{'ms':<16}" + "".join(f"{f'p{percent}':>10}" for percent in PERCENTILES),
    ]
    for name, label in _ROWS.items():
        values = [result[name][f"p{percent}"] for percent in PERCENTILES]
        lines.append(f"{label:<16}" + "".join(f"{'-' if v is None else f'{v:.1f}':>10}" for v in values))
    errors = result["errors"]
    lines.append("errors          " + (", ".join(f"{count} {kind}" for kind, count in errors.items()) or "none"))
    return "\n".join(lines)


def _plain(one: Measured) -> dict[str, Any]:
    return {name: getattr(one, name) for name in Measured.__slots__}
