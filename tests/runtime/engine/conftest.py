"""The engine that the tests of this folder share."""

from __future__ import annotations

from tests.support.engine_fixture import engine

__all__ = ["engine"]
