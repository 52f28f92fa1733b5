"""Frozen values that compute their hash once: trees that are keys again and again would be walked for each look-up."""

from __future__ import annotations

from typing import TypeVar

Value = TypeVar("Value")


class Hashed:
    """Room for the hash; a base of slotted dataclasses that `hashed_once` decorates."""

    __slots__ = ("_hash",)
    _hash: int


def hashed_once(kind: type[Value]) -> type[Value]:
    """The frozen dataclass `kind`, a subclass of `Hashed`, with a hash that is computed when it is first asked for."""
    compute = kind.__hash__

    def hash_of(self: Value) -> int:
        try:
            return self._hash  # pyright: ignore[reportAttributeAccessIssue] - of `Hashed`
        except AttributeError:
            found = compute(self)
            object.__setattr__(self, "_hash", found)
            return found

    kind.__hash__ = hash_of  # pyright: ignore[reportAttributeAccessIssue] - the declared one is a slot of the type
    return kind
