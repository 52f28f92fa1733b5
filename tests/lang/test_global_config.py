"""Settings of the process: those that do something do it, the others can be set."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sglang_lite.lang import ProgramState, ScriptedBackend, function, gen, global_config, set_default_backend
from sglang_lite.lang.backends.registry import resolve_backend


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    before = dict(vars(global_config))
    yield
    vars(global_config).update(before)
    set_default_backend(None)


@function
def f(s: ProgramState) -> None:
    s += "Say: " + gen("x")


def test_the_default_backend_is_that_of_runs() -> None:
    backend = ScriptedBackend()
    global_config.default_backend = backend
    assert resolve_backend() is global_config.default_backend is backend


def test_verbosity_2_shows_the_text_of_programs(capsys: pytest.CaptureFixture[str]) -> None:
    f.run(backend=ScriptedBackend())
    assert capsys.readouterr().err == ""
    global_config.verbosity = 2
    f.run(backend=ScriptedBackend())
    assert capsys.readouterr().err == "Say: <x>"


def test_special_tokens_in_the_output_can_be_asked_for() -> None:
    backend = ScriptedBackend()
    f.run(backend=backend)
    global_config.skip_special_tokens_in_output = False
    f.run(backend=backend)
    assert [call.params.skip_special_tokens for call in backend.calls if call.params] == [True, False]


def test_settings_without_effect_are_there() -> None:
    assert global_config.spaces_between_special_tokens_in_out
    assert global_config.enable_precache_with_tracing
    assert global_config.enable_parallel_encoding
