from __future__ import annotations

import argparse

import pytest

import sglang_lite as sgl
from sglang_lite.cli import chat


def talk(monkeypatch: pytest.MonkeyPatch, backend: sgl.ScriptedBackend, lines: list[str]) -> None:
    feed = iter(lines)

    def read(prompt: str = "") -> str:
        try:
            return next(feed)
        except StopIteration:
            raise EOFError from None

    monkeypatch.setattr("builtins.input", read)
    monkeypatch.setattr(chat, "backend_named", lambda _: backend)
    arguments = argparse.Namespace(system=None, max_tokens=16, temperature=0.0, backend=None)
    assert chat.main(arguments) == 0


def test_each_turn_sees_the_dialogue_so_far(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    backend = sgl.ScriptedBackend(["one", "two"])
    talk(monkeypatch, backend, ["Hi", "And?"])
    assert capsys.readouterr().out == "one\ntwo\n"
    assert backend.calls[1].prompt == "USER:Hi\nASSISTANT:one\nUSER:And?\nASSISTANT:"


def test_reset_forgets_the_dialogue(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = sgl.ScriptedBackend(["one", "two"])
    talk(monkeypatch, backend, ["Hi", "/reset", "Again"])
    assert backend.calls[1].prompt == "USER:Again\nASSISTANT:"
