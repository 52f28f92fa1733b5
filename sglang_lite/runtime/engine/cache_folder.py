"""Where everything that is kept between starts lies: the user's cache folder, or a private temporary one in its place."""

from __future__ import annotations

import atexit
import logging
import os
import shutil
import tempfile
from functools import cache
from pathlib import Path

from sglang_lite import env

logger = logging.getLogger(__name__)

_COPIED = "numba-"
"""Begin of the names of folders that are linked whole: whoever uses one copies it."""


def cache_folder() -> Path:
    """The folder of all caches; it can be written.

    Where the user's own (`env.cache_dir`) cannot be, as with a home or an image that is read-only, it is a private
    temporary folder in which all that the user's own holds is found too; it goes with the process, and a warning says so.
    """
    try:
        wanted = env.cache_dir()
    except RuntimeError:  # a user without a home
        wanted = None
    return _usable(wanted)


@cache
def _usable(wanted: Path | None) -> Path:
    reason = "this user has no home" if wanted is None else _obstacle(wanted)
    if wanted is not None and reason is None:
        return wanted
    own = Path(tempfile.mkdtemp(prefix="sglang-lite-"))
    atexit.register(_remove, own, os.getpid())
    if wanted is not None:
        _link(wanted, own)
    logger.warning(
        "the cache folder %s cannot be written (%s); what is prepared now is kept in %s until the process ends: "
        "set SGLANG_LITE_CACHE to a folder that can be written, or fill it beforehand with 'sglang-lite warmup'",
        wanted or "",
        reason,
        own,
    )
    return own


def _obstacle(folder: Path) -> str | None:
    """Why nothing can be written into `folder`, which is made if need be; None if it can."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return None
    except OSError as error:
        return error.strerror or str(error)


def _link(source: Path, target: Path) -> None:
    """Make what lies in `source` and its folders seen in `target`; there it can be replaced."""
    try:
        for entry in source.iterdir():
            if entry.is_dir() and not entry.name.startswith(_COPIED):
                (target / entry.name).mkdir()
                _link(entry, target / entry.name)
            else:
                (target / entry.name).symlink_to(entry.absolute())
    except OSError as error:
        logger.debug("%s: not all of it can be read (%s)", source, error)


def _remove(folder: Path, pid: int) -> None:
    if os.getpid() == pid:  # not a fork of the process that made it
        shutil.rmtree(folder, ignore_errors=True)
