"""The tree in a terminal."""

from __future__ import annotations

from sglang_lite.errors import ExecutionError
from sglang_lite.lang import RunOptions, ScriptedBackend
from tests.records.support import REPLIES, outline, recorded


def test_one_line_an_op_with_children_below_their_fork() -> None:
    lines = recorded().to_text().splitlines()
    assert lines[0].startswith("outline  on ScriptedBackend, seed 7, started ")
    assert lines[1].startswith("5 requests in ")
    starts = [line[:34].rstrip() for line in lines[4:]]
    at = starts.index("8 fork into 2")
    assert starts[at + 1 : at + 6] == [
        "  branch 1 (child 0):",
        "    9 text",
        "    10 gen idea",
        "  branch 2 (child 1):",
        "    11 text",
    ]
    assert lines[4 + at + 3].split()[-1] == "'one'"


def test_a_failure_shows_its_error_where_it_happened() -> None:
    backend = ScriptedBackend(REPLIES | {"last": ExecutionError("worn out")})
    text = outline.run(backend=backend, options=RunOptions(record=True, on_error="state")).record().to_text()
    assert "error: ExecutionError: worn out" in text
    assert any(line.startswith("16 gen last") and "failed: ExecutionError" in line for line in text.splitlines())
