"""Checks and measures everything that runs on a GPU, on one machine without network: `python -m benchmarks.gpu_check`.

    --quick            fewer shapes and repeats, at most 90 s: run it first
    (nothing)          all of it, at most 5 minutes
    --cpu              a reduced form without a GPU: kernels in Triton's interpreter, tiny models
    --compile-only     compile every kernel for --arch (sm_80, sm_90; several with commas), no GPU needed
    --only A,B         these sections alone
    --json FILE        everything as data

It needs torch, triton and numpy beside this project, none of its other dependencies. Weights are random and made on the device: the
shapes of Llama-3.1-8B and SmolLM2-135M. First what must hold (kernels against their references, the model against the CPU, graphs, launching
ahead with forced retracts), then figures beside what the device can do, FlashInfer last and only where it is installed. Each section has a time limit
of its own, and one that fails does not hide the others: they run in a process of their own, and after one that damages it (an illegal
address) or never ends the others go on in a new one. The exit code is 1 where something does not hold; goals that are missed are told.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, Literal

from benchmarks.gpu.apart import run_apart, write_line
from benchmarks.gpu.goals import met

ARCHITECTURES = {"sm_80": 80, "sm_90": 90}
LIMITS_S = {
    "kernels": 70.0,
    "against the CPU": 40.0,
    "graphs": 40.0,
    "overlap": 60.0,
    "decode": 60.0,
    "prefill": 30.0,
    "idle": 40.0,
    "W4": 40.0,
    "W6": 40.0,
    "flashinfer": 60.0,
}
"""Seconds that each section may take on a GPU; its parts in their order."""
SECTIONS = tuple(LIMITS_S)
OPTIONAL = ("flashinfer",)
"""What may fail: the package compiles when it is used."""


def parser() -> argparse.ArgumentParser:
    """Arguments."""
    made = argparse.ArgumentParser(
        prog="python -m benchmarks.gpu_check", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    form = made.add_mutually_exclusive_group()
    form.add_argument("--quick", action="store_true", help="at most 90 s")
    form.add_argument("--cpu", action="store_true", help="without a GPU, in Triton's interpreter")
    form.add_argument("--compile-only", action="store_true", help="compile every kernel for --arch")
    made.add_argument("--arch", default="sm_90", help="what --compile-only compiles for (default sm_90)")
    made.add_argument("--only", default="", metavar="A,B", help="names of sections")
    made.add_argument("--json", type=Path, metavar="FILE", help="write everything as JSON, after each section anew")
    made.add_argument("--lines", type=Path, help=argparse.SUPPRESS)  # of the process that runs the sections
    return made


def main(argv: Sequence[str] | None = None) -> int:
    """Run, print a line a section, write; returns the exit code."""
    made = parser()
    args = made.parse_args(argv)
    start = time.perf_counter()
    if args.compile_only:
        unknown = [name for name in args.arch.split(",") if name not in ARCHITECTURES]
        if unknown:
            made.error(f"--arch: unknown {unknown}, known are {', '.join(ARCHITECTURES)}")
        report, failed = _compile([ARCHITECTURES[name] for name in args.arch.split(",")])
    else:
        wanted = [name for name in args.only.split(",") if name]
        if unknown := sorted(set(wanted) - set(SECTIONS)):
            made.error(f"--only: unknown {unknown}, known are {', '.join(SECTIONS)}")
        names = [name for name in SECTIONS if not wanted or name in wanted]
        if args.lines is not None:
            return _run_sections(made, args, names, lambda line: write_line(args.lines, line))
        report = {"size": _size(args), "sections": {}, "goals": {}}
        failed = _collect(made, args, names, report, start)
    _write(report, args.json, start)
    print(f"{'FAILED' if failed else 'ok'} in {report['seconds']:.0f} s")
    return int(failed)


def _write(report: dict[str, Any], path: Path | None, start: float) -> None:
    report["seconds"] = time.perf_counter() - start
    if path is not None:
        path.write_text(json.dumps(report, indent=2), encoding="utf-8")


def _size(args: argparse.Namespace) -> Literal["full", "quick", "cpu"]:
    return "cpu" if args.cpu else "quick" if args.quick else "full"


def _environment(device: str) -> dict[str, Any]:
    import numpy as np
    import torch
    import triton

    found: dict[str, Any] = {"python": platform.python_version(), "torch": torch.__version__, "numpy": np.__version__}
    found |= {"triton": triton.__version__, "device": device}
    if device != "cpu":
        properties = torch.cuda.get_device_properties(0)
        found |= {"name": properties.name, "memory": properties.total_memory}
    return found


def _compile(capabilities: Sequence[int]) -> tuple[dict[str, Any], bool]:
    from sglang_lite.kernels.triton.catalogue import collect, compile_case

    compiled: list[dict[str, Any]] = []
    errors: dict[str, str] = {}
    cases = collect()
    for capability in capabilities:
        for case in cases:
            try:
                compiled.append(asdict(compile_case(case, capability)))
            except Exception as error:  # noqa: BLE001 - every kernel is told of
                errors[f"{case.name} for sm_{capability}"] = f"{type(error).__name__}: {error}"
                print(f"FAILED {case.name} for sm_{capability}: {error}", file=sys.stderr)
        print(f"sm_{capability}: {sum(one['capability'] == capability for one in compiled)} of {len(cases)} compiled")
    return {"environment": _environment("cpu"), "compiled": compiled, "errors": errors}, bool(errors)


def _collect(
    made: argparse.ArgumentParser, args: argparse.Namespace, names: Sequence[str], report: dict[str, Any], start: float
) -> bool:
    """Run the sections, print and keep what each gave; whether one has failed."""

    def note(line: dict[str, Any]) -> None:
        if "environment" in line:
            report.setdefault("environment", line["environment"])
            return
        report["sections"][line["name"]] = line
        _tell(line)
        _write(report, args.json, start)

    if args.cpu:
        os.environ["TRITON_INTERPRET"] = "1"  # read when Triton is first imported, in the sections
        _run_sections(made, args, names, note)
    else:
        limits = {name: LIMITS_S[name] for name in names}
        if code := run_apart(limits, partial(_command, args), _lost, note):
            raise SystemExit(code)
        report["goals"] = met({name: one["figures"] for name, one in report["sections"].items()})
    for name, reached in report["goals"].items():
        print(f"goal {'reached' if reached else 'missed'}: {name}")
    return any(one["error"] is not None and not one["is_optional"] for one in report["sections"].values())


def _command(args: argparse.Namespace, names: Sequence[str], lines: Path) -> list[str]:
    form = ["--quick"] if args.quick else []
    return [sys.executable, "-m", "benchmarks.gpu_check", *form, "--only", ",".join(names), "--lines", str(lines)]


def _lost(name: str, why: str) -> dict[str, Any]:
    return {"name": name, "seconds": 0.0, "figures": {}, "error": why, "is_optional": name in OPTIONAL}


def _run_sections(
    made: argparse.ArgumentParser,
    args: argparse.Namespace,
    names: Sequence[str],
    note: Callable[[dict[str, Any]], None],
) -> int:
    """Run the sections in this process, up to one that damages the device."""
    import torch

    from benchmarks.gpu import figures, flashinfer_check, kernel_checks, model_checks
    from benchmarks.gpu.setting import Section, Setting, run_section

    if not args.cpu and not torch.cuda.is_available():
        made.error("torch sees no GPU; --cpu and --compile-only do without one")
    setting = Setting(_size(args), "cpu" if args.cpu else "cuda")
    note({"environment": _environment(setting.device)})
    runs: dict[str, Callable[[Setting], dict[str, Any]]] = {
        "kernels": kernel_checks.check_kernels,
        "against the CPU": model_checks.check_against_cpu,
        "graphs": model_checks.check_graphs,
        "overlap": model_checks.check_overlap,
        "decode": figures.measure_decode,
        "prefill": figures.measure_prefill,
        "idle": figures.measure_idle,
        "W4": figures.measure_shared_prefix,
        "W6": figures.measure_tree,
        "flashinfer": flashinfer_check.check_flashinfer,
    }
    for name in names:
        limit_s = LIMITS_S[name] * (3.0 if args.cpu else 1.0)
        note(asdict(run_section(Section(name, runs[name], limit_s, name in OPTIONAL), setting)))
        if not setting.works():
            print(f"  the device answers no more after {name!r}", flush=True)
            break
    return 0


def _tell(line: dict[str, Any]) -> None:
    print(f"{line['name']}: {'ok' if line['error'] is None else 'FAILED'} ({line['seconds']:.1f} s)", flush=True)
    if line["error"] is not None:
        print(f"  {line['error']}", flush=True)
    for name, value in line["figures"].items():
        print(f"  {name}: {_short(value)}", flush=True)


def _short(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_short(inner)}" for name, inner in value.items())
    return f"{value:.4g}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    raise SystemExit(main())
