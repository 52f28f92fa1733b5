from __future__ import annotations

import json
from pathlib import Path

import pytest

from sglang_lite.cli.main import main
from tests.support.tiny_gguf import TinyLlama, gguf_tensors, make_model, write_gguf


def test_the_plan_is_printed_as_text_and_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tiny = TinyLlama()
    path = write_gguf(tmp_path / "tiny.gguf", tiny, gguf_tensors(make_model(tiny), tiny))
    config = tmp_path / "server.yaml"
    config.write_text(f"model-path: {path}\nmax-total-tokens: 1024\nport: 1\n")
    assert main(["plan", "--config", str(config)]) == 0
    assert "2 requests of 512 tokens" in capsys.readouterr().out
    assert main(["plan", "--model-path", str(path), "--max-total-tokens", "64", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["longest"] == 64
    assert main(["plan", "--model-path", str(path), "--context-length", "1000"]) == 1
    assert "at most 512" in capsys.readouterr().err
