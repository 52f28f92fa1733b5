from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from sglang_lite.kernels.cpu import jit
from tests.support.kernel_cache import KERNEL_CACHE

_SCRIPT = """
import sys
from pathlib import Path
from sglang_lite.kernels.cpu.jit import prepare_cache
print(prepare_cache(Path(sys.argv[1]), [Path(name) for name in sys.argv[2:]]))
from sglang_lite.kernels.cpu.warmup import warm_up
warm_up(lambda line: print("notice:", line))
"""


def start(cache: Path, *sources: Path) -> list[str]:
    """Prepare the cache and compile in a process of its own; returns what it printed."""
    command = [sys.executable, "-c", _SCRIPT, str(cache), *map(str, sources)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


def test_the_first_compile_is_announced_and_the_second_start_loads(tmp_path: Path) -> None:
    folder, notice = start(tmp_path)
    assert "compiling" in notice
    before = sorted(path.name for path in Path(folder).rglob("*.nbc"))
    assert before
    assert start(tmp_path) == [folder]
    assert sorted(path.name for path in Path(folder).rglob("*.nbc")) == before


def test_the_folder_depends_on_the_extra_sources(tmp_path: Path) -> None:
    source = tmp_path / "kernels.py"
    source.write_text("a = 1\n")
    first = jit._fingerprint([source])
    source.write_text("a = 2\n")
    assert len({first, jit._fingerprint([source]), jit._fingerprint([])}) == 3


def test_the_first_folder_holds_for_the_whole_process(tmp_path: Path) -> None:
    assert jit.prepare_cache(tmp_path) == KERNEL_CACHE
    assert not any(tmp_path.iterdir())


def test_a_folder_that_cannot_be_made_is_replaced(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    assert jit._writable(blocked / "cache") is None
