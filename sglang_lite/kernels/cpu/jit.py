"""Where compiled kernels are kept, and whether they are there yet. Does not know the kernels; import it before them."""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path

try:
    import fcntl
except ImportError:  # not a Unix: folders are never dropped there
    fcntl = None

import llvmlite
import numba
from numba.core import config

from sglang_lite.kernels.cpu.features import target_features, target_name

_STAMP = "complete"
_PREFIX = "numba-"
_IN_USE = "in-use"
_KEPT = 4
"""Folders of the states of the sources that were used last; older ones are dropped."""

_LEAST_AGE_S = 24 * 3600
"""A folder used later than so long ago is kept in any case."""

_folder: Path | None = None
_lock: int | None = None
"""Descriptor of the lock that says that this process uses `_folder`; open until it ends."""


def prepare_cache(cache_dir: Path, extra_sources: Iterable[Path] = ()) -> Path:
    """Make Numba keep compiled functions under `cache_dir`, in a folder named by a hash of the kernels' sources.

    Numba notices a change in the file of a cached function only, not in what that function calls in another file;
    a folder per state of the sources cannot go stale. It takes effect for functions decorated after the call, so it
    comes before the first import of a kernel. The first call decides for the whole process; later ones return its folder.

    Args:
        cache_dir: parent folder, created if need be. Where it cannot be written, the system's temporary folder is used, with
            a copy of what it has.
            A link in the place of the folder, to one that is not ours to write, is replaced by a copy. Folders of
            former states of the sources are dropped but for the last few, and none that a process uses.
        extra_sources: source files of further cached functions, hashed with those of this folder.

    Returns:
        The folder in use.

    """
    global _folder, _lock
    if _folder is None:
        wanted = Path(cache_dir) / f"{_PREFIX}{_fingerprint(extra_sources)}"
        _own(wanted)
        _folder = _writable(wanted)
        if _folder is not None:
            _lock = _occupy(_folder)
            _drop_old(_folder)
        else:
            _folder = Path(tempfile.mkdtemp(prefix="sglang-lite-"))
            if wanted.is_dir():  # read-only, as in an image: Numba must write beside what it reads
                shutil.copytree(wanted, _folder, dirs_exist_ok=True)
        config.CACHE_DIR = str(_folder)  # pyright: ignore[reportAttributeAccessIssue]
    return _folder


def is_compiled(part: str) -> bool:
    """Whether the functions called `part` were compiled completely into the cache folder by this or an earlier process."""
    return _folder is not None and (_folder / f"{part}.{_STAMP}").exists()


def mark_compiled(part: str) -> None:
    """Record that all functions of `part` are in the cache folder now."""
    if _folder is not None:
        (_folder / f"{part}.{_STAMP}").touch()


def _fingerprint(extra_sources: Iterable[Path]) -> str:
    """Hash of the sources and of everything else that the machine code depends on."""
    digest = hashlib.sha256()
    target = [numba.__version__, llvmlite.__version__, platform.python_version(), platform.machine()]
    target += [target_name(), *sorted(target_features())]
    digest.update("\n".join(target).encode())
    for source in [*sorted(Path(__file__).parent.glob("*.py")), *sorted(extra_sources)]:
        content = source.read_bytes()
        digest.update(f"\n{source.name} {len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()[:16]


def _writable(folder: Path) -> Path | None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return folder
    except OSError:
        return None


def _own(folder: Path) -> None:
    """Turn a link to a folder into a copy of it: Numba keeps nothing where it cannot write, and reads nothing there."""
    try:
        if not folder.is_symlink():
            return
        source = folder.resolve(strict=True)
        folder.unlink()
        for place, _, names in os.walk(source):
            target = folder / Path(place).relative_to(source)
            target.mkdir()
            for name in names:
                shutil.copyfile(Path(place) / name, target / name)
    except OSError:
        shutil.rmtree(folder, ignore_errors=True)


def _occupy(folder: Path) -> int | None:
    """Say that this process uses `folder`, for as long as the descriptor is open; None where there are no locks."""
    if fcntl is None:
        return None
    while True:
        try:
            lock = os.open(folder / _IN_USE, os.O_RDWR | os.O_CREAT, 0o666)
            fcntl.flock(lock, fcntl.LOCK_SH)
            os.utime(folder / _IN_USE)
        except FileNotFoundError:  # dropped between the two
            folder.mkdir(parents=True, exist_ok=True)
            continue
        except OSError:
            return None
        return lock


def _drop_old(mine: Path) -> None:
    """Remove folders beside `mine` that nobody has used for long, but for the newest few."""
    if fcntl is None:
        return
    others = [(_last_use(folder), folder) for folder in mine.parent.glob(f"{_PREFIX}*") if folder != mine]
    now = _last_use(mine)
    for used, folder in sorted(others, reverse=True)[_KEPT - 1 :]:
        if now - used < _LEAST_AGE_S or folder.is_symlink():
            continue
        try:
            lock = os.open(folder / _IN_USE, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError:
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            doomed = folder.with_name(f"dropped-{folder.name}-{os.getpid()}")
            folder.rename(doomed)
            shutil.rmtree(doomed, ignore_errors=True)
        except OSError:  # in use, or somebody else drops it
            pass
        finally:
            os.close(lock)


def _last_use(folder: Path) -> float:
    for path in (folder / _IN_USE, folder):
        try:
            return path.stat().st_mtime
        except OSError:
            continue
    return 0.0
