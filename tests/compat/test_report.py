"""A script is read for the names of SGLang that we lack."""

from __future__ import annotations

from pathlib import Path

import pytest

from sglang_lite.compat import report
from sglang_lite.errors import RequestError


def lacks(tmp_path: Path, code: str) -> list[tuple[int, str]]:
    script = tmp_path / "script.py"
    script.write_text(code, encoding="utf-8")
    return [(lack.line, lack.name) for lack in report(script)]


def test_imports_and_attributes_are_found_once_each_in_order(tmp_path: Path) -> None:
    code = """import sglang as sgl
import sglang.srt.managers.io_struct
from sglang import gen, ServerArgs, lang
from sglang.srt.managers import something
from sglang.utils import read_jsonl, launch_server_cmd
import other

sgl.gen, sgl.lang.api, sgl.nothing, lang.ir, lang.compiler, other.sgl
sgl.ServerArgs, sgl.ServerArgs
"""
    assert lacks(tmp_path, code) == [
        (2, "sglang.srt.managers.io_struct"),
        (3, "sglang.ServerArgs"),
        (4, "sglang.srt.managers"),
        (5, "sglang.utils.launch_server_cmd"),
        (8, "sglang.lang.compiler"),
        (8, "sglang.nothing"),
        (9, "sglang.ServerArgs"),
    ]


def test_a_script_that_needs_nothing_else_has_an_empty_report(tmp_path: Path) -> None:
    assert lacks(tmp_path, "from sglang import *\nimport sglang\nsglang.function\n") == []


def test_what_is_no_python_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="reading"):
        lacks(tmp_path, "def (")
