"""Options are checked where they are made."""

from __future__ import annotations

from typing import Any

import pytest

from sglang_lite.errors import CancelledError, RequestError
from sglang_lite.lang import ProgramState, RunOptions, ScriptedBackend, function, gen


@pytest.mark.parametrize(
    "bad", [{"on_error": "ignore"}, {"seed": -1}, {"timeout": 0}, {"timeout": -1.0}, {"timeout": float("nan")}]
)
def test_a_wrong_option_is_named(bad: dict[str, Any]) -> None:
    with pytest.raises(RequestError, match=f"checking RunOptions: {next(iter(bad))}="):
        RunOptions(**bad)


def test_defaults_raise_errors_and_set_no_limits() -> None:
    assert RunOptions() == RunOptions(on_error="raise", seed=None, timeout=None)


def test_a_run_of_too_many_tokens_is_cancelled() -> None:
    @function
    def f(s: ProgramState) -> None:
        for _ in range(10):
            s += gen("x")
            s["x"]

    backend = ScriptedBackend(lambda call: " word")
    options = RunOptions(max_total_tokens=12)
    with pytest.raises(CancelledError, match="more than max_total_tokens=12"):
        f.run(backend=backend, options=options)
    assert len(backend.calls) < 10
    assert f.run(backend=backend, options=RunOptions(max_total_tokens=1000)).error() is None
    with pytest.raises(RequestError, match="max_total_tokens=0"):
        RunOptions(max_total_tokens=0)
