"""The script for GPUs without one: its reduced form, where nothing else is installed, and how it reports."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from benchmarks import gpu_check
from benchmarks.gpu import apart
from benchmarks.gpu.goals import met
from benchmarks.gpu.setting import CheckError, Section, Setting, run_section

ROOT = Path(gpu_check.__file__).parents[1]
CPU = Setting("cpu", "cpu")


@pytest.mark.triton
def test_the_reduced_form_holds_without_our_other_dependencies(tmp_path: Path) -> None:
    """All sections, in a process that can import torch, triton, numpy and this project, and little else."""
    out = tmp_path / "report.json"
    kept = {key: value for key, value in os.environ.items() if not key.startswith("TRITON_")}
    result = subprocess.run(
        [sys.executable, "-m", "tests.benchmarks.gpu_check_alone", "--cpu", "--json", str(out)],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
        cwd=ROOT,
        env=kept | {"OMP_NUM_THREADS": "1", "TRITON_CACHE_DIR": str(tmp_path / "triton")},
    )
    assert result.returncode == 0, result.stdout + result.stderr[-3000:]
    report = json.loads(out.read_text(encoding="utf-8"))
    sections = report["sections"]
    assert [one["error"] for one in sections.values()] == [None] * len(sections)
    assert list(sections) == [
        *("kernels", "against the CPU", "graphs", "overlap", "decode", "prefill", "idle", "W4", "W6", "flashinfer")
    ]
    assert all(value is not None for value in sections["kernels"]["figures"].values())
    assert sections["W4"]["figures"]["prompt_tokens_computed"] < 2 * sections["W4"]["figures"]["optimum"]
    assert sections["overlap"]["figures"]["greedy, retracts with overlap"] > 0
    assert report["environment"]["device"] == "cpu"


def test_a_section_that_fails_says_so_and_hides_nothing() -> None:
    def wrong(_setting: Setting) -> dict[str, object]:
        raise CheckError("two is not three", {"two": 2})

    def broken(_setting: Setting) -> dict[str, object]:
        raise ZeroDivisionError("by zero")

    def endless(_setting: Setting) -> dict[str, object]:
        while True:
            time.perf_counter()

    first = run_section(Section("first", wrong, 60), CPU)
    assert (first.error, first.figures, first.fails) == ("two is not three", {"two": 2}, True)
    second = run_section(Section("second", broken, 60, is_optional=True), CPU)
    assert second.error is not None
    assert second.error.startswith("ZeroDivisionError: by zero")
    assert not second.fails
    third = run_section(Section("third", endless, 0.05), CPU)
    assert third.error is not None
    assert "longer" in third.error
    last = run_section(Section("last", lambda _: {"x": 1}, 60), CPU)
    assert (last.error, last.figures) == (None, {"x": 1})


CHILD = """
import os, sys, time
from pathlib import Path
from benchmarks.gpu.apart import write_line
names, path = sys.argv[1].split(","), Path(sys.argv[2])
write_line(path, {"environment": {}})
for name in names:
    if name == "crashes":
        os._exit(7)
    if name == "hangs":
        time.sleep(1000)
    write_line(path, {"name": name, "error": None})
    if name == "damages":
        break
"""


def test_sections_go_on_after_one_that_takes_its_process_along(monkeypatch: pytest.MonkeyPatch) -> None:
    """A crash, a hang and a device that answers no more cost a new process, not the sections behind."""
    monkeypatch.setattr(apart, "GRACE_S", 0.1)
    started: list[list[str]] = []
    lines: list[dict[str, object]] = []

    def command(names: Sequence[str], path: Path) -> list[str]:
        started.append(list(names))
        return [sys.executable, "-c", CHILD, ",".join(names), str(path)]

    limits = dict.fromkeys(("damages", "crashes", "one", "hangs", "two"), 60.0) | {"hangs": 0.1}
    assert apart.run_apart(limits, command, lambda name, why: {"name": name, "error": why}, lines.append) == 0
    errors = {line["name"]: line["error"] for line in lines if "name" in line}
    assert list(errors) == list(limits)
    assert [name for name, error in errors.items() if error is None] == ["damages", "one", "two"]
    assert errors["crashes"] == "its process ended with exit code 7"
    assert "did not end" in str(errors["hangs"])
    assert [names[0] for names in started] == ["damages", "crashes", "one", "two"]


def test_a_process_that_cannot_start_ends_the_run_with_its_exit_code() -> None:
    def command(_names: Sequence[str], _path: Path) -> list[str]:
        return [sys.executable, "-c", "raise SystemExit(2)"]

    assert (
        apart.run_apart({"one": 1.0}, command, lambda name, why: {"name": name, "error": why}, lambda line: None) == 2
    )


def test_a_device_that_fails_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_self: Setting) -> None:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    assert CPU.works()
    monkeypatch.setattr(Setting, "wait", broken)
    assert not CPU.works()


def test_goals_are_told_from_figures() -> None:
    figures = {
        "decode": {"read_bytes_per_s": 1.0, "batch 1": {"share_of_bound": 0.81}, "batch 64": {"share_of_bound": 0.5}},
        "prefill": {"product_flop_per_s": 1.0, "1024 tokens": {"share_of_products": 0.7}},
        "idle": {"idle_share": 0.06},
    }
    assert list(met(figures).values()) == [True, False, True, False]
    assert met({}) == {}


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--compile-only", "--arch", "sm_75"], "known are sm_80, sm_90"),
        (["--cpu", "--only", "everything"], "--only: unknown ['everything']"),
        (["--quick", "--cpu"], "not allowed with"),
    ],
)
def test_wrong_arguments_are_refused(arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        gpu_check.main(arguments)
    assert stop.value.code == 2
    assert told in capsys.readouterr().err
