"""The soak of `benchmarks.soak`, short: clients that do everything wrong, and one `kill -9` of the scheduler."""

from __future__ import annotations

import pytest

from benchmarks.soak import grown, leaks, soak
from benchmarks.soak_usage import Curve, slope

FREE = {"total_pages": 9, "free_pages": 9, "total_rows": 2, "free_rows": 2, "protected_pages": 0, "leases": 0}
USED = {"threads": 5, "files": 20, "sockets": 9, "bytes": 100 << 20}


@pytest.mark.model
def test_a_server_stands_a_short_soak() -> None:
    """Programs go on across the kill with the values of a quiet server; nothing is left at the end."""
    report = soak(6.0, kills=1, clients=4, say=lambda _: None)
    assert report["wrong"] == []
    assert report["counts"]["kills"] == report["restarts"] == 1


def test_every_kind_of_leak_is_told() -> None:
    assert leaks({"kv": FREE, "running": 0, "programs": 0}, USED, USED) == []
    info = {
        "kv": FREE | {"free_pages": 7, "free_rows": 1, "protected_pages": 2, "leases": 1},
        "running": 1,
        "programs": 3,
    }
    late = {"threads": 50, "files": 90, "sockets": 80, "bytes": 900 << 20}
    told = leaks(info, USED, late)
    for what in (
        "1 running",
        "3 programs",
        "2 pages",
        "1 rows",
        "2 locked",
        "1 leases",
        "50 threads",
        "90 files",
        "80 sockets",
        "bytes",
    ):
        assert any(what in line for line in told), what


def curve(sizes: list[int], step_s: float = 5.0) -> Curve:
    made = Curve(1)
    for number, size in enumerate(sizes):
        made.add(number * step_s, USED | {"bytes": size << 20})
    return made


def test_memory_that_fills_once_is_flat_and_memory_that_goes_on_growing_is_told() -> None:
    """A jump at the begin is a pool that fills; a rise behind it is a leak; of a short life nothing is said."""
    filling = curve([100, 200, 300, *[400] * 97])
    assert grown("server", filling) == []
    assert filling.report()["growth_mib"] == 0
    leaking = curve([100 + number for number in range(100)])
    assert "the memory of the server grew by 7" in grown("server", leaking)[0]
    assert grown("server", curve([100 + number for number in range(100)], step_s=0.5)) == []


def test_a_slope_is_that_of_the_line_through_the_points() -> None:
    assert slope([(0.0, 10), (1.0, 12), (2.0, 14)]) == 2.0
    assert slope([(0.0, 10)]) == slope([]) == slope([(1.0, 3), (1.0, 5)]) == 0.0
