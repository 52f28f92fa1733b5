from __future__ import annotations

import subprocess
import sys

import sglang_lite.grammar as grammar


def test_every_public_name_is_there_and_sorted() -> None:
    assert grammar.__all__ == sorted(grammar.__all__, key=lambda name: (name.islower(), name))
    assert all(getattr(grammar, name) is not None for name in grammar.__all__)


def test_the_parser_and_the_errors_load_neither_numpy_nor_numba() -> None:
    """So that a program can be checked before a runtime is there."""
    code = "import sys, sglang_lite.grammar.regex; sglang_lite.grammar.GrammarError; print([m for m in ('numpy', 'numba', 'torch') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
