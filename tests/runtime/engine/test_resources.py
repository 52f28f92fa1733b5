from __future__ import annotations

from pathlib import Path

from sglang_lite.runtime.engine.resources import available_bytes, usable_cpus


def test_memory_is_the_systems_free_part_or_the_rest_of_the_cgroup(tmp_path: Path) -> None:
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal: 100 kB\nMemAvailable:      50 kB\n")
    assert available_bytes(meminfo, tmp_path) == 50 * 1024
    (tmp_path / "memory.max").write_text("30000\n")
    (tmp_path / "memory.current").write_text("10000\n")
    assert available_bytes(meminfo, tmp_path) == 20000
    (tmp_path / "memory.max").write_text("max\n")
    assert available_bytes(meminfo, tmp_path) == 50 * 1024


def test_without_proc_memory_comes_from_the_system_configuration(tmp_path: Path) -> None:
    assert available_bytes(tmp_path / "none", tmp_path) > 0


def test_processors_are_bounded_by_the_cgroups_quota(tmp_path: Path) -> None:
    everything = usable_cpus(tmp_path)
    assert everything >= 1
    (tmp_path / "cpu.max").write_text("100000 100000\n")
    assert usable_cpus(tmp_path) == 1
    (tmp_path / "cpu.max").write_text("50000 100000\n")
    assert usable_cpus(tmp_path) == 1
    (tmp_path / "cpu.max").write_text("max 100000\n")
    assert usable_cpus(tmp_path) == everything
