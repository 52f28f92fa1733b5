from __future__ import annotations

from collections.abc import Callable

import pytest

from sglang_lite.runtime.scheduler.messages import AddReq
from tests.support.scheduler_harness import Harness, greedy


def test_places_are_named() -> None:
    harness = Harness()
    harness.step(AddReq("r", (2, 3), greedy()), AddReq("late", (2,), greedy(), waits_for_grammar=True))
    assert [(place, req.rid) for place, req in harness.scheduler.places()] == [
        ("completed", "r"),
        ("waiting for grammar", "late"),
    ]


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda s: s._live.running.append(s._live.completed[0]), "in two places|more than one owner"),
        (lambda s: s._live.completed.clear(), "rows held|not the unfinished ones"),
        (lambda s: setattr(s._live.completed[0], "num_pending", 1), "tokens pending"),
        (lambda s: setattr(s._live.completed[0], "fill_len", 9), "among the running ones"),
        (lambda s: setattr(s._queue, "_num_ready", 3), "queue counts 3"),
    ],
)
def test_damage_is_found(damage: Callable[[object], None], words: str) -> None:
    harness = Harness()
    harness.step(AddReq("r", (2, 3), greedy()))
    harness.scheduler.check_invariants()
    damage(harness.scheduler)
    with pytest.raises(AssertionError, match=words):
        harness.scheduler.check_invariants()
