"""`import sglang`: every listed name resolves, what is lacking says so on use, the real one is never hidden silently."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from sglang_lite import compat
from sglang_lite.compat.aliases import LACKING, MODULES
from sglang_lite.errors import RequestError, UnsupportedError


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    yield
    compat.uninstall()


@pytest.mark.parametrize("module", MODULES)
def test_every_name_of_the_table_is_there(module: str) -> None:
    compat.install()
    found = importlib.import_module(module)
    for name in MODULES[module]:
        assert getattr(found, name) is not None
    assert set(dir(found)) == {*MODULES[module], *LACKING.get(module, {})}


@pytest.mark.parametrize("module", LACKING)
def test_a_lacking_name_imports_and_its_use_is_one_clear_error(module: str) -> None:
    compat.install()
    for name in LACKING[module]:
        found = getattr(importlib.import_module(module), name)
        assert name in repr(found)
        with pytest.raises(UnsupportedError, match=name):
            found("anything")
        with pytest.raises(UnsupportedError, match=name):
            found.attribute  # noqa: B018
        with pytest.raises(AttributeError):
            found.__wrapped__  # noqa: B018


def test_an_unknown_name_and_an_unknown_module_are_import_errors() -> None:
    compat.install()
    with pytest.raises(ImportError, match="never_heard_of"):
        exec("from sglang import never_heard_of")
    with pytest.raises(ModuleNotFoundError, match=r"sglang\.srt\.managers"):
        importlib.import_module("sglang.srt.managers")


def test_names_are_the_same_objects_as_ours() -> None:
    import sglang_lite

    compat.install()
    sgl = importlib.import_module("sglang")
    assert sgl.gen is sglang_lite.gen
    assert sgl.global_config is importlib.import_module("sglang.global_config").global_config
    assert sgl.__version__ == sglang_lite.__version__
    names: dict[str, object] = {}
    exec("from sglang import *", names)
    assert names["function"] is sglang_lite.function


def test_uninstalling_gives_the_name_back() -> None:
    compat.install()
    compat.install()
    importlib.import_module("sglang.lang.ir")
    compat.uninstall()
    assert not [name for name in sys.modules if name.split(".")[0] == "sglang"]
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("sglang")


def test_an_installed_sglang_asks_for_a_choice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sglang.py").write_text("real = True\n", encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(RequestError, match="replace=True"):
        compat.install()
    compat.install(replace=True)
    assert importlib.import_module("sglang").gen is not None


def test_an_imported_sglang_is_not_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sglang", ModuleType("sglang"))
    with pytest.raises(RequestError, match="imported already"):
        compat.install(replace=True)
