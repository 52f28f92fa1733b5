"""Grammar engines side by side: right and wrong verdicts, refusals, compile time, masks, memory, forced tokens.

    SGLANG_LITE_TEST_DATA=DATA python -m benchmarks.grammar_engines --json out.json --markdown out.md

DATA has `maskbench/sample.jsonl`, `json-schema-test-suite/draft2020-12` and `regexes.json`; `--cases` names a file of reduced reports.
The engines (those installed) get each item one after the other, each in a process of its own on one core. Every text must go
through mask by mask and end with the end token. Times are processor time of the measuring thread.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.grammar_peers import embedded_tokenizer
from benchmarks.grammar_worker import Worker
from benchmarks.report import environment

COMPACT, SPACED = (",", ":"), (", ", ": ")
Item = dict[str, Any]


def maskbench(data: Path) -> Iterator[Item]:
    """Schemas with valid and invalid instances; parts `anchor150` and `more`."""
    for line in (data / "maskbench" / "sample.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        tests = sorted(row["tests"], key=lambda test: not test["valid"])  # a valid one first: it is the timed instance
        texts = [_written(test["data"]) for test in tests]
        valid = [test["valid"] for test in tests]
        yield {
            "suite": row["part"],
            "id": row["id"],
            "kind": "schema",
            "source": row["schema"],
            "texts": texts,
            "valid": valid,
        }


def official_suite(data: Path) -> Iterator[Item]:
    """The groups of the JSON Schema Test Suite, draft 2020-12."""
    for path in sorted((data / "json-schema-test-suite" / "draft2020-12").glob("*.json")):
        for group in json.loads(path.read_text(encoding="utf-8")):
            texts = [_written(test["data"]) for test in group["tests"]]
            valid = [test["valid"] for test in group["tests"]]
            name = f"{path.stem}: {group['description']}"
            yield {
                "suite": "jsts",
                "id": name,
                "kind": "annotated",
                "source": group["schema"],
                "texts": texts,
                "valid": valid,
            }


def regexes(data: Path) -> Iterator[Item]:
    """Patterns with texts to accept and to reject."""
    for row in json.loads((data / "regexes.json").read_text(encoding="utf-8")):
        texts = [*row["accept"], *row["reject"]]
        valid = [True] * len(row["accept"]) + [False] * len(row["reject"])
        yield {
            "suite": "regexes",
            "id": row["name"],
            "kind": "regex",
            "source": row["regex"],
            "texts": texts,
            "valid": valid,
        }


def reduced_cases(path: Path) -> Iterator[Item]:
    """Reduced public reports; a verdict of None means that either will do."""
    for row in json.loads(path.read_text(encoding="utf-8")):
        kind = "regex" if row["kind"] == "regex" else "schema"
        yield {
            "suite": "cases",
            "id": row["source"],
            "kind": kind,
            "source": row["grammar"],
            "texts": [row["text"]],
            "valid": [row["accept"]],
        }


def _written(value: Any, separators: tuple[str, str] = COMPACT) -> str:
    return json.dumps(value, separators=separators, ensure_ascii=False)


def score(items: list[Item], answers: list[dict[str, Any]]) -> dict[str, Any]:
    """Verdicts and times of one engine on one suite."""
    found: dict[str, Any] = {"items": len(items), "right": 0, "refused": 0, "timeout": 0, "crash": 0}
    found |= {"false_accepts": 0, "false_rejects": 0, "wrong": []}
    for item, answer in zip(items, answers, strict=True):
        if answer["status"] != "ok":
            found[answer["status"]] += 1
            continue
        pairs = [(got, want) for got, want in zip(answer["verdicts"], item["valid"], strict=True) if want is not None]
        accepts = sum(got and not want for got, want in pairs)
        rejects = sum(want and not got for got, want in pairs)
        found["false_accepts"] += accepts
        found["false_rejects"] += rejects
        found["right"] += not accepts and not rejects
        if accepts:
            found["wrong"].append(item["id"])
    found["compile_ms"] = _quantiles([answer["compile_us"] / 1e3 for answer in answers])
    for name in ("first_us", "cached_us", "accept_us"):
        found[name] = _quantiles([value for answer in answers for value in answer.get(name, ())])
    memory = [answer["memory"] for answer in answers if answer.get("memory") is not None]
    found["memory_bytes"] = _quantiles(memory)
    return found


def _quantiles(values: list[float]) -> dict[str, float] | None:
    if not values:
        return None
    p50, p95, p99, most = np.percentile(values, [50, 95, 99, 100]).tolist()
    return {"n": len(values), "p50": p50, "p95": p95, "p99": p99, "max": most}


def ratios(items: list[Item], ours: list[dict[str, Any]], theirs: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Compile plus all masks of the first valid instance, ours by theirs, where both take the item."""
    pairs = [
        (mine["compile_us"] + mine["instance_us"], other["compile_us"] + other["instance_us"])
        for item, mine, other in zip(items, ours, theirs, strict=True)
        if item["valid"] and item["valid"][0] and "instance_us" in mine and "instance_us" in other
    ]
    if not pairs:
        return None
    each = _quantiles([mine / other for mine, other in pairs])
    mine_ms, theirs_ms = (_quantiles([pair[side] / 1e3 for pair in pairs]) or {} for side in (0, 1))
    return {
        "each": each,
        "ours_ms": mine_ms,
        "theirs_ms": theirs_ms,
        "of_medians": mine_ms["p50"] / theirs_ms["p50"],
        "of_p95": mine_ms["p95"] / theirs_ms["p95"],
    }


