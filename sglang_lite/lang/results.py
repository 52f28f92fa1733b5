"""The results of a batch in a file, one JSON line a row, found again by what the row depends on; it runs nothing."""

from __future__ import annotations

import hashlib
import inspect
import json
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self, cast

from sglang_lite.errors import RequestError
from sglang_lite.lang.typed.plain import as_plain


@dataclass(slots=True)
class BatchReport:
    """What became of the rows of a batch that was written to `path`.

    `done` were written now, `failed` of them with an error; `skipped` were there already; `interrupted`: Ctrl-C ended
    the batch before its rows.
    """

    path: Path
    done: int = 0
    failed: int = 0
    skipped: int = 0
    interrupted: bool = False


class RowKeys:
    """Gives every row a key: equal for equal program source, arguments, model and sampling, and the how-manieth such row.

    What the body reads from elsewhere (globals, files, other functions) is not part of it.
    """

    def __init__(self, function: Callable[..., Any], model: str, sampling: object, seed: int | None) -> None:
        self._base = f"{_source(function)}\0{model}\0{sampling!r}\0{seed!r}"
        self._seen: Counter[str] = Counter()

    def next(self, number: int, arguments: Mapping[str, Any]) -> str:
        """The key of the next row.

        Raises:
            RequestError: an argument is no JSON value, so that it could not be found again.
        """
        try:
            shown = json.dumps(arguments, sort_keys=True, ensure_ascii=False, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise RequestError(
                f"writing row {number} to a file: its arguments are no JSON values: {error}; pass texts, numbers, lists "
                "and dicts"
            ) from error
        digest = hashlib.blake2b(f"{self._base}\0{shown}".encode(), digest_size=12).hexdigest()
        self._seen[digest] += 1
        return f"{digest}-{self._seen[digest]}"


def _source(function: Callable[..., Any]) -> str:
    try:
        return inspect.getsource(function)
    except (OSError, TypeError):  # typed at a prompt, or no plain function
        return repr(function)


class ResultsFile:
    """A file to which finished rows are appended; a line is written whole, so that a killed process loses no row.

    With `resume` rows of an earlier batch stay, but for a torn last line and those that failed: they run again.

    Raises:
        RequestError: the file exists and `resume` is False, or it holds something else.
    """

    def __init__(self, path: str | os.PathLike[str], *, resume: bool) -> None:
        self.path = Path(path)
        self.done: set[str] = set()
        if self.path.exists():
            if not resume:
                raise RequestError(
                    f"writing results to {str(self.path)!r}: the file exists; go on with resume=True, or name another"
                )
            self._keep_done()
        self._file = self.path.open("a", encoding="utf-8")

    def _keep_done(self) -> None:
        """Leave out what has to run again; the old file stays until the new one is complete."""
        kept = self.path.with_name(f"{self.path.name}.resuming")
        with self.path.open("rb") as old, kept.open("wb") as new:
            for line in old:
                entry = self._entry(line)
                if entry is not None and entry.get("error") is None:
                    self.done.add(entry["key"])
                    new.write(line)
        kept.replace(self.path)

    def _entry(self, line: bytes) -> dict[str, Any] | None:
        """The entry of a line; None for a torn one."""
        if not line.endswith(b"\n"):
            return None
        try:
            entry: Any = json.loads(line)
        except ValueError:
            entry = None
        if not isinstance(entry, dict) or "key" not in entry:
            raise RequestError(
                f"resuming {str(self.path)!r}: the line {line[:80]!r} is no result of a batch; name another file"
            )
        return cast("dict[str, Any]", entry)

    def write(self, entry: Mapping[str, Any]) -> None:
        """Append one row; values of types are written as their members, other things that JSON does not know as `repr`."""
        self._file.write(json.dumps(entry, ensure_ascii=False, default=as_plain) + "\n")
        self._file.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()


def read_results(path: str | os.PathLike[str]) -> Iterator[dict[str, Any]]:
    """The entries of a results file in the order of its lines; a torn last line is left out."""
    with Path(path).open("rb") as file:
        for line in file:
            if line.endswith(b"\n"):
                yield json.loads(line)
