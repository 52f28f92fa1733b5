"""Who sees what: the mode by address, the keys."""

from __future__ import annotations

import pytest

from sglang_lite.errors import RequestError
from sglang_lite.runtime.server.config import ServerConfig
from sglang_lite.runtime.server.viewer_access import is_loopback, viewer_mode


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("127.8.8.8", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("192.168.1.5", False),
        ("localhost.evil.example", False),
        ("", False),
    ],
)
def test_which_addresses_only_this_machine_reaches(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected


@pytest.mark.parametrize(
    ("host", "viewer", "mode"),
    [
        ("127.0.0.1", None, "full"),
        ("0.0.0.0", None, "off"),
        ("0.0.0.0", "stats", "stats"),
        ("127.0.0.1", "off", "off"),
        ("0.0.0.0", "full", "full"),
    ],
)
def test_without_a_word_it_is_on_for_this_machine_only(host: str, viewer: str | None, mode: str) -> None:
    assert viewer_mode(ServerConfig(host=host, viewer=viewer)) == mode


def test_another_mode_is_refused() -> None:
    with pytest.raises(RequestError, match="viewer='on', expected off, stats or full"):
        ServerConfig(viewer="on")
