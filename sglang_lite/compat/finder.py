"""Makes `import sglang` find modules in memory whose names are ours."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

from sglang_lite.compat import models
from sglang_lite.compat.aliases import LACKING, MODULES
from sglang_lite.compat.missing import Missing
from sglang_lite.errors import RequestError


def resolve(module: str, name: str) -> Any:
    """What `name` of SGLang's `module` is here.

    Raises:
        AttributeError: there is no such name.
    """
    if (target := MODULES[module].get(name)) is not None:
        where, _, attribute = target.partition(":")
        return getattr(importlib.import_module(where), attribute)
    if (remedy := LACKING.get(module, {}).get(name)) is not None:
        return Missing(f"{module}.{name}", remedy)
    if f"{module}.{name}" in MODULES:  # SGLang's packages import their parts
        return importlib.import_module(f"{module}.{name}")
    raise AttributeError(f"module {module!r} has no attribute {name!r} in sglang_lite")


class _AliasModule(ModuleType):
    """A module of SGLang's name; its attributes are looked up when they are asked for."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name not in MODULES[self.__name__]:
            raise AttributeError(name)
        value = resolve(self.__name__, name)
        setattr(self, name, value)
        return value

    def __dir__(self) -> list[str]:
        return sorted({*MODULES[self.__name__], *LACKING.get(self.__name__, {})})


class _AliasLoader(Loader):
    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _AliasModule(spec.name, f"{spec.name}, as far as sglang_lite has it.")

    def exec_module(self, module: ModuleType) -> None:
        names = [name for name in MODULES[module.__name__] if not name.startswith("__")]
        module.__all__ = names  # type: ignore[attr-defined] # `from sglang import *`


class AliasFinder(MetaPathFinder):
    """Finds `sglang` and what is below it in the table of aliases, before anything on the path."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The spec of an alias module; None for what is not SGLang's.

        Raises:
            ModuleNotFoundError: a module of SGLang that has no alias.
        """
        if fullname != "sglang" and not fullname.startswith("sglang."):
            return None
        if fullname not in MODULES:
            raise ModuleNotFoundError(
                f"No module named {fullname!r}: sglang_lite stands in for sglang and lacks it; "
                f"it has {sorted(MODULES)}",
                name=fullname,
            )
        return ModuleSpec(fullname, _AliasLoader(), is_package=True)


def install(*, model_path: str | None = None, backend: object = None, replace: bool = False) -> None:
    """From here on `import sglang` gives sglang_lite.

    Args:
        model_path: loaded in place of every model that is no local path (the hub names that scripts carry).
        backend: used in place of every backend that a script makes, a server's or a hosted API's.
        replace: stand in for SGLang although it is installed.

    Raises:
        RequestError: SGLang itself is installed or imported, and `replace` does not say that this is wanted.
    """
    imported = sys.modules.get("sglang")
    is_real = imported is not None and not isinstance(imported, _AliasModule)
    if is_real:
        raise RequestError("installing sglang_lite as sglang: sglang is imported already; install before that import")
    if not replace and PathFinder.find_spec("sglang") is not None:
        raise RequestError(
            "installing sglang_lite as sglang: sglang itself is installed, so it is not clear which one is wanted; "
            "say replace=True (--replace) for sglang_lite, or run the script without this"
        )
    models.choose(model_path, backend)
    if not any(isinstance(finder, AliasFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, AliasFinder())


def uninstall() -> None:
    """Undo `install`; names that were imported already stay what they are."""
    sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, AliasFinder)]
    for name in [name for name, module in sys.modules.items() if isinstance(module, _AliasModule)]:
        del sys.modules[name]
    models.choose(None, None)
