"""The engine that the public reports share."""

from __future__ import annotations

from tests.support.engine_fixture import engine

__all__ = ["engine"]
