"""The clients' examples: those whose client is installed run, the others are read."""

from __future__ import annotations

import importlib
import importlib.util
import json
import py_compile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

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


def city_of(value: Any) -> str:
    """The city in an answer of any of the clients."""
    value = json.loads(value) if isinstance(value, str) else value
    return value["city"] if isinstance(value, dict) else value.city


@pytest.mark.parametrize("name", INSTALLED)
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
def test_an_example_gets_what_its_schema_says(talking: tuple[LiveServer, TalkingRunner], name: str) -> None:
    server, runner = talking
    runner.replies |= {"Italy": '{"city":"Rome"}', "# Tools": CALL, "Rome or Oslo?<|im_end|>": CALL}
    found = importlib.import_module(f"examples.clients.{name}").run(server.url)
    for value in found if isinstance(found, tuple) else (found,):
        assert city_of(value) in ("Rome", "Oslo")


@pytest.mark.parametrize("path", sorted(CLIENTS.glob("*.py")), ids=lambda path: path.stem)
def test_every_example_compiles(path: Path, tmp_path: Path) -> None:
    py_compile.compile(str(path), cfile=str(tmp_path / "x.pyc"), doraise=True)


def test_every_client_has_its_test() -> None:
    names = {path.stem for path in CLIENTS.glob("with_*.py")}
    assert names == set(PACKAGES) | {"with_lm_eval"}
