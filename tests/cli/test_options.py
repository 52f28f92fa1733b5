from __future__ import annotations

import pytest

import sglang_lite as sgl
from sglang_lite.cli.options import backend_named, parse_assignment
from sglang_lite.errors import RequestError


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a=1", 1),
        ("a=1.5", 1.5),
        ("a=[1, 2]", [1, 2]),
        ("a=true", True),
        ("a=text", "text"),
        ("a=x=y", "x=y"),
        ("a=", ""),
    ],
)
def test_a_value_is_json_or_a_string(text: str, value: object) -> None:
    assert parse_assignment(text) == ("a", value)


@pytest.mark.parametrize("text", ["a", "=1", "a b=1"])
def test_what_is_no_assignment_is_refused(text: str) -> None:
    with pytest.raises(RequestError, match="expected name=value"):
        parse_assignment(text)


def test_a_backend_comes_from_the_argument_then_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(backend_named("scripted"), sgl.ScriptedBackend)
    monkeypatch.setenv("SGLANG_LITE_BACKEND", "scripted")
    assert backend_named(None) is backend_named("scripted")
    with pytest.raises(RequestError, match="unknown scheme 'nowhere'"):
        backend_named("nowhere:x")
