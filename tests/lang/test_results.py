"""Results in a file: keys that find a row again, torn lines, failed rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sglang_lite.errors import RequestError
from sglang_lite.lang import read_results
from sglang_lite.lang.results import ResultsFile, RowKeys


def one(x: int) -> int:
    return x


def other(x: int) -> int:
    return x + 1


def key(function: Any = one, model: str = "m", sampling: Any = "s", seed: int | None = None, **arguments: Any) -> str:
    return RowKeys(function, model, sampling, seed).next(0, arguments)


def test_a_key_depends_on_all_that_a_row_depends_on() -> None:
    changed = [key(other, x=1), key(model="n", x=1), key(sampling="t", x=1), key(seed=1, x=1), key(x=2), key(y=1)]
    assert len({key(x=1), *changed}) == 7
    assert key(x=1, y=2) == key(y=2, x=1)
    assert key(eval("lambda x: x"), x=1)


def test_equal_rows_are_counted() -> None:
    keys = RowKeys(one, "m", None, None)
    assert len({keys.next(number, {"x": 1}) for number in range(3)}) == 3


@pytest.mark.parametrize("value", [object(), float("nan"), {1, 2}])
def test_an_argument_that_could_not_be_found_again_is_refused(value: Any) -> None:
    with pytest.raises(RequestError, match="no JSON values"):
        key(x=value)


def test_resuming_keeps_what_is_done_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    with ResultsFile(path, resume=False) as file:
        file.write({"key": "a", "error": None})
        file.write({"key": "b", "error": "ValueError: no"})
        file.write({"key": "c", "error": None, "ret_value": {1}})
    with path.open("a", encoding="utf-8") as torn:
        torn.write('{"key": "d", "err')
    assert [entry["key"] for entry in read_results(path)] == ["a", "b", "c"]
    with ResultsFile(path, resume=True) as file:
        assert file.done == {"a", "c"}
        file.write({"key": "d", "error": None})
    assert [json.loads(line)["key"] for line in path.read_text(encoding="utf-8").splitlines()] == ["a", "c", "d"]
    assert [name.name for name in tmp_path.iterdir()] == ["out.jsonl"]


def test_a_file_is_never_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    path.write_text("precious\n", encoding="utf-8")
    with pytest.raises(RequestError, match="resume=True"):
        ResultsFile(path, resume=False)
    with pytest.raises(RequestError, match="no result of a batch"):
        ResultsFile(path, resume=True)
    assert path.read_text(encoding="utf-8") == "precious\n"