def forced(items: list[Item], workers: dict[str, Worker], encode: Callable[[str], list[int]]) -> dict[str, Any]:
    """Forced tokens over the first valid instance of each item, in the two usual layouts."""
    found: dict[str, Any] = {}
    for layout, separators in (("compact", COMPACT), ("spaced", SPACED)):
        for name in ("ours", "llguidance"):
            if name not in workers:
                continue
            total = {"tokens": 0, "forced": 0, "runs": 0, "not_canonical": 0, "items": 0}
            for item in items:
                if not item["valid"] or not item["valid"][0]:
                    continue
                ids = encode(_written(json.loads(item["texts"][0]), separators))
                answer = workers[name].ask("forced", f"{item['kind']} {layout}", item["source"], ids)
                if answer and "tokens" in answer:
                    total["items"] += 1
                    for key, value in answer.items():
                        total[key] += value
            total |= {"share": total["forced"] / max(total["tokens"], 1)}
            found[f"{name} {layout}"] = total
    return found


def cold_start() -> dict[str, float] | None:
    """Processor seconds of a second process from the import of Numba until a first mask is there, the vocabulary's bytes given."""
    code = (
        "import time, numba\n"
        "from benchmarks.grammar_peers import Ours, embedded_tokenizer\n"
        "tokenizer = embedded_tokenizer()\n"
        "begin = time.process_time()\n"
        "engine = Ours(tokenizer)\n"
        "engine.session(engine.compile('schema', {'type': 'object'})).fill(engine.bitmask)\n"
        "print(time.process_time() - begin)\n"
    )
    seconds = []
    for _ in range(3):
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        if done.returncode:
            return None
        seconds.append(float(done.stdout.split()[-1]))
    return {"median_s": statistics.median(seconds), "min_s": min(seconds)}


