"""Where compiled kernels are kept, and whether they are there yet. Does not know the kernels; import it before them."""

from __future__ import annotations

import hashlib
import platform
import tempfile
from collections.abc import Iterable
from pathlib import Path

import llvmlite
import numba
from numba.core import config

from sglang_lite.kernels.cpu.features import target_features, target_name

_STAMP = "complete"
_folder: Path | None = None


def prepare_cache(cache_dir: Path, extra_sources: Iterable[Path] = ()) -> Path:
    """Make Numba keep compiled functions under `cache_dir`, in a folder named by a hash of the kernels' sources.

    Numba notices a change in the file of a cached function only, not in what that function calls in another file;
    a folder per state of the sources cannot go stale. It takes effect for functions decorated after the call, so it
    comes before the first import of a kernel. The first call decides for the whole process; later ones return its folder.

    Args:
        cache_dir: parent folder, created if need be. Where it cannot be written, the system's temporary folder is used.
        extra_sources: source files of further cached functions, hashed with those of this folder.

    Returns:
        The folder in use.

    """
    global _folder
    if _folder is None:
        name = f"numba-{_fingerprint(extra_sources)}"
        _folder = _writable(Path(cache_dir) / name) or Path(tempfile.mkdtemp(prefix="sglang-lite-"))
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
