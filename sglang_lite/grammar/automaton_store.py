"""Compiled automata on disk, one file each; knows no front end and no vocabulary but by the key.

A file is a line that names the format, the SHA-256 of the rest, and the rest: a line of JSON that lists arrays and notes, then the arrays.
What is damaged, foreign or of another version is as good as not there. Nothing in a file is executed.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from sglang_lite.grammar.json_schema import SchemaNote
from sglang_lite.grammar.nfa import ByteNfa

logger = logging.getLogger(__name__)

_MAGIC = b"sglang_lite grammar automaton 1\n"
_MAX_FILES = 2000
_CLEANING = "grammar-04"  # names below it, one in sixty-four: when one of them is stored, the oldest files go
_ARRAYS = tuple(name for name in ByteNfa._fields if name != "start")
_BYTE_ARRAYS = {"pops", "inner_exits", "inner_covers", "byte_class"}


class StoredAutomaton(NamedTuple):
    """What a front end made of a source."""

    nfa: ByteNfa
    notes: tuple[SchemaNote, ...]


class AutomatonStore:
    """The automata of one vocabulary in `folder`, which is made when the first is stored.

    Args:
        folder: may be shared by processes; files are written beside their place and renamed.
        vocabulary: digest of the vocabulary.
    """

    def __init__(self, folder: str | os.PathLike[str], vocabulary: str) -> None:
        self._folder = Path(folder)
        self._vocabulary = vocabulary

    def load(self, key: str) -> StoredAutomaton | None:
        """What was stored under `key` by this version of the package; None if there is nothing that can be used."""
        path = self._path(key)
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            logger.warning("the automaton in %s cannot be read (%s); it is compiled anew", path, error)
            return None
        try:
            return _decoded(content)
        except (ValueError, KeyError, TypeError) as error:
            logger.warning("the automaton in %s is damaged (%s); it is compiled anew", path, error)
            return None

    def store(self, key: str, automaton: StoredAutomaton) -> None:
        """Keep `automaton` under `key`; where that cannot be done, say so in the log."""
        path = self._path(key)
        draft = path.with_name(f"{path.name}.{os.getpid()}.part")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            draft.write_bytes(_encoded(automaton))
            draft.replace(path)
            if path.name < _CLEANING:
                self._drop_oldest()
        except OSError as error:
            logger.warning("an automaton cannot be stored in %s (%s); the next process compiles it again", path, error)

    def _path(self, key: str) -> Path:
        name = hashlib.sha256("\0".join((_version(), self._vocabulary, key)).encode(errors="surrogatepass")).hexdigest()
        return self._folder / f"grammar-{name[:40]}.bin"

    def _drop_oldest(self) -> None:
        files = list(self._folder.glob("grammar-*.bin"))
        if len(files) > _MAX_FILES:
            for path in sorted(files, key=lambda path: path.stat().st_mtime)[: len(files) - _MAX_FILES]:
                path.unlink(missing_ok=True)


@cache
def _version() -> str:
    """A hash of the package's own sources: another state of them may make another automaton of a text."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _encoded(automaton: StoredAutomaton) -> bytes:
    nfa = automaton.nfa
    arrays = [np.ascontiguousarray(getattr(nfa, name)) for name in _ARRAYS]
    head = {
        "lengths": [len(array) for array in arrays],
        "start": nfa.start,
        "notes": [list(note) for note in map(_note_fields, automaton.notes)],
    }
    rest = b"".join([json.dumps(head).encode(), b"\n", *(array.tobytes() for array in arrays)])
    return _MAGIC + hashlib.sha256(rest).digest() + rest


def _note_fields(note: SchemaNote) -> tuple[str, str, str, str]:
    return note.pointer, note.keyword, note.effect, note.detail


def _decoded(content: bytes) -> StoredAutomaton:
    if not content.startswith(_MAGIC):
        raise ValueError("it is of another format")
    begin = len(_MAGIC) + 32
    if hashlib.sha256(content[begin:]).digest() != content[len(_MAGIC) : begin]:
        raise ValueError("its checksum is wrong")
    end = content.index(b"\n", begin)
    head: dict[str, Any] = json.loads(content[begin:end])
    at = end + 1
    found: dict[str, np.ndarray] = {}
    for name, length in zip(_ARRAYS, head["lengths"], strict=True):
        kind = np.dtype(np.uint8 if name in _BYTE_ARRAYS else np.int32)
        # A copy: compiled loops take arrays over bytes, which are read-only, for another type.
        found[name] = np.frombuffer(content, kind, length, at).copy()
        at += length * kind.itemsize
    notes = tuple(SchemaNote(*fields) for fields in head["notes"])
    return StoredAutomaton(ByteNfa(**found, start=int(head["start"])), notes)
