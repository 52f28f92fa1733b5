"""A record says what every op was, what became of it and what it cost, and survives its JSON form."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sglang_lite.errors import ExecutionError, ProgramError, RequestError
from sglang_lite.lang import ProgramState, RunOptions, ScriptedBackend, function, gen
from sglang_lite.records.record import RunRecord
from tests.records.support import REPLIES, inner, named_ops, outline, recorded


def test_every_op_is_there_with_its_branch_value_and_end() -> None:
    data = recorded().to_json()
    assert data["program"] == "outline"
    assert data["seed"] == 7
    assert data["error"] is None
    assert [entry["op"]["id"] for entry in data["ops"]] == list(range(17))
    assert {entry["state"] for entry in data["ops"]} == {"done"}
    ops = named_ops(data)
    assert ops["topic"]["result"]["value"] == REPLIES["topic"]
    assert ops["pick"]["result"]["value"] == "b"
    assert data["branches"] == [{"id": 0, "place": []}, {"id": 1, "place": [0]}, {"id": 2, "place": [1]}]
    assert all(0 <= entry["sent_s"] <= entry["ended_s"] <= data["seconds"] for entry in data["ops"])
    orders = [entry["order"] for entry in data["ops"]]
    assert sorted(orders) == list(range(17))


def test_costs_stand_with_each_call_and_add_up() -> None:
    data = recorded().to_json()
    usages = [entry["usage"] for entry in data["ops"] if "usage" in entry]
    assert len(usages) == data["usage"]["requests"] == 5
    for name in ("prompt_tokens", "cached_tokens", "computed_tokens", "sampled_tokens", "forced_tokens"):
        assert sum(usage[name] for usage in usages) == data["usage"][name]
    assert named_ops(data)["last"]["usage"]["sampled_tokens"] == 2


def test_json_gives_the_same_record_back(tmp_path: Path) -> None:
    record = recorded()
    record.save(tmp_path / "record.json")
    again = RunRecord.load(tmp_path / "record.json")
    assert again.to_json() == record.to_json() == json.loads(json.dumps(record.to_json()))
    assert again.usage == record.usage


def test_a_failed_run_says_what_failed_and_keeps_the_error() -> None:
    backend = ScriptedBackend(REPLIES | {"topic": ExecutionError("no tea")})
    options = RunOptions(record=True, on_error="state")
    record = RunRecord.from_json(outline.run(backend=backend, options=options).record().to_json())
    assert isinstance(record.error, ExecutionError)
    assert str(record.error) == "no tea"
    failed = [op.op.id for op in record.ops if op.state == "failed"]
    assert failed == list(range(7, 17))
    assert record.usage.requests == 0


def test_runs_inside_the_body_are_records_inside_the_record() -> None:
    @function
    def outer(s: ProgramState) -> None:
        s += inner.run()["deep"] + gen("x")

    record = outer.run(backend=ScriptedBackend(["down", "up"]), options=RunOptions(record=True)).record()
    assert [one.program for one in record.with_nested()] == ["outer", "inner"]
    assert record.nested[0].usage.requests == 1
    assert RunRecord.from_json(record.to_json()).to_json() == record.to_json()


def test_every_row_of_a_batch_has_its_own() -> None:
    rows = [{"question": "A?"}, {"question": "B?"}]
    states = outline.run_batch(rows, backend=ScriptedBackend(REPLIES | {"idea": "i"}), options=RunOptions(record=True))
    texts = [[e["op"].get("text") for e in state.record().to_json()["ops"]] for state in states]
    assert [("A?" in text, "B?" in text) for text in texts] == [(True, False), (False, True)]


def test_an_open_op_has_no_end_yet() -> None:
    @function
    def f(s: ProgramState) -> RunRecord:
        s += "a" + gen("x")
        return s.record()

    record = f.run(backend=ScriptedBackend(), options=RunOptions(record=True)).ret_value
    assert [op.state for op in record.ops] == ["open", "open"]
    assert "ended_s" not in record.to_json()["ops"][1]
    assert RunRecord.from_json(record.to_json()).to_json() == record.to_json()


def test_without_the_option_there_is_none_and_the_error_says_what_to_do() -> None:
    with pytest.raises(ProgramError, match=r"RunOptions\(record=True\)"):
        outline.run(backend=ScriptedBackend(REPLIES)).record()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "x"}, "format 'x'"),
        ({"version": 2}, "version 2, expected 1"),
        ({"ops": [{"op": {"op": "text", "id": 0}}]}, "no \\['branch', 'text'\\]"),
        ({"ops": [3]}, "an op of a record: got 3"),
        ({"ops": [{"op": {"op": "end", "id": 0, "branch": 0}, "sent_s": 0, "state": "lost"}]}, "is 'lost'"),
        ({"seconds": None}, "docs/records.md"),
    ],
)
def test_what_is_no_record_is_refused_by_name(change: dict[str, Any], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        RunRecord.from_json(recorded().to_json() | change)


def test_a_file_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("[", encoding="utf-8")
    for name in ("x.json", "missing.json"):
        with pytest.raises(RequestError, match=f"reading the record .*{name}"):
            RunRecord.load(tmp_path / name)
