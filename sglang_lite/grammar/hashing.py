"""Frozen values that compute their hash once, and have room for what was found out about them: trees would be walked again and again."""

from __future__ import annotations

from typing import TypeVar

Value = TypeVar("Value")


class Hashed:
    """Room for the hash and for `memo`, which is no part of the value; a base of slotted dataclasses that `hashed_once` decorates."""

    __slots__ = ("_hash", "memo")
    _hash: int
    memo: object


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
