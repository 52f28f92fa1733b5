"""What the variables mean, and that a wrong value is refused with the remedy."""

from __future__ import annotations

from pathlib import Path

import pytest

from sglang_lite import env
from sglang_lite.errors import RequestError


def test_an_empty_backend_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SGLANG_LITE_BACKEND", "")
    assert env.backend() is None
    monkeypatch.setenv("SGLANG_LITE_BACKEND", "local:model.gguf")
    assert env.backend() == "local:model.gguf"


def test_the_cache_is_the_named_folder_else_below_the_users_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SGLANG_LITE_CACHE", "/somewhere/own")
    assert env.cache_dir() == Path("/somewhere/own")
    monkeypatch.delenv("SGLANG_LITE_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/caches")
    assert env.cache_dir() == Path("/caches/sglang_lite")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/home/somebody")
    assert env.cache_dir() == Path("/home/somebody/.cache/sglang_lite")


def test_threads_are_a_whole_number_of_at_least_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SGLANG_LITE_NUM_THREADS", raising=False)
    assert env.num_threads() is None
    monkeypatch.setenv("SGLANG_LITE_NUM_THREADS", "3")
    assert env.num_threads() == 3


@pytest.mark.parametrize("wrong", ["0", "-1", "two", "1.5"])
def test_a_wrong_number_of_threads_is_refused_by_name(monkeypatch: pytest.MonkeyPatch, wrong: str) -> None:
    monkeypatch.setenv("SGLANG_LITE_NUM_THREADS", wrong)
    with pytest.raises(RequestError, match=f"SGLANG_LITE_NUM_THREADS: got '{wrong}'"):
        env.num_threads()


def test_compat_is_strict_with_or_without_a_template(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SGLANG_LITE_COMPAT", raising=False)
    assert env.compat() is None
    for text in ("strict", "strict:chatml"):
        monkeypatch.setenv("SGLANG_LITE_COMPAT", text)
        assert env.compat() == text
    monkeypatch.setenv("SGLANG_LITE_COMPAT", "on")
    with pytest.raises(RequestError, match="expected 'strict' or 'strict:TEMPLATE'"):
        env.compat()
