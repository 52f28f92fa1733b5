"""Requests of a load test: made up from a seed, or read from a file."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from sglang_lite.cli import load_data
from sglang_lite.errors import RequestError


@pytest.mark.parametrize("name", sorted(load_data.DATASETS))
def test_data_sets_are_the_same_for_the_same_seed(name: str) -> None:
    assert load_data.load(name, 20, 8, 1) == load_data.load(name, 20, 8, 1)
    assert load_data.load(name, 20, 8, 1) != load_data.load(name, 20, 8, 2)
    assert len(load_data.load(name, 20, 8, 1)) == 20


def test_groups_share_their_beginning() -> None:
    bodies = load_data.shared_prefix(16, 4, random.Random(0))
    assert len({body["prompt"].split("\n")[0] for body in bodies}) == 2


def test_a_file_of_bodies_and_what_is_wrong_with_one(tmp_path: Path) -> None:
    data = tmp_path / "data.jsonl"
    data.write_text('"a text"\n{"messages": [], "model": "x", "max_tokens": 3}\n', encoding="utf-8")
    assert load_data.load(str(data), 3, 8, 0) == [
        {"max_tokens": 8, "prompt": "a text"},
        {"max_tokens": 3, "messages": []},
        {"max_tokens": 8, "prompt": "a text"},
    ]
    for text, why in (("{", "line 1"), ("7", "expected a text"), ("", "it is empty")):
        data.write_text(text, encoding="utf-8")
        with pytest.raises(RequestError, match=why):
            load_data.load(str(data), 3, 8, 0)
    with pytest.raises(RequestError, match="expected one of"):
        load_data.load(str(tmp_path / "absent"), 3, 8, 0)
