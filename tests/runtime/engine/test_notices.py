from __future__ import annotations

import pytest

from sglang_lite.runtime.engine.notices import progress, tell, told


def test_lines_go_to_the_screen_or_to_whoever_shows_them(capsys: pytest.CaptureFixture[str]) -> None:
    """Without anybody, stages are silent: an engine in a program says only what takes long."""
    seen: list[str] = []
    tell("compiling")
    progress("a stage")
    with told(seen.append):
        tell("compiling again")
        progress("another stage")
    tell("at last")
    assert capsys.readouterr().err == "sglang_lite: compiling\nsglang_lite: at last\n"
    assert seen == ["compiling again", "another stage"]
