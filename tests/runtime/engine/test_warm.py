"""What is done once before the first request."""

from __future__ import annotations

import pytest

from sglang_lite.runtime.engine.warm import warm_machine, warmed
from tests.support.talking_engine import talking_engine


def test_a_warmed_engine_has_an_empty_cache() -> None:
    with talking_engine() as (engine, runner):
        assert warmed(engine) is engine
        assert runner.num_steps > 0
        info = engine.get_server_info()
        assert info["kv"]["free_pages"] == info["kv"]["total_pages"]


@pytest.mark.model
@pytest.mark.native
def test_a_machine_is_warmed_for_a_model() -> None:
    lines: list[str] = []
    warm_machine(None, {"num_threads": 1, "max_total_tokens": 512}, lines.append)
    assert any(line.startswith("weights") for line in lines)
    assert lines[-1] == "preparing grammars ..." or "grammar" in lines[-1]
