"""How long a server that has gone is tried for, by a clock of the test's."""

from __future__ import annotations

import pytest

from sglang_lite.errors import ExecutionError
from sglang_lite.lang.backends import retries
from sglang_lite.lang.backends.http_client import Answer, RefusedError, UnreachableError
from sglang_lite.lang.backends.retries import Patience, Retries


def test_patience_ends_and_an_answer_of_any_kind_renews_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock of the test's: pauses double to their limit, 503 gets longer, a full server is waited for without end."""
    clock = [0.0]

    class Loop:
        def time(self) -> float:
            return clock[0]

    monkeypatch.setattr(retries.asyncio, "get_running_loop", Loop)
    tries = Retries(Patience(total_s=10.0, first_s=1.0, most_s=4.0, busy_times=2, max_vain=3))
    gone = UnreachableError("gone")
    pauses: list[float] = []
    for _ in range(3):
        tries.broke(gone)
        pauses.append(tries.pause_s)
        clock[0] += tries.pause_s
    assert pauses == [1.0, 2.0, 4.0]
    with pytest.raises(ExecutionError, match="tried 4 times in 7 s"):
        tries.broke(gone)
    tries.heard(is_new=False)
    busy = RefusedError(Answer(503, {"retry-after": "3"}, b"loading"))
    tries.broke(busy)
    assert tries.pause_s == 3.0
    clock[0] += 15
    tries.broke(busy)
    clock[0] += 500
    tries.broke(RefusedError(Answer(503, {}, b'{"code": "too_many_programs"}')))
    with pytest.raises(ExecutionError):
        tries.broke(busy)
    tries.heard(is_new=True)
    for _ in range(3):
        tries.opened()
    with pytest.raises(ExecutionError, match="it may be what ends it"):
        tries.broke(gone)
    tries.heard(is_new=True)
    forgot = RefusedError(Answer(404, {}, b""))
    tries.broke(forgot)
    assert tries.pause_s == 0.0
