from __future__ import annotations

from pathlib import Path

import pytest

from sglang_lite.cli.target import (
    check_arguments,
    find_function,
    has_module_level_code,
    load_module,
    split_target,
)
from sglang_lite.errors import RequestError

ONE = """
import sglang_lite as sgl

@sgl.function
def ask(s, question, n=1):
    s += question
"""


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ('"""Doc."""\nimport os\nX = 1\ndef f(): pass\nclass C: pass\n', False),
        ("STATE = make()\n", False),
        ("print(1)\n", True),
        ('if __name__ == "__main__":\n    pass\n', True),
        ("for x in []:\n    pass\n", True),
        ("state = f.run(question='x')\n", True),
        ("states = f.run_batch([])\n", True),
    ],
)
def test_code_at_module_level_is_more_than_definitions(source: str, expected: bool) -> None:
    assert has_module_level_code(source) is expected


def test_a_target_is_a_file_and_perhaps_a_name(tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_text(ONE)
    assert split_target(str(path)) == (path, None)
    assert split_target(f"{path}:ask") == (path, "ask")
    with pytest.raises(RequestError, match=r"no file '.*b\.py'"):
        split_target(str(tmp_path / "b.py"))


def test_the_only_function_is_found_and_several_must_be_named(tmp_path: Path) -> None:
    path = tmp_path / "one_function.py"
    path.write_text(ONE)
    assert find_function(load_module(path), None, path).__name__ == "ask"
    with pytest.raises(RequestError, match=r"no such @function, the file has \['ask'\]"):
        find_function(load_module(path), "tell", path)
    path = tmp_path / "two_functions.py"
    path.write_text(ONE + ONE.replace("ask", "tell"))
    with pytest.raises(RequestError, match=r"2 @functions \['ask', 'tell'\]; name one"):
        find_function(load_module(path), None, path)


def test_arguments_are_checked_before_anything_is_loaded(tmp_path: Path) -> None:
    path = tmp_path / "checked.py"
    path.write_text(ONE)
    function = find_function(load_module(path), None, path)
    check_arguments(function, {"question": "x"})
    check_arguments(function.bind(question="x"), {})
    with pytest.raises(RequestError, match=r"missing \['question'\], unknown \['q'\]"):
        check_arguments(function, {"q": "x"})
