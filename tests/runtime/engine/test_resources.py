from __future__ import annotations

import os
from pathlib import Path

import pytest

from sglang_lite.runtime.engine.resources import available_bytes, choose_threads, usable_cpus


@pytest.fixture(autouse=True)
def eight_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(8)), raising=False)


def member(folder: Path, *lines: str) -> Path:
    path = folder / "membership"
    path.write_text("\n".join(lines) + "\n")
    return path


def write(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text + "\n")


def test_memory_is_the_systems_free_part_or_the_rest_of_the_cgroup(tmp_path: Path) -> None:
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal: 100 kB\nMemAvailable:      50 kB\n")
    nowhere = tmp_path / "none"
    assert available_bytes(meminfo, tmp_path, nowhere) == 50 * 1024
    write(tmp_path, memory__max="30000", memory__current="10000")
    assert available_bytes(meminfo, tmp_path, nowhere) == 20000
    write(tmp_path, memory__stat="anon 4000\ninactive_file 6000")
    assert available_bytes(meminfo, tmp_path, nowhere) == 26000
    write(tmp_path, memory__max="max")
    assert available_bytes(meminfo, tmp_path, nowhere) == 50 * 1024


def test_without_proc_memory_comes_from_the_system_configuration(tmp_path: Path) -> None:
    assert available_bytes(tmp_path / "none", tmp_path, tmp_path / "none") > 0


def test_memory_is_bounded_by_every_group_around_the_process(tmp_path: Path) -> None:
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemAvailable: 1000 kB\n")
    outer = tmp_path / "user.slice"
    write(outer, memory__max="500000", memory__current="100000")
    write(outer / "app.scope", memory__max="max", memory__current="100000")
    groups = member(tmp_path, "0::/user.slice/app.scope")
    assert available_bytes(meminfo, tmp_path, groups) == 400000
    write(outer / "app.scope", memory__max="300000")
    assert available_bytes(meminfo, tmp_path, groups) == 200000


def test_the_first_version_of_cgroups_is_read_as_well(tmp_path: Path) -> None:
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemAvailable: 1000 kB\n")
    write(
        tmp_path / "memory" / "job",
        memory__limit_in_bytes="700000",
        memory__usage_in_bytes="600000",
        memory__stat="total_inactive_file 50000",
    )
    write(tmp_path / "cpu,cpuacct" / "job", cpu__cfs_quota_us="300000", cpu__cfs_period_us="100000")
    groups = member(tmp_path, "4:memory:/job", "2:cpu,cpuacct:/job", "0::/")
    assert available_bytes(meminfo, tmp_path, groups) == 150000
    assert usable_cpus(tmp_path, groups) == 3
    write(tmp_path / "memory" / "job", memory__limit_in_bytes=str(2**63 - 4096))
    assert available_bytes(meminfo, tmp_path, groups) == 1000 * 1024
    (tmp_path / "cpu,cpuacct" / "job" / "cpu.cfs_quota_us").write_text("-1\n")
    assert usable_cpus(tmp_path, groups) == 8


@pytest.mark.parametrize(
    ("text", "expected"),
    [("100000 100000", 1), ("50000 100000", 1), ("350000 100000", 3), ("900000 100000", 8), ("max 100000", 8)],
)
def test_processors_are_bounded_by_the_cgroups_quota(tmp_path: Path, text: str, expected: int) -> None:
    write(tmp_path, cpu__max=text)
    assert usable_cpus(tmp_path, tmp_path / "none") == expected


def test_the_least_quota_around_the_process_counts(tmp_path: Path) -> None:
    write(tmp_path / "a", cpu__max="200000 100000")
    write(tmp_path / "a" / "b", cpu__max="400000 100000")
    assert usable_cpus(tmp_path, member(tmp_path, "0::/a/b")) == 2


def test_affinity_bounds_processors_where_no_quota_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {3, 5})
    assert usable_cpus(tmp_path, tmp_path / "none") == 2
    assert usable_cpus() in (1, 2)


def test_the_number_of_threads_comes_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {3})
    assert choose_threads(5, 3, 8) == (5, "as set")
    assert choose_threads(None, 3, 8) == (3, "as the environment says")
    count, why = choose_threads(None, None, 8)
    assert count == 1
    assert "affinity" in why
