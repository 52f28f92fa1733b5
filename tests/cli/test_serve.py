"""The flags of `serve`, each with its fate, and the command as a process."""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields

import httpx
import pytest

from sglang_lite import launch_server
from sglang_lite.cli import main, serve
from sglang_lite.cli.main import build_parser
from sglang_lite.errors import RequestError, UnsupportedError
from sglang_lite.runtime.config import REFUSED, WITHOUT_EFFECT, EngineConfig
from sglang_lite.runtime.server.config import SERVER_REFUSED, SERVER_WITHOUT_EFFECT, ServerConfig

TIMEOUT_S = 120


def parse(*argv: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    serve.add_arguments(parser)
    return parser.parse_args(argv)


def of_kind(kind: str) -> set[str]:
    return {flag.setting for flag in serve.FLAGS.values() if flag.kind == kind}


def test_every_setting_is_a_flag_and_every_flag_has_its_fate() -> None:
    assert of_kind("engine") >= {f.name for f in fields(EngineConfig)}
    assert of_kind("server") == {f.name for f in fields(ServerConfig)} - {"api_keys"}
    assert of_kind("without effect") == {*WITHOUT_EFFECT, *SERVER_WITHOUT_EFFECT} - of_kind("engine") - of_kind(
        "server"
    )
    assert of_kind("refused") == {*REFUSED, *SERVER_REFUSED} - of_kind("engine") - of_kind("server")


@pytest.mark.parametrize("name", [name for name, flag in serve.FLAGS.items() if flag.kind == "refused"])
def test_a_refused_flag_says_what_to_do(name: str) -> None:
    flag = serve.FLAGS[name]
    with pytest.raises(UnsupportedError) as refused:
        serve.settings_of(parse(name, "some-value"))
    remedy = (REFUSED | SERVER_REFUSED)[flag.setting]
    assert remedy in str(refused.value)
    assert "some-value" not in str(refused.value)  # it may be a key


@pytest.mark.parametrize("name", [name for name, flag in serve.FLAGS.items() if flag.kind == "without effect"])
def test_a_flag_without_effect_is_taken_and_named(name: str) -> None:
    for argv in ((name,), (name, "5")):
        engine, _, named = serve.settings_of(parse(*argv))
        assert engine == {}
        assert [one.replace("-", "_") for one in named] == ["__" + serve.FLAGS[name].setting]


def test_one_replica_on_one_device_is_what_there_is() -> None:
    assert serve.settings_of(parse("--tp", "1", "--dp-size", "1"))[0] == {}


def test_settings_arrive_with_their_types() -> None:
    argv = [
        "--model-path",
        "m.gguf",
        "--max-total-tokens",
        "64",
        "--schedule-conservativeness",
        "0.5",
        "--disable-radix-cache",
    ]
    argv += [
        "--port",
        "8000",
        "--api-key-env",
        "A",
        "--api-key-env",
        "B",
        "--cors-origin",
        "http://x",
        "--drain-deadline-s",
        "3",
    ]
    engine, server, _ = serve.settings_of(parse(*argv))
    assert engine == {
        "model_path": "m.gguf",
        "max_total_tokens": 64,
        "schedule_conservativeness": 0.5,
        "disable_radix_cache": True,
    }
    assert server == ServerConfig(port=8000, api_key_env=("A", "B"), cors_origins=("http://x",), drain_deadline_s=3.0)
    assert serve.settings_of(parse()) == ({}, ServerConfig(), [])


def test_wrong_values_are_refused() -> None:
    with pytest.raises(RequestError, match="port=99999"):
        serve.settings_of(parse("--port", "99999"))
    with pytest.raises(SystemExit):
        parse("--port", "x")
    with pytest.raises(SystemExit):
        parse("--unheard-of")


def test_an_error_before_the_start_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert serve.standalone(["--tp", "2"]) == 1
    assert capsys.readouterr().err.startswith("launch_server: UnsupportedError: serving: --tp-size is not supported")


@contextmanager
def process(*argv: str) -> Iterator[subprocess.Popen[str]]:
    running = subprocess.Popen([sys.executable, "-m", *argv], stderr=subprocess.PIPE, text=True)
    try:
        yield running
    finally:
        running.kill()
        running.communicate(timeout=TIMEOUT_S)


def test_the_two_ways_to_start_are_one() -> None:
    assert serve in main.COMMANDS
    assert build_parser().parse_args(["serve", "--port", "1"]).main is serve.main
    assert launch_server.standalone is serve.standalone


@pytest.mark.model
def test_a_server_starts_serves_and_ends() -> None:
    """Without a model the embedded one; SIGTERM ends it with 0; its lines say what happened, without texts."""
    argv = ["--port", "0", "--max-total-tokens", "512", "--num-threads", "1", "--trust-remote-code"]
    with process("sglang_lite.launch_server", *argv) as running:
        assert running.stderr is not None
        lines: list[str] = []
        while not lines or "ready at" not in lines[-1]:
            lines.append(running.stderr.readline())
            assert lines[-1], lines
        assert "without effect here: --trust-remote-code" in lines[0]
        url = lines[-1].split()[-1]
        assert url.startswith("http://127.0.0.1:")
        body = {"text": "Hello", "sampling_params": {"max_new_tokens": 2, "temperature": 0}}
        reply = httpx.post(f"{url}/generate", json=body, timeout=TIMEOUT_S, trust_env=False)
        assert reply.json()["meta_info"]["completion_tokens"] == 2
        running.send_signal(signal.SIGTERM)
        rest = running.stderr.read()
        assert running.wait(TIMEOUT_S) == 0
        assert "POST /generate status=200" in rest
        assert "Traceback" not in rest
