"""The folder of all caches: the user's own, or what stands in for it where that cannot be written."""

from __future__ import annotations

import logging
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from sglang_lite.runtime.engine.cache_folder import _usable, cache_folder


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user can reach, which those of pytest are not."""
    folder = Path(tempfile.mkdtemp(prefix="sglang-lite-test-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def test_a_folder_that_can_be_written_is_made_and_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SGLANG_LITE_CACHE", str(tmp_path / "new" / "cache"))
    assert cache_folder() == tmp_path / "new" / "cache"
    assert cache_folder().is_dir()


def test_one_that_cannot_is_replaced_by_a_private_one_with_one_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("SGLANG_LITE_CACHE", str(tmp_path / "file" / "cache"))
    with caplog.at_level(logging.WARNING):
        own = cache_folder()
        assert cache_folder() == own
    assert stat.S_IMODE(own.stat().st_mode) == 0o700
    assert len(caplog.records) == 1
    assert "SGLANG_LITE_CACHE" in caplog.text
    assert str(tmp_path / "file" / "cache") in caplog.text


def test_a_user_without_a_home_gets_a_private_one(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def no_home() -> Path:
        raise RuntimeError("no home")

    monkeypatch.delenv("SGLANG_LITE_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", no_home)
    _usable.cache_clear()
    assert cache_folder().is_dir()
    assert "has no home" in caplog.text
    _usable.cache_clear()


# Root may write anywhere, so the child gives that up once all is imported: the interpreter may lie where nobody can read.
_SCRIPT = """
import ctypes.util, logging, os, sys
import numba, llvmlite.binding, numpy, torch
from sglang_lite.runtime.engine.cache_folder import cache_folder
from sglang_lite.kernels.cpu import jit
logging.basicConfig(format="%(levelname)s %(message)s")
numba.njit(lambda a: a.sum())(numpy.zeros(3, dtype=numpy.float32))
if len(sys.argv) > 1 and os.geteuid() == 0:
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
folder = cache_folder()
print("folder", folder)
jit.prepare_cache(folder)
from sglang_lite.kernels.cpu.warmup import warm_up
warm_up(lambda line: print("notice", line))
print("kept", (folder / "packed" / "model.bin").exists() and (folder / "packed" / "model.bin").read_text())
"""


def start(home: Path, *arguments: str) -> dict[str, str]:
    """Run the script with this home; returns the last words of each kind of line, the folder's among them."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("SGLANG", "XDG"))}
    environment |= {"HOME": str(home), "PYTHONPATH": os.getcwd(), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT, *arguments],
        env=environment,
        cwd="/",
        capture_output=True,
        text=True,
        check=True,
    )
    return dict(line.split(" ", 1) for line in (done.stdout + done.stderr).splitlines() if " " in line)


def test_an_unprivileged_user_with_a_read_only_home_starts_from_what_an_image_baked(open_folder: Path) -> None:
    """Nothing is compiled again, nothing is written into the home, nothing is left behind."""
    baked = start(open_folder)
    assert "compiling" in baked["notice"]
    cache = open_folder / ".cache" / "sglang_lite"
    assert baked["folder"] == str(cache)
    (cache / "packed").mkdir()
    (cache / "packed" / "model.bin").write_text("weights")
    for place in (cache / "packed", cache, open_folder):
        place.chmod(0o555)
    before = sorted(path.name for path in open_folder.rglob("*"))
    later = start(open_folder, "unprivileged")
    assert "notice" not in later
    assert later["kept"] == "weights"
    assert "cannot be written" in later["WARNING"]
    assert not Path(later["folder"]).exists()
    assert sorted(path.name for path in open_folder.rglob("*")) == before
    for place in (open_folder, cache, cache / "packed"):
        place.chmod(0o755)
