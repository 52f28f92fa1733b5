from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sglang_lite.cli.main import main
from sglang_lite.runtime.engine import warm


def test_the_command_warms_for_the_settings(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(warm, "warm_machine", lambda path, settings, say: asked.append((path, settings)))
    monkeypatch.setenv("SGLANG_LITE_CACHE", str(tmp_path))
    assert main(["warmup", "--model-path", "m.gguf", "--num-threads", "1"]) == 0
    assert asked == [("m.gguf", {"num_threads": 1})]
    assert str(tmp_path) in capsys.readouterr().err


def test_a_folder_that_keeps_nothing_is_an_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setattr(warm, "warm_machine", lambda *_: pytest.fail("warmed for nothing"))
    monkeypatch.setenv("SGLANG_LITE_CACHE", str(tmp_path / "file" / "cache"))
    assert main(["warmup"]) == 1
    assert "SGLANG_LITE_CACHE" in capsys.readouterr().err
