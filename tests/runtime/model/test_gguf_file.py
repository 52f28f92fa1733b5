from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
from gguf import GGMLQuantizationType, GGUFReader, GGUFWriter
from gguf.quants import quantize

from sglang_lite.errors import ModelLoadError
from sglang_lite.runtime.model.gguf_file import GgufFile

VALUES = np.random.default_rng(0).normal(size=(6, 256)).astype(np.float32)
STORAGES = ["F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q8_0"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file with a value of each kind and a tensor of each type that gguf can write."""
    path = tmp_path / "kinds.gguf"
    writer = GGUFWriter(path, "llama")
    writer.add_uint8("u8", 200)
    writer.add_int8("i8", -5)
    writer.add_uint16("u16", 60000)
    writer.add_int16("i16", -30000)
    writer.add_uint32("u32", 4_000_000_000)
    writer.add_int32("i32", -2_000_000_000)
    writer.add_uint64("u64", 2**63)
    writer.add_int64("i64", -(2**62))
    writer.add_float32("f32", 0.5)
    writer.add_float64("f64", 0.1)
    writer.add_bool("yes", True)
    writer.add_string("text", "naïve 東京")
    writer.add_array("names", ["a", "", "ü", "x" * 300])
    writer.add_array("numbers", [1, -2, 3])
    writer.add_array("flags", [True, False])
    for name in STORAGES:
        storage = GGMLQuantizationType[name]
        stored = quantize(VALUES, storage)
        plain = storage in (GGMLQuantizationType.F32, GGMLQuantizationType.F16)
        writer.add_tensor(name, stored, raw_shape=stored.shape if plain else None, raw_dtype=storage)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_every_kind_of_value_is_read(path: Path) -> None:
    metadata = GgufFile(path).metadata
    assert metadata["u8"] == 200
    assert metadata["i8"] == -5
    assert metadata["u16"] == 60000
    assert metadata["i16"] == -30000
    assert metadata["u32"] == 4_000_000_000
    assert metadata["i32"] == -2_000_000_000
    assert metadata["u64"] == 2**63
    assert metadata["i64"] == -(2**62)
    assert metadata["f32"] == 0.5
    assert metadata["f64"] == 0.1
    assert metadata["yes"] is True
    assert metadata["text"] == "naïve 東京"
    assert metadata["names"] == ["a", "", "ü", "x" * 300]
    assert metadata["numbers"] == [1, -2, 3]
    assert metadata["flags"] == [True, False]


def test_tensors_are_found_where_gguf_finds_them(path: Path) -> None:
    tensors = GgufFile(path).tensors
    reference = {tensor.name: tensor for tensor in GGUFReader(path).tensors}
    assert list(tensors) == list(reference)
    for name, tensor in tensors.items():
        assert (tensor.offset, tensor.n_bytes) == (reference[name].data_offset, reference[name].n_bytes)
        assert tensor.shape == (6, 256)
        assert tensor.raw().shape == (6, tensor.n_bytes // 6)
        assert tensor.raw().tobytes() == reference[name].data.tobytes()


@pytest.mark.parametrize("storage", STORAGES)
def test_values_come_back_within_the_precision_of_their_type(path: Path, storage: str) -> None:
    values = GgufFile(path).tensors[storage].dequantize()
    assert values.dtype == np.float32
    coarse = {"F32": 0, "F16": 1e-2, "BF16": 2e-2, "Q8_0": 2e-2}.get(storage, 0.5)
    np.testing.assert_allclose(values, VALUES, atol=coarse)


@pytest.mark.parametrize("kept", [0, 3, 4, 10, 24, 30, 100, 400])
def test_a_file_cut_at_any_place_of_its_header_is_one_clear_error(path: Path, kept: int) -> None:
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(ModelLoadError, match=r"kinds\.gguf.*(cut short|empty)"):
        GgufFile(path)


def test_a_file_cut_in_its_data_names_the_tensor(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(ModelLoadError, match=r"kinds\.gguf: the file is cut short: tensor 'Q8_0'"):
        GgufFile(path)


def test_other_files_are_told_from_gguf(tmp_path: Path) -> None:
    other = tmp_path / "model.safetensors"
    other.write_bytes(b"\x10\0\0\0\0\0\0\0{}")
    with pytest.raises(ModelLoadError, match="not a GGUF file"):
        GgufFile(other)
    with pytest.raises(ModelLoadError, match="cannot be read"):
        GgufFile(tmp_path / "absent.gguf")
    with pytest.raises(ModelLoadError, match="cannot be read"):
        GgufFile(tmp_path)


@pytest.mark.parametrize(("version", "message"), [(1, "version 1"), (4, "version 4"), (0x03000000, "big-endian")])
def test_other_versions_are_refused(path: Path, version: int, message: str) -> None:
    data = bytearray(path.read_bytes())
    struct.pack_into("<I", data, 4, version)
    path.write_bytes(data)
    with pytest.raises(ModelLoadError, match=message):
        GgufFile(path)


def corrupt_tensor_entry(path: Path, name: str, field: str, value: int) -> None:
    """Change a field of a two-dimensional tensor's entry: name, n_dims, two dims, type, offset."""
    data = bytearray(path.read_bytes())
    key = name.encode()
    at = data.index(struct.pack("<Q", len(key)) + key + struct.pack("<I", 2)) + 8 + len(key)
    places = {"n_dims": ("<I", 0), "row": ("<Q", 4), "type": ("<I", 20), "offset": ("<Q", 24)}
    struct.pack_into(places[field][0], data, at + places[field][1], value)
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("type", 250, "tensor 'Q4_1' has the unknown storage type 250"),
        ("type", 4, "tensor 'Q4_1' has the unknown storage type 4"),
        ("n_dims", 9, "tensor 'Q4_1' has 9 dimensions"),
        ("row", 250, "tensor 'Q4_1' .* no multiple of the Q4_1 block"),
        ("offset", 1 << 40, "cut short: tensor 'Q4_1'"),
    ],
)
def test_a_damaged_tensor_entry_names_the_tensor(path: Path, field: str, value: int, message: str) -> None:
    corrupt_tensor_entry(path, "Q4_1", field, value)
    with pytest.raises(ModelLoadError, match=message):
        GgufFile(path)


