"""What the images and the page about deploying name exists: files, commands, flags, variables, routes, extras."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from sglang_lite.cli.main import build_parser
from sglang_lite.cli.serve_flags import FLAGS
from sglang_lite.cli.serve_settings import from_variables
from sglang_lite.runtime.model import loader
from tests.support.live_server import live_server
from tests.support.talking_engine import talking_engine

ROOT = Path(__file__).resolve().parent.parent
DOCKERFILES = sorted((ROOT / "docker").glob("Dockerfile.*"))
PAGE = (ROOT / "docs/deploy.md").read_text(encoding="utf-8")
NOT_SETTINGS = {"SGLANG_LITE_CACHE"}


def instructions(path: Path) -> list[tuple[str, str]]:
    """(name, arguments) of each instruction, with continued lines joined."""
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if not line.lstrip().startswith("#")]
    text = re.sub(r"\\\n\s*", " ", "\n".join(lines))
    found = [line.strip().partition(" ") for line in text.splitlines() if line.strip()]
    return [(name, rest.strip()) for name, _, rest in found]


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.name)
def test_an_image_names_what_exists_and_is_unprivileged(path: Path) -> None:
    steps = instructions(path)
    for name, rest in steps:
        assert re.fullmatch("[A-Z]+", name), f"{name}: no instruction"
        if name == "COPY" and not rest.startswith("--from"):
            for source in rest.split()[:-1]:
                assert (ROOT / source).exists(), source
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    runs = " && ".join(rest for name, rest in steps if name == "RUN")
    named = re.findall(r'"\.\[([\w,]+)\]"', runs)
    assert named
    assert set(",".join(named).split(",")) <= set(extras)
    assert loader._EMBEDDED_REQUIREMENT in runs
    env = dict(pair.split("=", 1) for name, rest in steps if name == "ENV" for pair in rest.split())
    settings = {name for name in env if name.startswith("SGLANG_LITE_")} - NOT_SETTINGS
    assert {f"SGLANG_LITE_{setting.upper()}" for setting in from_variables(env)} == settings
    users = [rest for name, rest in steps if name == "USER"]
    assert users == ["10001"]
    order = [name for name, _ in steps]
    warmups = [index for index, step in enumerate(steps) if step == ("RUN", "sglang-lite warmup")]
    assert len(warmups) == 1 and warmups[0] > order.index("USER")  # noqa: PT018 - one fact: its files are the user's
    entry = json.loads(next(rest for name, rest in steps if name == "ENTRYPOINT"))
    assert entry[0] == "sglang-lite"
    build_parser().parse_args(entry[1:])
    check = next(rest for name, rest in steps if name == "HEALTHCHECK")
    assert f":{env['SGLANG_LITE_PORT']}/livez" in check


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.name)
def test_an_image_is_made_of_named_versions(path: Path) -> None:
    """Bases by their full version, packages by the list beside it, which fits what the project allows."""
    steps = instructions(path)
    bases = [rest.split()[0] for name, rest in steps if name == "FROM"]
    assert bases
    for base in bases:
        assert re.search(r":\d+\.\d+\.\d+-", base), base
    installs = [part for name, rest in steps if name == "RUN" for part in rest.split("&&") if " install " in part]
    for line in [line for line in installs if "pip" in line]:
        assert "--constraint constraints.txt" in line or re.search(r"--no-deps \S+==\S+", line), line
    assert any("docker/constraints.txt" in rest for name, rest in steps if name == "COPY")


def test_the_versions_of_the_images_are_allowed_and_whole() -> None:
    lines = (ROOT / "docker/constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = dict(line.split("==") for line in lines if not line.startswith("#"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for text in [*project["dependencies"], *project["optional-dependencies"]["otel"]]:
        wanted = Requirement(text)
        assert wanted.specifier.contains(pins[canonicalize_name(wanted.name)]), text


def test_the_context_of_a_build_is_what_the_images_copy() -> None:
    """Nothing else of the working folder, keys and caches among it, is sent to the builder."""
    rules = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    rules = [rule for rule in rules if rule and not rule.startswith("#")]
    assert rules[0] == "*"
    let_in = {rule[1:] for rule in rules if rule.startswith("!")}
    copied = {
        source.removeprefix("./")
        for path in DOCKERFILES
        for name, rest in instructions(path)
        if name == "COPY" and not rest.startswith("--from")
        for source in rest.split()[:-1]
    }
    assert let_in == copied


def test_compose_mounts_nothing_writable_and_its_flags_exist() -> None:
    server = yaml.safe_load((ROOT / "docker/compose.yaml").read_text())["services"]["server"]
    assert server["read_only"]
    assert server["cap_drop"] == ["ALL"]
    assert server["security_opt"] == ["no-new-privileges:true"]
    assert server["tmpfs"] == ["/tmp"]
    assert not server.get("volumes")
    assert all(port.startswith("127.0.0.1:") for port in server["ports"])
    assert (ROOT / "docker" / server["build"]["context"] / server["build"]["dockerfile"]).exists()
    build_parser().parse_args(["serve", *server["command"]])


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def test_the_commands_of_the_page_are_ones() -> None:
    commands = [line for block in blocks("") for line in block.splitlines() if line.startswith("docker ")]
    assert len(commands) >= 4
    for command in commands:
        words = shlex.split(command)
        if words[1] == "build":
            assert (ROOT / words[words.index("-f") + 1]).exists()
            continue
        image = max(index for index, word in enumerate(words) if word == "sglang-lite")
        given = words[image + 1 :]
        build_parser().parse_args(given if "--entrypoint" in words else ["serve", *given])


def test_the_deployment_is_one_and_its_probes_are_routes() -> None:
    documents: list[Any] = [yaml.safe_load(block) for block in blocks("yaml")]
    deployment = next(one for one in documents if one.get("kind") == "Deployment")
    pod = deployment["spec"]["template"]["spec"]
    container = pod["containers"][0]
    build_parser().parse_args(["serve", *container["args"]])
    given = dict(zip(container["args"][::2], container["args"][1::2], strict=True))
    drain_s = float(given["--drain-delay-s"]) + float(given["--drain-deadline-s"])
    assert pod["terminationGracePeriodSeconds"] > drain_s
    assert pod["securityContext"]["runAsUser"] == 10001
    assert container["securityContext"]["readOnlyRootFilesystem"]
    volumes = {volume["name"] for volume in pod["volumes"]}
    assert {mount["name"] for mount in container["volumeMounts"]} == volumes
    paths = {container[f"{probe}Probe"]["httpGet"]["path"] for probe in ("startup", "readiness", "liveness")}
    with talking_engine() as (engine, _), live_server(engine) as server:
        for path in [*paths, "/metrics"]:
            assert server.http.get(path).status_code == 200


def test_flags_and_variables_of_the_page_exist() -> None:
    flags = set(re.findall(r"`(--[a-z][\w-]+)`", PAGE))
    assert flags
    assert flags <= set(FLAGS)
    variables = dict.fromkeys(re.findall(r"SGLANG_LITE_\w+", PAGE), "1")
    assert len(from_variables(variables)) == len(set(variables) - NOT_SETTINGS)
