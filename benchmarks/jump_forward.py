"""Jump-forward on the embedded model: what it keeps, what it saves, and what `force` changes. `python -m benchmarks.jump_forward`.

Every prompt of `constrained_prompts.CASES` runs alone (batch 1), in all three modes in turn, greedy and once with a temperature.
Compilation and first masks are not in the times: the first round is not counted.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

from benchmarks.constrained_prompts import CASES
from benchmarks.report import environment, spread
from sglang_lite.runtime.engine.engine import Engine

MODES = ("off", "verify", "force")


def run_all(engine: Engine, mode: str, sampling: dict[str, Any]) -> tuple[float, list[dict[str, Any]]]:
    """(seconds, replies) of all prompts, one after the other."""
    replies: list[dict[str, Any]] = []
    start = time.perf_counter()
    for prompt, constraint in CASES:
        reply = engine.generate(prompt, sampling | constraint | {"jump_forward": mode})
        assert isinstance(reply, dict), "one prompt has one reply"
        replies.append(reply)
    return time.perf_counter() - start, replies


def compare(off: list[dict[str, Any]], other: list[dict[str, Any]]) -> dict[str, float]:
    """Shares of equal positions (up to the shorter one's end) and of equal documents."""
    pairs = [(a["output_ids"], b["output_ids"]) for a, b in zip(off, other, strict=True)]
    positions = sum(min(len(a), len(b)) for a, b in pairs)
    equal = sum(x == y for a, b in pairs for x, y in zip(a, b, strict=False))
    texts = sum(a["text"] == b["text"] for a, b in zip(off, other, strict=True))
    return {"equal_positions": equal / positions, "equal_documents": texts / len(pairs)}


def measure(rounds: int, max_new_tokens: int) -> dict[str, Any]:
    """All modes over all prompts."""
    engine = Engine(context_length=2048, max_total_tokens=8192)
    report: dict[str, Any] = {"environment": environment(), "prompts": len(CASES)}
    try:
        for name, sampling in (("greedy", {"temperature": 0}), ("sampled", {"temperature": 1.0, "seed": 7})):
            sampling = sampling | {"max_new_tokens": max_new_tokens}
            seconds: dict[str, list[float]] = {mode: [] for mode in MODES}
            replies: dict[str, list[dict[str, Any]]] = {}
            counts: dict[str, dict[str, int]] = {}
            for number in range(rounds + 1):
                for mode in MODES:
                    before = engine.get_server_info()
                    took, replies[mode] = run_all(engine, mode, sampling)
                    after = engine.get_server_info()
                    names = ("forced_tokens", "rejected_tokens", "output_tokens")
                    counts[mode] = {name: after[name] - before[name] for name in names}
                    if number:
                        seconds[mode].append(took)
            report[name] = {
                mode: counts[mode]
                | {"seconds": spread(seconds[mode]), "of_off": _ratio(seconds, mode)}
                | compare(replies["off"], replies[mode])
                for mode in MODES
            }
    finally:
        engine.shutdown()
    return report


def _ratio(seconds: dict[str, list[float]], mode: str) -> dict[str, float]:
    return spread([own / off for own, off in zip(seconds[mode], seconds["off"], strict=True)])


def main(argv: list[str] | None = None) -> int:
    """Measure and print; `--json` keeps everything."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--max-new-tokens", type=int, default=100)
    parser.add_argument("--json", type=Path, help="write everything to this file")
    args = parser.parse_args(argv)
    report = measure(args.rounds, args.max_new_tokens)
    print(json.dumps({key: value for key, value in report.items() if key != "environment"}, indent=2))
    if args.json:
        args.json.write_text(json.dumps(report, indent=2), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
