"""The fake model under the name that the tests know."""

from __future__ import annotations

from sglang_lite.runtime.execution.fake_runner import FakeRunner, Oracle, chain, mix

__all__ = ["FakeRunner", "Oracle", "chain", "mix"]
