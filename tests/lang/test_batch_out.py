"""A batch to a file: any number of rows, few at a time; killed and resumed, nothing is lost and nothing twice."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sglang_lite.errors import RequestError
from sglang_lite.lang import BatchReport, ProgramState, RunOptions, ScriptedBackend, function, gen, read_results
from tests.lang.support import HandBackend


@function
def ask(s: ProgramState, i: int, word: str = "w") -> str:
    s += f"{word}{i}: " + gen("x") + gen("y")
    if s["x"] == "bad":
        raise LookupError("the body's own")
    return s["x"] + "!"


@function
async def ask_async(s: ProgramState, i: int) -> str:
    s += f"{i}" + gen("x")
    return await s.get("x")


def rows_of(path: Path) -> list[dict[str, Any]]:
    return list(read_results(path))


def test_rows_are_written_with_all_that_they_gave(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    backend = ScriptedBackend({"x": "X", "y": "Y"})
    report = ask.bind(word="v").run_batch([{"i": 0}, (1,)], backend=backend, out=out, ordered=True)
    assert report == BatchReport(out, done=2)
    first, second = rows_of(out)
    assert first | {"key": ""} == {
        "row": 0,
        "key": "",
        "arguments": {"i": 0, "word": "v"},
        "variables": {"x": "X", "y": "Y"},
        "ret_value": "X!",
        "error": None,
    }
    assert second["row"] == 1


def test_a_resumed_batch_runs_only_what_is_missing_or_failed(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    rows = [{"i": i} for i in range(6)]
    broken = ScriptedBackend(lambda call: ValueError("no") if "w3" in call.prompt else "ok")
    report = ask.run_batch(rows[:4], backend=broken, out=out)
    assert (report.done, report.failed, report.skipped) == (4, 1, 0)
    assert [entry["error"] for entry in rows_of(out) if entry["error"]] == ["ValueError: no"]
    whole = ScriptedBackend(lambda call: "ok")
    report = ask.run_batch(rows, backend=whole, out=out, resume=True)
    assert (report.done, report.failed, report.skipped) == (3, 0, 3)
    assert sorted(entry["arguments"]["i"] for entry in rows_of(out)) == list(range(6))
    assert ask.run_batch(rows, backend=whole, out=out, resume=True, temperature=0.5).done == 6


def test_a_failing_body_fails_its_row_alone(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    backend = ScriptedBackend(lambda call: "bad" if "w1" in call.prompt else "ok")
    report = ask.run_batch([{"i": i} for i in range(3)], backend=backend, out=out, ordered=True)
    assert (report.done, report.failed) == (3, 1)
    assert [entry["error"] for entry in rows_of(out)] == [None, "LookupError: the body's own", None]


def test_rows_may_be_endless_and_few_are_held(tmp_path: Path) -> None:
    """The iterator is read no further than the window allows."""
    taken = 0
    finished = threading.Semaphore(0)
    most_ahead = 0

    def rows() -> Iterator[dict[str, int]]:
        nonlocal taken, most_ahead
        for i in range(500):
            taken += 1
            most_ahead = max(most_ahead, taken - ends)
            yield {"i": i}

    ends = 0

    def reply(call: Any) -> str:
        nonlocal ends
        ends += call.name == "x"
        finished.release()
        return "ok"

    report = ask.run_batch(
        rows(), backend=ScriptedBackend(reply), out=tmp_path / "out.jsonl", max_in_flight=8, ordered=True
    )
    assert report.done == 500
    assert most_ahead <= 9
    assert [entry["row"] for entry in rows_of(tmp_path / "out.jsonl")] == list(range(500))


def test_async_bodies_are_written_as_well(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    report = ask_async.run_batch([{"i": i} for i in range(50)], backend=ScriptedBackend(), out=out)
    assert report.done == 50
    assert {entry["ret_value"] for entry in rows_of(out)} == {"<x>"}


def test_a_wrong_row_ends_the_batch_and_keeps_what_was_done(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    with pytest.raises(RequestError, match="reading row 1"):
        ask.run_batch([{"i": 0}, {"j": 1}], backend=ScriptedBackend(), out=out, max_in_flight=1)
    assert [entry["row"] for entry in rows_of(out)] == [0]
    with pytest.raises(RequestError, match="max_in_flight=0"):
        ask.run_batch([], backend=ScriptedBackend(), out=out, resume=True, max_in_flight=0)


def test_seeds_are_those_of_the_rows(tmp_path: Path) -> None:
    """A resumed row runs with the seed that it had in the whole batch."""
    rows = [{"i": i} for i in range(3)]
    seeds: list[list[int | None]] = []

    class Seeds(ScriptedBackend):
        def open_program(self, sink: Any, *, seed: int | None = None) -> Any:
            seeds[-1].append(seed)
            return super().open_program(sink, seed=seed)

    for given in (rows[:1], rows):
        seeds.append([])
        ask.run_batch(given, backend=Seeds(), out=tmp_path / "a.jsonl", resume=True, options=RunOptions(seed=7))
    seeds.append([])
    ask.run_batch(rows, backend=Seeds(), out=tmp_path / "b.jsonl", options=RunOptions(seed=7))
    assert seeds[0] + seeds[1] == seeds[2]


def test_ctrl_c_returns_what_is_done(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    backend = HandBackend()

    def rows() -> Iterator[dict[str, int]]:
        yield {"i": 0}
        program = backend.wait_program(0)
        program.wait_gen()
        raise KeyboardInterrupt

    report = ask.run_batch(rows(), backend=backend, out=out)
    assert (report.interrupted, report.done) == (True, 0)
    assert backend.programs[0].cancels == [None]


PROGRAM = """
import sys
import sglang_lite as sgl

@sgl.function
def ask(s, i):
    s += f"{i}" + sgl.gen("x")
    s["x"]

started = 0
def reply(call):
    global started
    started += 1
    if started == 30 and "stop" in sys.argv:
        print("half", flush=True)
        sys.stdin.read()
    return "ok"

rows = ({"i": i} for i in range(100))
report = ask.run_batch(rows, backend=sgl.ScriptedBackend(reply), out=sys.argv[1], resume=True, max_in_flight=4)
print(report.done, report.skipped)
"""


def test_a_killed_batch_goes_on_where_it_was(tmp_path: Path) -> None:
    script, out = tmp_path / "batch.py", tmp_path / "out.jsonl"
    script.write_text(PROGRAM, encoding="utf-8")
    command = [sys.executable, str(script), str(out)]
    with subprocess.Popen([*command, "stop"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "half\n"
        process.send_signal(signal.SIGKILL)
        process.wait()
    written = len(rows_of(out))
    assert 0 < written < 100
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == [str(100 - written), str(written)]
    assert Counter(entry["arguments"]["i"] for entry in rows_of(out)) == Counter(range(100))
