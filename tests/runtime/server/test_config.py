from __future__ import annotations

from pathlib import Path

import pytest

from sglang_lite.errors import RequestError
from sglang_lite.runtime.server.config import ServerConfig


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("port", 70000),
        ("port", -1),
        ("max_batch", 0),
        ("heartbeat_s", 0),
        ("drain_deadline_s", -1.0),
        ("max_body_bytes", 0),
    ],
)
def test_wrong_settings_are_refused_by_name(name: str, value: float) -> None:
    with pytest.raises(RequestError, match=f"{name}={value}"):
        ServerConfig(**{name: value})  # type: ignore[arg-type]


def test_keys_come_from_files_and_variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "keys"
    file.write_text("# for the team\nalpha\n\n  beta \n", encoding="utf-8")
    monkeypatch.setenv("MY_KEY", "gamma")
    config = ServerConfig(api_key_file=str(file), api_key_env=("MY_KEY",))
    assert config.read_keys() == {b"alpha", b"beta", b"gamma"}
    file.write_text("delta", encoding="utf-8")
    assert config.read_keys() == {b"delta", b"gamma"}


def test_a_source_without_a_key_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that was meant to be locked never starts open."""
    monkeypatch.delenv("MY_KEY", raising=False)
    empty = tmp_path / "keys"
    empty.write_text("# nothing\n", encoding="utf-8")
    with pytest.raises(RequestError, match="has none"):
        ServerConfig(api_key_file=str(empty)).read_keys()
    with pytest.raises(RequestError, match="FileNotFoundError"):
        ServerConfig(api_key_file=str(tmp_path / "absent")).read_keys()
    with pytest.raises(RequestError, match="MY_KEY is not set"):
        ServerConfig(api_key_env=("MY_KEY",)).read_keys()
    with pytest.raises(RequestError, match="one is empty"):
        ServerConfig(api_keys=(" ",)).read_keys()


def test_keys_are_in_no_repr() -> None:
    assert "secret" not in repr(ServerConfig(api_keys=("secret",)))
