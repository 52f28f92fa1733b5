"""One forward on the CPU: decode of one row and of sixteen, prefill of a prompt; the native step beside torch modules.

Both run the embedded model's own file on the same threads, in the same run, round by round in turn, without scheduler,
sampler and tokenizer: a step is the layers and the head of every row's last token. Tokens per second; the best round
says most where other programs share the machine.

    python -m benchmarks.cpu_step --rounds 5 --json cpu_step.json
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

from benchmarks.inside import ModelInside
from benchmarks.report import environment, spread

WORKLOADS = {"decode b=1": (1, 64), "decode b=16": (16, 16), "prefill 512": (0, 512)}
"""Name -> rows that decode (0: a prompt is computed) and tokens that each has before."""


PATHS = {"native": "auto", "torch": "float32"}
"""Name -> the engine's dtype."""


def rate(bench: ModelInside, name: str, steps: int) -> float:
    """Tokens per second of one round: of the median step, or of one prompt."""
    rows, tokens = WORKLOADS[name]
    if rows == 0:
        return tokens / bench.step(1, 0, tokens)
    return rows / statistics.median(bench.step(rows, tokens + i, 1) for i in range(steps))


def measure(args: argparse.Namespace) -> dict[str, Any]:
    """All rounds, in turn."""
    benches = {path: ModelInside(None, args.threads, dtype=PATHS[path]) for path in args.paths}
    rounds: list[dict[str, dict[str, float]]] = []
    for number in range(args.rounds + 1):
        entry = {
            name: {path: rate(bench, name, args.steps) for path, bench in benches.items()} for name in args.workloads
        }
        if number:  # the first one warms up
            rounds.append(entry)
            print(f"round {number}: {json.dumps(entry)}")
    summary: dict[str, Any] = {}
    for name in args.workloads:
        summary[name] = {path: spread([entry[name][path] for entry in rounds]) for path in benches}
        if len(benches) == len(PATHS):
            summary[name]["ratio"] = spread([entry[name]["native"] / entry[name]["torch"] for entry in rounds])
    return {"settings": vars(args) | {"json": None}, "environment": environment(), "rounds": rounds, "summary": summary}


def main(argv: list[str] | None = None) -> int:
    """Measure and print; `--json` keeps everything."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=32, help="decode steps in a round")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--paths", nargs="+", choices=("native", "torch"), default=["native", "torch"])
    parser.add_argument("--workloads", nargs="+", choices=tuple(WORKLOADS), default=list(WORKLOADS))
    parser.add_argument("--json", type=Path, help="write everything to this file")
    args = parser.parse_args(argv)
    report = measure(args)
    print(json.dumps(report["summary"], indent=2))
    if args.json:
        args.json.write_text(json.dumps(report, indent=2), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
