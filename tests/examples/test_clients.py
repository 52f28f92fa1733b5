"""The clients' examples: those whose client is installed run, the others are read."""

from __future__ import annotations

import importlib.util
import json
import py_compile
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.live_server import LiveServer, live_server
from tests.support.split_engine import split_engine
from tests.support.talking_engine import TalkingRunner, talking_engine

CLIENTS = Path(__file__).parents[2] / "examples" / "clients"
PACKAGES = {
    "with_openai": "openai",
    "with_anthropic": "anthropic",
    "with_instructor": "instructor",
    "with_pydantic_ai": "pydantic_ai",
    "with_langchain": "langchain_openai",
    "with_litellm": "litellm",
}
CALL = '<tool_call>\n{"name": "choose", "arguments": {"city":"Rome"}}\n</tool_call>'
INSTALLED = [name for name, package in PACKAGES.items() if importlib.util.find_spec(package) is not None]


@pytest.fixture(scope="module")
def talking() -> Iterator[tuple[LiveServer, TalkingRunner]]:
    with (
        talking_engine(context=4096, num_pages=1024) as (engine, runner),
        split_engine(engine) as split,
        live_server(split) as server,
    ):
        yield server, runner


RUN = """
import importlib, json, sys
found = importlib.import_module("examples.clients." + sys.argv[1]).run(sys.argv[2])
values = [json.loads(v) if isinstance(v, str) else v for v in (found if isinstance(found, tuple) else (found,))]
print(json.dumps([v["city"] if isinstance(v, dict) else v.city for v in values]))
"""


@pytest.mark.parametrize("name", INSTALLED)
def test_an_example_gets_what_its_schema_says(talking: tuple[LiveServer, TalkingRunner], name: str) -> None:
    """In a process of its own: some of these clients leave loops and connections to the end of theirs."""
    server, runner = talking
    runner.replies |= {"Italy": '{"city":"Rome"}', "# Tools": CALL, "Rome or Oslo?<|im_end|>": CALL}
    done = subprocess.run(
        [sys.executable, "-c", RUN, name, server.url],
        cwd=CLIENTS.parents[1],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert set(json.loads(done.stdout.splitlines()[-1])) <= {"Rome", "Oslo"}


@pytest.mark.parametrize("path", sorted(CLIENTS.glob("*.py")), ids=lambda path: path.stem)
def test_every_example_compiles(path: Path, tmp_path: Path) -> None:
    py_compile.compile(str(path), cfile=str(tmp_path / "x.pyc"), doraise=True)


def test_every_client_has_its_test() -> None:
    names = {path.stem for path in CLIENTS.glob("with_*.py")}
    assert names == set(PACKAGES) | {"with_lm_eval"}
