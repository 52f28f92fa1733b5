"""Token counts over the gens and selects of a stretch of time, for whoever wants to report them."""

from __future__ import annotations

import threading
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any

from sglang_lite.records.usage import UsageTotals

_lock = threading.Lock()
_open: list[UsageTotals] = []


@contextmanager
def count_usage() -> Generator[UsageTotals]:
    """Count every gen and select of the process that ends inside the `with` block."""
    totals = UsageTotals()
    with _lock:
        _open.append(totals)
    try:
        yield totals
    finally:
        with _lock:
            # By identity: two counters with equal sums are equal to `list.remove`.
            _open[:] = [other for other in _open if other is not totals]


def record(meta: Mapping[str, Any]) -> None:
    """One gen or select is done."""
    with _lock:
        for totals in _open:
            totals.add(meta)
