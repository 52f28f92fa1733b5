"""Which of flag, variable, file and default wins, and what is said of wrong ones."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pytest

from sglang_lite.cli import serve
from sglang_lite.cli.serve_settings import from_file, from_variables, resolve, settled
from sglang_lite.errors import RequestError, UnsupportedError


def args(*argv: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    serve.add_arguments(parser)
    return parser.parse_args(argv)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "server.yaml"
    path.write_text(
        "port: 1\nmax-running-requests: 2\nmodel: m.gguf\ncors_origins: [http://a, http://b]\nrestart: true\n"
    )
    return path


def test_a_flag_goes_before_a_variable_before_the_file_before_the_default(file: Path) -> None:
    everywhere = {"SGLANG_LITE_PORT": "3", "SGLANG_LITE_MAX_RUNNING_REQUESTS": "4", "SGLANG_LITE_HEARTBEAT_S": "5.5"}
    found = resolve(args("--port", "6"), everywhere, str(file))
    assert found.server.port == 6
    assert found.engine == {"max_running_requests": 4, "model_path": "m.gguf"}
    assert found.server.heartbeat_s == 5.5
    assert found.server.cors_origins == ("http://a", "http://b")
    assert found.server.restart
    assert not resolve(args("--no-restart"), {}, str(file)).server.restart
    lines = found.lines()
    origins = {line.split()[0]: line.rpartition("# ")[2] for line in lines[1:]}
    assert "flag goes before a variable" in lines[0]
    assert origins["port"] == "flag"
    assert origins["max_running_requests"] == "variable SGLANG_LITE_MAX_RUNNING_REQUESTS"
    assert origins["restart"] == f"file {file}"
    assert origins["host"] == "default"


def test_the_command_prints_it(monkeypatch: pytest.MonkeyPatch, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("SGLANG_LITE_MAX_N", "7")
    assert serve.standalone(["--config", str(file), "--print-config"]) == 0
    shown = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["max_n", "7", "#", "variable", "SGLANG_LITE_MAX_N"] in shown


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("max-runing-requests: 3", "unknown 'max-runing-requests'; did you mean max_running_requests"),
        ("xyzzy: 3", "--print-config lists all"),
        ("port: eight", "got 'eight', expected a value of type int"),
        ("port: true", "got True, expected a value of type int"),
        ("restart: 1", "expected a value of type bool"),
        ("- port", "got list, expected"),
        ("port: [", "ParserError"),
    ],
)
def test_a_wrong_file_says_what_is_wrong(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_text(text)
    with pytest.raises(RequestError) as refused:
        from_file(str(path))
    assert said in str(refused.value)


def test_a_file_that_is_not_there_and_one_that_is_empty(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="FileNotFoundError"):
        from_file(str(tmp_path / "nowhere.yaml"))
    (tmp_path / "empty.yaml").write_text("# nothing\n")
    assert from_file(str(tmp_path / "empty.yaml")) == {}


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"SGLANG_LITE_PORT": "x"}, "reading SGLANG_LITE_PORT: got 'x'"),
        ({"SGLANG_LITE_RESTART": "maybe"}, "expected 1 or 0"),
    ],
)
def test_a_wrong_variable_is_named(variables: dict[str, str], said: str) -> None:
    with pytest.raises(RequestError) as refused:
        from_variables(variables)
    assert said in str(refused.value)


def test_variables_of_other_parts_are_not_settings() -> None:
    """The key for a server that programs talk to is no key that a server asks for; an empty one is none."""
    assert from_variables({"SGLANG_LITE_API_KEY": "k", "SGLANG_LITE_BACKEND": "local", "SGLANG_LITE_PORT": ""}) == {}
    sizes = from_variables({"SGLANG_LITE_CUDA_GRAPH_BS": "1, 4"})
    assert sizes["cuda_graph_bs"].value == [1, 4]
    lists: Any = from_variables({"SGLANG_LITE_API_KEY_ENV": "A, B", "SGLANG_LITE_RESTART": "Yes"})
    assert {name: given.value for name, given in lists.items()} == {"api_key_env": ["A", "B"], "restart": True}


def test_refused_and_idle_settings_are_the_same_from_everywhere(tmp_path: Path) -> None:
    path = tmp_path / "server.yaml"
    path.write_text("tp-size: 2\n")
    with pytest.raises(UnsupportedError, match="--tp-size is not supported"):
        resolve(args(), {}, str(path))
    with pytest.raises(UnsupportedError, match="--tp-size is not supported"):
        resolve(args(), {"SGLANG_LITE_TP_SIZE": "2"})
    path.write_text("tp: 1\nenable-metrics: true\n")
    assert resolve(args(), {"SGLANG_LITE_DP_SIZE": "1"}, str(path)).without_effect == ["--enable-metrics"]


def test_keys_are_no_flags_and_not_shown() -> None:
    settings = settled({}, api_keys=("secret",))
    assert settings.server.read_keys() == {b"secret"}
    assert "secret" not in "\n".join(settings.lines())
