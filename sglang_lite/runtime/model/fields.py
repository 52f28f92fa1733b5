"""Typed look-ups in the key/values of a model file; what is missing is collected so that one error names it all."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sglang_lite.errors import ModelLoadError


class Fields:
    """Key/values under one prefix.

    Attributes:
        path: the file, named in errors.
    """

    def __init__(self, values: Mapping[str, Any], path: Path, kind: str, prefix: str = "") -> None:
        """Wrap key/values.

        Args:
            values: by full key; None counts as absent.
            path: the file they come from.
            kind: what one is called in errors (`metadata`).
            prefix: put before every name that is looked up.
        """
        self.path = path
        self._values = values
        self._kind = kind
        self._prefix = prefix
        self._missing: list[str] = []

    def raise_missing(self) -> None:
        """Raise one ModelLoadError if any look-up so far found nothing and had no default."""
        if self._missing:
            raise ModelLoadError(f"{self.path}: {self._kind} lacks {', '.join(repr(key) for key in self._missing)}")

    def wrong(self, name: str, expected: str) -> ModelLoadError:
        """The error for a value that is there and no good."""
        key = self._prefix + name
        return ModelLoadError(
            f"{self.path}: {self._kind} {key!r} is {_short(self._values.get(key))}, expected {expected}"
        )

    def get(self, name: str, default: Any = None) -> Any:
        """The value as it stands."""
        value = self._values.get(self._prefix + name)
        return default if value is None else value

    def states(self, name: str) -> bool:
        """Whether the key is there, null included."""
        return self._prefix + name in self._values

    def count(self, name: str, default: int | None = None) -> int:
        """A whole number of at least 1."""
        value = self._required(name, default)
        if value is None:
            return 1
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise self.wrong(name, "a whole number of at least 1")
        return value

    def number(self, name: str, default: float | None = None) -> float:
        """A positive number."""
        value = self._required(name, default)
        if value is None:
            return 1.0
        if not isinstance(value, int | float) or isinstance(value, bool) or not value > 0:
            raise self.wrong(name, "a positive number")
        return float(value)

    def flag(self, name: str, default: bool = False) -> bool:
        """True or false."""
        value = self.get(name, default)
        if not isinstance(value, bool):
            raise self.wrong(name, "true or false")
        return value

    def optional_count(self, name: str) -> int | None:
        """`count`, or None where the value is absent."""
        return None if self.get(name) is None else self.count(name)

    def optional_number(self, name: str) -> float | None:
        """`number`, or None where the value is absent."""
        return None if self.get(name) is None else self.number(name)

    def _required(self, name: str, default: float | None) -> Any:
        value = self.get(name, default)
        if value is None:
            self._missing.append(self._prefix + name)
        return value


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
