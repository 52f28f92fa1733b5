"""The names that are stable: complete, sorted, importable, and none by accident."""

from __future__ import annotations

import importlib
import subprocess
import sys
from types import ModuleType

import pytest

import sglang_lite

STABLE = ["sglang_lite", "sglang_lite.lang", "sglang_lite.request_tree", "sglang_lite.grammar"]

# The names of SGLang's language that a program imports; a program written for it runs unchanged.
OF_THE_LANGUAGE = {
    "Anthropic", "Engine", "LiteLLM", "OpenAI", "Runtime", "RuntimeEndpoint", "VertexAI", "assistant", "assistant_begin", "assistant_end", "flush_cache", "function", "gen", "gen_int", "gen_string",
    "get_server_info", "global_config", "greedy_token_selection", "image", "select", "separate_reasoning", "set_default_backend", "system",
    "system_begin", "system_end", "token_length_normalized", "unconditional_likelihood_normalized", "user", "user_begin",
    "user_end", "video", "__version__",
}  # fmt: skip


def isort_key(name: str) -> tuple[int, str]:
    """Constants, then classes, then the rest: the order that ruff keeps `__all__` in."""
    return (0 if name.isupper() else 1 if name[:1].isupper() else 2, name)


@pytest.mark.parametrize("name", STABLE)
def test_all_is_sorted_and_every_name_is_there(name: str) -> None:
    module = importlib.import_module(name)
    assert module.__all__ == sorted(set(module.__all__), key=isort_key)
    assert [member for member in module.__all__ if not hasattr(module, member)] == []


@pytest.mark.parametrize("name", STABLE)
def test_no_public_name_is_left_out_of_all(name: str) -> None:
    """What a module defines or a package re-exports without an underscore is listed; modules and imports for typing are not names."""
    module = importlib.import_module(name)
    is_package = module.__spec__ is not None and module.__spec__.submodule_search_locations is not None
    public = {
        key
        for key, value in vars(module).items()
        if not key.startswith("_")
        and not isinstance(value, ModuleType)
        and getattr(value, "__module__", "").startswith("sglang_lite" if is_package else name)
    }
    not_for_programs = {"register_backend", "Backend"} if name == "sglang_lite" else set()
    assert public - set(module.__all__) - not_for_programs == set()


def test_the_names_of_the_language_are_there() -> None:
    assert set(sglang_lite.__all__) >= OF_THE_LANGUAGE


def test_an_unknown_name_is_an_attribute_error_that_names_it() -> None:
    with pytest.raises(AttributeError, match="Egnine"):
        sglang_lite.Egnine  # noqa: B018


def test_only_engine_and_runtime_load_the_runtime() -> None:
    code = (
        "import sys, sglang_lite\n"
        "[getattr(sglang_lite, n) for n in sglang_lite.__all__ if n not in ('Engine', 'Runtime')]\n"
        "assert not [m for m in sys.modules if m.startswith('sglang_lite.runtime')]\n"
        "assert sglang_lite.Engine.__module__.startswith('sglang_lite.runtime.engine')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_dir_lists_the_lazy_names_too() -> None:
    assert set(sglang_lite.__all__) <= set(dir(sglang_lite))
