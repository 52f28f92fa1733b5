"""A stand-in for a name of SGLang that does not exist here: importing it works, using it is one clear error."""

from __future__ import annotations

from typing import Any, NoReturn

from sglang_lite.errors import UnsupportedError


class Missing:
    """Raises on every use."""

    def __init__(self, name: str, remedy: str) -> None:
        self._name = name
        self._remedy = remedy

    def _refuse(self) -> NoReturn:
        raise UnsupportedError(f"using {self._name}: it does not exist in sglang_lite: {self._remedy}")

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Refuse."""
        self._refuse()

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)  # Python and its tools ask for these without using the name
        self._refuse()

    def __repr__(self) -> str:
        return f"<{self._name}: not in sglang_lite>"