def test_a_type_without_dequantiser_names_the_tensor(path: Path) -> None:
    corrupt_tensor_entry(path, "F32", "type", GGMLQuantizationType.I32)
    with pytest.raises(ModelLoadError, match="tensor 'F32' is stored as I32"):
        GgufFile(path).tensors["F32"].dequantize()


def test_a_length_that_no_file_has_is_refused_before_memory_is_taken(path: Path) -> None:
    data = bytearray(path.read_bytes())
    at = data.index(b"names") + 5 + 4 + 4
    struct.pack_into("<Q", data, at, 1 << 60)
    path.write_bytes(data)
    with pytest.raises(ModelLoadError, match="metadata 'names' at byte"):
        GgufFile(path)


def test_text_that_is_no_utf8_is_refused(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace("naïve".encode(), b"na\xff\xffve"))
    with pytest.raises(ModelLoadError, match="metadata 'text' is not valid UTF-8"):
        GgufFile(path)


@pytest.mark.model
def test_the_embedded_model_is_read_as_gguf_reads_it(embedded_model_path: Path) -> None:
    file, reference = GgufFile(embedded_model_path), GGUFReader(embedded_model_path)
    for name in ("tokenizer.ggml.merges", "tokenizer.ggml.tokens", "llama.rope.freq_base"):
        assert file.metadata[name] == reference.fields[name].contents()
    assert {name: t.offset for name, t in file.tensors.items()} == {t.name: t.data_offset for t in reference.tensors}
