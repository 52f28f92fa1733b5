"""One line that shows how far it is."""

from __future__ import annotations

import io

import pytest

from sglang_lite.lang import progress
from sglang_lite.lang.progress import ProgressBar


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def test_quick_updates_are_left_out_but_never_the_last(clock: list[float]) -> None:
    shown = io.StringIO()
    bar = ProgressBar(4, shown)
    for done, now in ((0, 0.0), (1, 0.01), (2, 0.2), (2, 0.29), (3, 0.295), (4, 0.298)):
        clock[0] = now
        bar.update(done)
    bar.close()
    assert [part.split("] ")[1] for part in shown.getvalue().split("\r")[1:]] == [
        "0/4 0.0 s",
        "2/4 0.2 s",
        "4/4 0.3 s\n",
    ]
    assert shown.getvalue().split("\r")[2].startswith("[" + "#" * 15 + "." * 15 + "]")


def test_a_bar_that_was_never_drawn_leaves_no_line() -> None:
    shown = io.StringIO()
    ProgressBar(0, shown).close()
    assert shown.getvalue() == ""
