from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

import tests.support.kernel_cache  # noqa: F401
from sglang_lite.runtime.execution.native_weights import Weights, load_weights
from sglang_lite.runtime.model.loader import gguf_weights, open_gguf
from tests.support.tiny_gguf import TinyLlama, gguf_tensors, make_model, write_gguf

pytestmark = pytest.mark.native

TINY = TinyLlama(head_dim=32)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write_gguf(tmp_path / "tiny.gguf", TINY, gguf_tensors(make_model(TINY), TINY))


def load(path: Path, cache: Path) -> Weights:
    file, config = open_gguf(path)
    return load_weights(gguf_weights(file, config), config, cache)


def same(a: Weights, b: Weights) -> bool:
    return a.keys() == b.keys() and all(
        a[name].kind == b[name].kind and a[name].data.tobytes() == b[name].data.tobytes() for name in a
    )


def test_the_second_time_they_come_from_the_packed_file(path: Path, tmp_path: Path) -> None:
    first = load(path, tmp_path)
    (kept,) = (tmp_path / "packed").iterdir()
    stamp = kept.stat().st_mtime_ns
    second = load(path, tmp_path)
    assert same(first, second)
    assert kept.stat().st_mtime_ns == stamp
    assert all(weight.address % 64 == 0 for weight in second.values())


@pytest.mark.parametrize("damage", [lambda data: data[:-1], lambda data: b"", lambda data: b"x" + data[1:]])
def test_a_damaged_packed_file_is_made_anew(path: Path, tmp_path: Path, damage: object) -> None:
    first = load(path, tmp_path)
    (kept,) = (tmp_path / "packed").iterdir()
    assert callable(damage)
    kept.write_bytes(damage(kept.read_bytes()))
    assert same(first, load(path, tmp_path))
    assert same(first, load(path, tmp_path))


def test_another_file_in_the_same_place_is_packed_itself(path: Path, tmp_path: Path) -> None:
    """Even with the size and the time of the first."""
    first, stat = load(path, tmp_path), path.stat()
    write_gguf(path, TINY, gguf_tensors(make_model(TINY, seed=1), TINY))
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert path.stat().st_size == stat.st_size
    second = load(path, tmp_path)
    assert not same(first, second)
    assert len(list((tmp_path / "packed").iterdir())) == 2


def test_a_folder_that_cannot_be_written_costs_a_warning(
    path: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "packed").write_text("a file in the way")
    weights = load(path, tmp_path)
    assert "packed weights are not kept" in caplog.text
    assert np.isfinite(weights["norm"].data).all()


def test_packed_files_of_former_states_of_a_model_are_dropped(path: Path, tmp_path: Path) -> None:
    """Three stay: the one in use and two before it."""
    for seed in range(5):
        write_gguf(path, TINY, gguf_tensors(make_model(TINY, seed=seed), TINY))
        last = load(path, tmp_path)
    assert len(list((tmp_path / "packed").iterdir())) == 3
    assert same(last, load(path, tmp_path))
