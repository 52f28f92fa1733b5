from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

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


def make_folders(parent: Path, ages_in_days: list[int]) -> list[Path]:
    folders = [parent / f"numba-{number:016x}" for number in range(len(ages_in_days))]
    for folder, age in zip(folders, ages_in_days, strict=True):
        folder.mkdir()
        (folder / "kernel.nbc").write_bytes(b"code")
        (folder / jit._IN_USE).touch()
        then = time.time() - 86400 * age - 60
        os.utime(folder / jit._IN_USE, (then, then))
    return folders


def test_folders_of_former_sources_are_dropped_but_for_the_newest_few(tmp_path: Path) -> None:
    """Three stay beside the one in use; one that was used today stays whatever its rank."""
    mine, *others = make_folders(tmp_path, [0, 9, 2, 3, 1, 8, 0, 0])
    jit._drop_old(mine)
    left = [age for age, folder in zip([9, 2, 3, 1, 8, 0, 0], others, strict=True) if folder.exists()]
    assert sorted(left) == [0, 0, 1]
    assert mine.exists()
    assert not list(tmp_path.glob("dropped-*"))


@pytest.mark.skipif(jit.fcntl is None, reason="there are no locks on this system")
def test_a_folder_in_use_is_never_dropped(tmp_path: Path) -> None:
    folders = make_folders(tmp_path, [0, 1, 2, 3, 4, 5, 6])
    lock = jit._occupy(folders[5])
    assert lock is not None
    then = time.time() - 86400 * 30
    os.utime(folders[5] / jit._IN_USE, (then, then))
    jit._drop_old(folders[0])
    assert [folder.exists() for folder in folders] == [True, True, True, True, False, True, False]
    os.close(lock)
    jit._drop_old(folders[0])
    assert not folders[5].exists()


def test_a_linked_folder_becomes_a_copy_that_can_be_written(tmp_path: Path) -> None:
    source, link = tmp_path / "baked" / "numba-1", tmp_path / "own" / "numba-1"
    (source / "inner").mkdir(parents=True)
    (source / "inner" / "kernel.nbc").write_bytes(b"code")
    (source / "inner").chmod(0o555)
    link.parent.mkdir()
    link.symlink_to(source)
    jit._own(link)
    assert not link.is_symlink()
    (link / "inner" / "more.nbc").write_bytes(b"code")
    assert (link / "inner" / "kernel.nbc").read_bytes() == b"code"
    assert len(list((source / "inner").iterdir())) == 1
    (source / "inner").chmod(0o755)


def test_a_cache_that_cannot_be_written_is_copied(tmp_path: Path) -> None:
    """As in an image with a read-only root: what was compiled ahead is there, and nothing is written beside it."""
    code = (
        "import sys; from pathlib import Path; from sglang_lite.kernels.cpu import jit\n"
        "root = Path(sys.argv[1]); first = jit.prepare_cache(root); jit.mark_compiled('x')\n"
        "jit._folder = None; jit._writable = lambda folder: None\n"
        "copy = jit.prepare_cache(root)\n"
        "assert copy != first and jit.is_compiled('x'), copy\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
