"""Sections in processes of their own: a device error, which makes every later call fail, or a hang ends with its process.

As long as nothing goes wrong there is one process for all. The parent imports no torch. Knows no section.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

GRACE_S = 20.0
"""How long after a section's time limit its process is ended: a call into the device that never comes back notices no limit."""

START_S = 60.0
"""How long a process may take to start."""

_LOOK_S = 0.1


def write_line(path: Path, line: Mapping[str, Any]) -> None:
    """Append what a process has to say; the parent reads whole lines."""
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


def run_apart(
    limits: Mapping[str, float],
    command: Callable[[Sequence[str], Path], Sequence[str]],
    failed: Callable[[str, str], dict[str, Any]],
    note: Callable[[dict[str, Any]], None],
) -> int:
    """Run all sections in order; a process that ends early or hangs is followed by one for the sections behind.

    Args:
        limits: the sections by name, with seconds that each may take.
        command: what starts a process that does these sections and writes a line of each to a file. A line of a section has
            its name as `name`; others may come before it.
        failed: the line of a section, by its name and why it wrote none.
        note: gets every line as it comes.

    Returns:
        0, or the exit code of a process that ended before it wrote a line: it cannot start.

    """
    left = list(limits)
    has_line = False
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "lines"
        while left:
            path.write_text("", encoding="utf-8")
            count = len(left)
            why = _follow(list(command(left, path)), path, left, limits, note)
            has_line = has_line or path.stat().st_size > 0
            if not has_line and isinstance(why, int) and why:
                return why
            if left and (why != 0 or len(left) == count):  # else it stopped behind a section that damaged the device
                note(failed(left.pop(0), f"its process ended with exit code {why}" if isinstance(why, int) else why))
    return 0


def _follow(
    argv: list[str], path: Path, left: list[str], limits: Mapping[str, float], note: Callable[[dict[str, Any]], None]
) -> int | str:
    """Take what a process writes and the names of its sections off `left`; returns its exit code, or why it was ended."""
    process = subprocess.Popen(argv)
    try:
        since, allowed, seen = time.monotonic(), START_S, 0
        while True:
            code = process.poll()  # before the file is read: what it wrote last is there then
            lines = path.read_text(encoding="utf-8").split("\n")[:-1]
            for line in lines[seen:]:
                found = json.loads(line)
                note(found)
                if found.get("name") in left:
                    left.remove(found["name"])
                since, allowed = time.monotonic(), (limits[left[0]] if left else 0.0)
            seen = len(lines)
            if code is not None:
                return code
            if time.monotonic() - since > allowed + GRACE_S:
                return f"it did not end within {allowed:.0f} s, nor in the {GRACE_S:.0f} s after"
            time.sleep(_LOOK_S)
    finally:
        process.kill()
        process.wait()
