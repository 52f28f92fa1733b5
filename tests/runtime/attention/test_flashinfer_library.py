from __future__ import annotations

import importlib
from types import ModuleType

import pytest

from sglang_lite.errors import UnsupportedError
from sglang_lite.runtime.attention.flashinfer_library import load_flashinfer
from tests.support.fake_flashinfer import Fake


def test_the_installed_module_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = Fake(monkeypatch)
    assert load_flashinfer("setting=1", "setting=2") is fake.module


def test_a_version_without_what_is_used_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = Fake(monkeypatch)
    del fake.module.MultiLevelCascadeAttentionWrapper
    with pytest.raises(
        UnsupportedError, match=r"setting=1: .*has no MultiLevelCascadeAttentionWrapper; 0\.6\.1.*setting=2"
    ):
        load_flashinfer("setting=1", "setting=2")


def test_a_package_that_does_not_load_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(name: str) -> ModuleType:
        raise OSError("libcudart.so.12: cannot open shared object file")

    monkeypatch.setattr(importlib, "import_module", fail)
    with pytest.raises(UnsupportedError, match=r"does not load \(libcudart"):
        load_flashinfer("setting=1", "setting=2")
