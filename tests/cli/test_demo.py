from __future__ import annotations

import pytest

from sglang_lite.cli import demo
from sglang_lite.errors import RequestError


def test_the_demos_agents_are_found_and_have_a_main() -> None:
    for name in demo.AGENTS:
        assert callable(demo.load_agent(name).main)


def test_a_missing_example_says_where_it_was_looked_for() -> None:
    with pytest.raises(RequestError, match=r"no nothing\.py in .*agents"):
        demo.load_agent("nothing")


@pytest.mark.model
def test_the_demo_runs_on_the_real_model(capsys: pytest.CaptureFixture[str], engine: object) -> None:
    demo.run_demo(engine)  # pyright: ignore[reportArgumentType]
    shown = capsys.readouterr().out
    assert "== react: ReAct" in shown
    assert "== tree_of_thought: Tree of thought" in shown
