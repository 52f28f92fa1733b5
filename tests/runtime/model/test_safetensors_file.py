"""Reading safetensors: values of each type, and every way a file or a set of shards can be damaged."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from sglang_lite.errors import ModelLoadError
from sglang_lite.runtime.model.safetensors_file import INDEX_NAME, SafetensorsFile, SafetensorsFolder

VALUES = torch.randn(6, 8, generator=torch.Generator().manual_seed(0))


def write_raw(path: Path, header: Any, data: bytes = b"", size: int | None = None) -> Path:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text) if size is None else size) + text + data)
    return path


def write_shards(folder: Path, count: int = 3) -> Path:
    """Shards `s1.safetensors` ... with two tensors each, and their index."""
    places: dict[str, str] = {}
    for i in range(1, count + 1):
        names = [f"t{i}.a", f"t{i}.b"]
        save_file({name: VALUES.clone() for name in names}, folder / f"s{i}.safetensors")
        places |= dict.fromkeys(names, f"s{i}.safetensors")
    (folder / INDEX_NAME).write_text(json.dumps({"metadata": {}, "weight_map": places}))
    return folder


def change_index(folder: Path, **places: str) -> None:
    index = json.loads((folder / INDEX_NAME).read_text())
    index["weight_map"] |= {name.replace("_", "."): place for name, place in places.items()}
    (folder / INDEX_NAME).write_text(json.dumps(index))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
def test_values_become_float32_exactly(dtype: torch.dtype, tmp_path: Path) -> None:
    stored = VALUES.to(dtype)
    save_file({"x": stored, "row": stored[2].clone(), "one": stored[0, 0].clone()}, tmp_path / "m.safetensors")
    tensors = SafetensorsFile(tmp_path / "m.safetensors").tensors
    assert {name: tensor.shape for name, tensor in tensors.items()} == {"x": (6, 8), "row": (8,), "one": ()}
    for name, expected in {"x": stored, "row": stored[2]}.items():
        values = tensors[name].dequantize()
        assert values.dtype == np.float32
        assert np.array_equal(values, expected.float().numpy())
    assert np.array_equal(tensors["x"].dequantize(1, 4), stored[1:4].float().numpy())


def test_a_file_cut_anywhere_is_one_clear_error(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    save_file({"first": VALUES, "second": VALUES.clone()}, path)
    whole = path.read_bytes()
    for kept in (0, 5, 8, 20, len(whole) - 1, len(whole) - 300):
        path.write_bytes(whole[:kept])
        with pytest.raises(ModelLoadError, match=r"m\.safetensors: (the file is (empty|cut short)|not a safetensors)"):
            SafetensorsFile(path)
    path.write_bytes(whole[:-300])
    with pytest.raises(ModelLoadError, match=r"cut short: tensor '(first|second)' ends at byte"):
        SafetensorsFile(path)
    path.write_bytes(whole + b"\0")
    with pytest.raises(ModelLoadError, match="it is damaged"):
        SafetensorsFile(path)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"dtype": "I32", "shape": [2], "data_offsets": [0, 8]}, "tensor 'x' is stored as I32, expected one of F64"),
        ({"dtype": "F8_E4M3", "shape": [8], "data_offsets": [0, 8]}, "tensor 'x' is stored as F8_E4M3"),
        (
            {"dtype": "F32", "shape": [3], "data_offsets": [0, 8]},
            r"tensor 'x' of shape \(3,\) and type F32 has 8 bytes",
        ),
        ({"dtype": "F32", "shape": [-2], "data_offsets": [0, 8]}, "the entry of tensor 'x' is damaged"),
        ({"dtype": "F32", "shape": 2, "data_offsets": [0, 8]}, "the entry of tensor 'x' is damaged"),
        ({"dtype": "F32", "shape": [2]}, "the entry of tensor 'x' is damaged"),
        ({"dtype": "F32", "shape": [2], "data_offsets": [8]}, "the entry of tensor 'x' is damaged"),
        (7, "the entry of tensor 'x' is damaged"),
    ],
)
def test_a_damaged_entry_names_the_tensor(entry: Any, message: str, tmp_path: Path) -> None:
    path = write_raw(tmp_path / "m.safetensors", {"x": entry}, bytes(8))
    with pytest.raises(ModelLoadError, match=rf"m\.safetensors: {message}"):
        SafetensorsFile(path)


def test_a_damaged_header_is_told(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    with pytest.raises(ModelLoadError, match="the header is no JSON"):
        SafetensorsFile(write_raw(path, b"{'x'}"))
    with pytest.raises(ModelLoadError, match="its header has 99 bytes"):
        SafetensorsFile(write_raw(path, b"{}", size=99))
    with pytest.raises(ModelLoadError, match="not a safetensors file"):
        SafetensorsFile(write_raw(path, b"{}", size=1 << 60))
    path.write_bytes(b"GGUF" + bytes(100))
    with pytest.raises(ModelLoadError, match="not a safetensors file"):
        SafetensorsFile(path)
    with pytest.raises(ModelLoadError, match="cannot be read"):
        SafetensorsFile(tmp_path / "gone.safetensors")


def test_shards_are_read_as_one(tmp_path: Path) -> None:
    folder = SafetensorsFolder(write_shards(tmp_path))
    assert sorted(folder.tensors) == ["t1.a", "t1.b", "t2.a", "t2.b", "t3.a", "t3.b"]
    assert folder.tensors["t2.b"].path == tmp_path / "s2.safetensors"
    assert np.array_equal(folder.tensors["t3.a"].dequantize(), VALUES.numpy())


def test_a_missing_shard_is_named_with_a_tensor_of_it(tmp_path: Path) -> None:
    (write_shards(tmp_path) / "s2.safetensors").unlink()
    with pytest.raises(ModelLoadError, match=r"1 of 3 shards are missing: s2\.safetensors \(with tensor 't2\.a'"):
        SafetensorsFolder(tmp_path)


def test_a_truncated_shard_is_named(tmp_path: Path) -> None:
    path = write_shards(tmp_path) / "s3.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(ModelLoadError, match=r"s3\.safetensors: the file is cut short: tensor 't3\.[ab]'"):
        SafetensorsFolder(tmp_path)
    path.write_bytes(b"")
    with pytest.raises(ModelLoadError, match=r"s3\.safetensors: the file is empty"):
        SafetensorsFolder(tmp_path)


def test_an_index_that_does_not_fit_its_shards_is_refused(tmp_path: Path) -> None:
    write_shards(tmp_path)
    change_index(tmp_path, t9_a="s1.safetensors")
    with pytest.raises(ModelLoadError, match=r"s1\.safetensors: tensor 't9\.a' is missing, .*says that this shard"):
        SafetensorsFolder(tmp_path)
    write_shards(tmp_path)
    change_index(tmp_path, t1_a="s2.safetensors")
    with pytest.raises(ModelLoadError, match=r"s2\.safetensors: tensor 't1\.a' is missing"):
        SafetensorsFolder(tmp_path)


def test_a_tensor_in_two_shards_is_refused(tmp_path: Path) -> None:
    write_shards(tmp_path)
    save_file({"t1.a": VALUES, "t2.a": VALUES.clone(), "t2.b": VALUES.clone()}, tmp_path / "s2.safetensors")
    with pytest.raises(ModelLoadError, match=r"s2\.safetensors: tensor 't1\.a' is also in s1\.safetensors"):
        SafetensorsFolder(tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "not readable as an index"),
        ("[]", "not readable as an index"),
        ("{}", "not readable as an index"),
        ('{"weight_map": {}}', "names no tensor"),
        ('{"weight_map": {"x": "../../etc/passwd"}}', "expected a file in the same folder"),
        ('{"weight_map": {"x": 3}}', "expected a file in the same folder"),
    ],
)
def test_a_damaged_index_is_told(content: str, message: str, tmp_path: Path) -> None:
    (tmp_path / INDEX_NAME).write_text(content)
    with pytest.raises(ModelLoadError, match=f"index.json: .*{message}"):
        SafetensorsFolder(tmp_path)


def test_without_an_index_there_is_one_file(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match="no safetensors file; download"):
        SafetensorsFolder(tmp_path)
    (tmp_path / "pytorch_model.bin").touch()
    with pytest.raises(ModelLoadError, match="convert its pickled weights"):
        SafetensorsFolder(tmp_path)
    save_file({"x": VALUES}, tmp_path / "other.safetensors")
    assert list(SafetensorsFolder(tmp_path).tensors) == ["x"]
    save_file({"y": VALUES}, tmp_path / "second.safetensors")
    with pytest.raises(ModelLoadError, match=r"2 safetensors files and no model\.safetensors\.index\.json"):
        SafetensorsFolder(tmp_path)
    save_file({"z": VALUES}, tmp_path / "model.safetensors")
    assert list(SafetensorsFolder(tmp_path).tensors) == ["z"]
