"""Values of types as plain data, for files: what a JSON writer does not know by itself."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable
from typing import Any


def as_plain(value: Any) -> Any:
    """One step towards plain data: a dataclass, a pydantic model, an enum, a set; of anything else the `repr`."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    dump: Callable[..., Any] | None = getattr(value, "model_dump", None)
    if dump is not None:
        return dump(mode="json")
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, set | frozenset):
        return list(value)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    return repr(value)
