"""Options are checked where they are made."""

from __future__ import annotations

from typing import Any

import pytest

from sglang_lite.errors import RequestError
from sglang_lite.lang import RunOptions


@pytest.mark.parametrize(
    "bad", [{"on_error": "ignore"}, {"seed": -1}, {"timeout": 0}, {"timeout": -1.0}, {"timeout": float("nan")}]
)
def test_a_wrong_option_is_named(bad: dict[str, Any]) -> None:
    with pytest.raises(RequestError, match=f"checking RunOptions: {next(iter(bad))}="):
        RunOptions(**bad)


def test_defaults_raise_errors_and_set_no_limits() -> None:
    assert RunOptions() == RunOptions(on_error="raise", seed=None, timeout=None)
