from __future__ import annotations

from typing import Any

import pytest

from sglang_lite.cli.main import main
from sglang_lite.runtime.engine import warm


def test_the_command_warms_for_the_settings(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(warm, "warm_machine", lambda path, settings, say: asked.append((path, settings)))
    monkeypatch.setenv("SGLANG_LITE_CACHE", "/somewhere")
    assert main(["warmup", "--model-path", "m.gguf", "--num-threads", "1"]) == 0
    assert asked == [("m.gguf", {"num_threads": 1})]
    assert "/somewhere" in capsys.readouterr().err
