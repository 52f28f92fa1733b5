"""What this process may use: memory and processors, from its limits rather than from the host."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

_CGROUP = Path("/sys/fs/cgroup")
_MEMBERSHIP = Path("/proc/self/cgroup")

# A controller's files in the two versions of cgroups: the limit, what is used, and what of that the system takes back at need.
_MEMORY_FILES = (
    ("memory.max", "memory.current", "inactive_file"),
    ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)


def available_bytes(
    meminfo: Path = Path("/proc/meminfo"), cgroup: Path = _CGROUP, membership: Path = _MEMBERSHIP
) -> int:
    """Memory this process can still take, in bytes: what the system has free, or the rest of a cgroup around it if that is less."""
    free = _meminfo_available(meminfo)
    for folder in _groups("memory", cgroup, membership):
        for limit_name, used_name, cached_name in _MEMORY_FILES:
            limit, used = _read_int(folder / limit_name), _read_int(folder / used_name)
            if limit is not None and used is not None:
                cached = _read_field(folder / "memory.stat", cached_name)
                free = min(free, max(limit - max(used - cached, 0), 0))
    return free


def usable_cpus(cgroup: Path = _CGROUP, membership: Path = _MEMBERSHIP) -> int:
    """Processors this process may use, at least 1: its affinity, or the quota of a cgroup around it if that is less."""
    count = len(os.sched_getaffinity(0)) if "sched_getaffinity" in dir(os) else os.cpu_count() or 1
    for folder in _groups("cpu", cgroup, membership):
        quota = _quota(folder)
        if quota is not None:
            count = min(count, quota)
    return max(count, 1)


def choose_threads(asked: int | None, by_environment: int | None, most: int) -> tuple[int, str]:
    """How many threads compute, and why in words.

    Args:
        asked: the setting; None: none.
        by_environment: what the environment says; None: nothing.
        most: not more than this unless asked for.

    """
    if asked is not None:
        return asked, "as set"
    if by_environment is not None:
        return by_environment, "as the environment says"
    usable = usable_cpus()
    if usable > most:
        return most, f"of {usable} processors that this process may use; more gain nothing unless asked for"
    return usable, "the processors that this process may use, by its affinity and its cgroups"


def _groups(controller: str, root: Path, membership: Path) -> Iterator[Path]:
    """The folders of the groups that this process is in, each with all around it; those that are not there are left to the reader.

    A container often sees its own group as the root, whatever its membership says, so the roots are always among them.
    """
    seen: set[Path] = set()
    for top, path in ((root, ""), (root / controller, ""), *_memberships(controller, root, membership)):
        parts = [part for part in path.split("/") if part not in ("", "..")]
        for depth in range(len(parts) + 1):
            folder = top.joinpath(*parts[:depth])
            if folder not in seen:
                seen.add(folder)
                yield folder


def _memberships(controller: str, root: Path, membership: Path) -> list[tuple[Path, str]]:
    """Where each hierarchy is mounted, and this process's path below: lines `number:controllers:path`, none being version 2."""
    try:
        lines = membership.read_text().splitlines()
    except OSError:
        return []
    found: list[tuple[Path, str]] = []
    for line in lines:
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if not controllers:
            found += [(root, path), (root / "unified", path)]
        elif controller in controllers.split(","):
            found += [(root / controller, path), (root / controllers, path)]
    return found


def _quota(folder: Path) -> int | None:
    """Whole processors' worth of time that a group gets, rounded down; None: no limit."""
    try:
        quota, period = (folder / "cpu.max").read_text().split()
    except (OSError, ValueError):
        quota, period = str(_read_int(folder / "cpu.cfs_quota_us")), str(_read_int(folder / "cpu.cfs_period_us"))
    if not quota.isdecimal() or not period.isdecimal() or int(period) == 0:
        return None
    return int(quota) // int(period)


def _meminfo_available(meminfo: Path) -> int:
    found = _read_field(meminfo, "MemAvailable:")
    return 1024 * found if found else os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _read_field(path: Path, name: str) -> int:
    """The number behind a name at a line's beginning; 0 where there is none."""
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return 0
    for line in lines:
        words = line.split()
        if len(words) > 1 and words[0] == name and words[1].isdecimal():
            return int(words[1])
    return 0


def _read_int(path: Path) -> int | None:
    try:
        text = path.read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdecimal() else None