def markdown(report: dict[str, Any]) -> str:
    """The tables of a report."""
    lines = [
        "| suite | engine | items | right | refused | timeout/crash | false accepts | false rejects | compile ms p50 / p95 / max | first mask us p50 / p95 | cached us p95 | memory max MB |"
    ]
    lines.append("|" + "---|" * 12)
    for suite, engines in report["suites"].items():
        for name, row in engines.items():
            first, cached, memory = row["first_us"], row["cached_us"], row["memory_bytes"]
            compile_ms = row["compile_ms"]
            cells = [suite, name, row["items"], row["right"], row["refused"], row["timeout"] + row["crash"]]
            cells += [row["false_accepts"], row["false_rejects"]]
            cells.append(f"{compile_ms['p50']:.2f} / {compile_ms['p95']:.1f} / {compile_ms['max']:.0f}")
            cells.append(f"{first['p50']:.1f} / {first['p95']:.0f}" if first else "-")
            cells.append(f"{cached['p95']:.1f}" if cached else "-")
            cells.append(f"{memory['max'] / 1e6:.2f}" if memory else "-")
            lines.append("| " + " | ".join(map(str, cells)) + " |")
    lines += ["", "Compile plus all masks of the first valid instance, ours / llguidance:", ""]
    for suite, row in report["ratios"].items():
        lines.append(
            f"- {suite}: median of ratios {row['each']['p50']:.2f}, p95 {row['each']['p95']:.2f}; "
            f"ratio of medians {row['of_medians']:.2f}, of p95 {row['of_p95']:.2f} ({row['each']['n']} items)"
        )
    lines += ["", "| forced tokens | items | tokens | forced | share | runs | not canonical |", "|" + "---|" * 7]
    for name, row in report["forced"].items():
        lines.append(
            f"| {name} | {row['items']} | {row['tokens']} | {row['forced']} | {row['share']:.1%} | {row['runs']} | {row['not_canonical']} |"
        )
    if report["cold_start"]:
        lines += ["", f"Second process ready after {report['cold_start']['median_s']:.2f} s of processor time."]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engines", nargs="+", default=["ours", "llguidance", "xgrammar", "outlines-core"])
    parser.add_argument("--suites", nargs="+", default=["anchor150", "more", "jsts", "regexes", "cases"])
    parser.add_argument("--cases", type=Path, help="a file of reduced reports")
    parser.add_argument("--deadline", type=float, default=10.0, help="seconds for one item of one engine")
    parser.add_argument("--every", type=int, default=1, help="take every n-th item only")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--markdown", type=Path)
    args = parser.parse_args()
    named = os.environ.get("SGLANG_LITE_TEST_DATA")
    if not named:
        parser.error("SGLANG_LITE_TEST_DATA names no folder")
    data = Path(named)
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    items = [
        *maskbench(data),
        *official_suite(data),
        *regexes(data),
        *(reduced_cases(args.cases) if args.cases else ()),
    ]
    items = [item for item in items if item["suite"] in args.suites][:: args.every]
    tokenizer = embedded_tokenizer()
    workers = {name: Worker(name, args.deadline) for name in args.engines}

    def encode(text: str) -> list[int]:
        return tokenizer.encode(text, parse_special=False)

    answers: dict[str, list[dict[str, Any]]] = {name: [] for name in workers}
    for number, item in enumerate(items):
        ids = [encode(text) for text in item["texts"]]
        for name, worker in workers.items():
            answers[name].append(worker.ask("measure", item["kind"], item["source"], ids))
        if number % 50 == 0:
            print(f"{number}/{len(items)}", file=sys.stderr)
    report: dict[str, Any] = {"environment": environment(), "suites": {}, "ratios": {}, "forced": {}}
    suites = dict.fromkeys(item["suite"] for item in items)
    groups = {suite: [suite] for suite in suites} | ({"all 420": ["anchor150", "more"]} if "more" in suites else {})
    for suite, parts in groups.items():
        chosen = [at for at, item in enumerate(items) if item["suite"] in parts]
        mine = [items[at] for at in chosen]
        rows = {name: [found[at] for at in chosen] for name, found in answers.items()}
        report["suites"][suite] = {name: score(mine, found) for name, found in rows.items()}
        if {"ours", "llguidance"} <= rows.keys() and (row := ratios(mine, rows["ours"], rows["llguidance"])):
            report["ratios"][suite] = row
    report["forced"] = forced([item for item in items if item["suite"] == "anchor150"], workers, encode)
    for worker in workers.values():
        worker.close()
    report["cold_start"] = cold_start()
    text = markdown(report)
    print(text)
    if args.json:
        args.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    if args.markdown:
        args.markdown.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
