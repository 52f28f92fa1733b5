"""What a model path means, on local folders and on a hub in memory."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from sglang_lite.errors import ModelLoadError
from sglang_lite.runtime.model.loader import load_model
from sglang_lite.runtime.model.safetensors_file import INDEX_NAME
from sglang_lite.runtime.model.source import ModelSource, quantization_label, resolve_model
from tests.support.fake_hub import FakeHub
from tests.support.tiny_models import ARCHITECTURES, save_gguf

GGUFS = ("Tiny-Q4_K_M.gguf", "Tiny-Q8_0.gguf", "sub/Tiny-BF16.gguf", "mmproj-Tiny-F16.gguf", "README.md")


def make_files(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    return folder


@pytest.fixture
def hub(tmp_path: Path) -> FakeHub:
    """`me/ggufs` (two revisions), `me/one`, `me/weights`, `me/shards`, `me/parts`, `me/empty`."""
    hub = FakeHub(tmp_path / "cache")
    folder = tmp_path / "repos"
    hub.add("me/ggufs", make_files(folder / "ggufs", *GGUFS))
    hub.add("me/ggufs", make_files(folder / "old", "Old-Q4_0.gguf"), "v1")
    hub.add("me/one", make_files(folder / "one", "only.gguf"))
    hub.add("me/weights", make_files(
        folder / "weights", "config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json",
        "model.safetensors", "consolidated.safetensors", "model-Q4_0.gguf", "README.md", "pytorch_model.bin", "onnx/tokenizer.json",
    ))  # fmt: skip
    shards = make_files(
        folder / "shards", "config.json", "tokenizer.json", "a.safetensors", "b.safetensors", "c.safetensors"
    )
    (shards / INDEX_NAME).write_text(json.dumps({"weight_map": {"x": "a.safetensors", "y": "b.safetensors"}}))
    hub.add("me/shards", shards)
    hub.add("me/parts", make_files(folder / "parts", *(f"Big-Q4_K_M-0000{i}-of-00002.gguf" for i in (1, 2))))
    hub.add("me/empty", make_files(folder / "empty", "config.json", "pytorch_model.bin"))
    return hub


def test_local_files_and_folders_are_taken_as_they_are(tmp_path: Path, hub: FakeHub) -> None:
    make_files(tmp_path, "m.gguf", "folder/config.json", "folder/model.safetensors")
    assert resolve_model(str(tmp_path / "m.gguf"), hub) == ModelSource("gguf", tmp_path / "m.gguf")
    assert resolve_model(str(tmp_path / "folder"), hub) == ModelSource("folder", tmp_path / "folder")
    assert hub.downloaded == []


def test_a_local_folder_of_gguf_files_is_chosen_from_by_label(tmp_path: Path, hub: FakeHub) -> None:
    folder = make_files(tmp_path / "here", "only-Q8_0.gguf")
    assert resolve_model(str(folder), hub).path == folder / "only-Q8_0.gguf"
    make_files(folder, "other-Q4_0.gguf")
    assert resolve_model(f"{folder}:q4_0", hub).path == folder / "other-Q4_0.gguf"
    with pytest.raises(
        ModelLoadError, match=r"here: 2 GGUF files: only-Q8_0\.gguf, other-Q4_0\.gguf; name one, as in .*here:Q8_0"
    ):
        resolve_model(str(folder), hub)


def test_what_is_here_goes_before_the_hub(tmp_path: Path, hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    make_files(tmp_path, "me/one/config.json", "me/one/model.safetensors")
    monkeypatch.chdir(tmp_path)
    assert resolve_model("me/one", hub) == ModelSource("folder", Path("me/one"))


@pytest.mark.parametrize("name", ["model.safetensors", "config.json"])
def test_one_file_of_a_folder_is_no_model(name: str, tmp_path: Path, hub: FakeHub) -> None:
    make_files(tmp_path, name)
    with pytest.raises(ModelLoadError, match=re.escape(f"give the folder {tmp_path}")):
        resolve_model(str(tmp_path / name), hub)


@pytest.mark.parametrize(
    "path", ["/no/such/model.gguf", "./gone", "~/gone", "models/gone.gguf", "gone.gguf", "gone", "a/b/c", "a/b:", "a/b@", ":Q4_0", "a/b@x@y"]
)  # fmt: skip
def test_a_path_that_is_nothing_says_what_a_path_may_be(path: str, hub: FakeHub) -> None:
    with pytest.raises(ModelLoadError, match=re.escape(f"{path}: no such file or folder (a model path is a GGUF file")):
        resolve_model(path, hub)


@pytest.mark.parametrize(
    ("path", "file"),
    [
        ("me/one", "only.gguf"),
        ("me/ggufs:Q4_K_M", "Tiny-Q4_K_M.gguf"),
        ("me/ggufs:q8_0", "Tiny-Q8_0.gguf"),
        ("me/ggufs:BF16", "sub/Tiny-BF16.gguf"),
        ("me/ggufs/Tiny-Q8_0.gguf", "Tiny-Q8_0.gguf"),
        ("me/ggufs/sub/Tiny-BF16.gguf", "sub/Tiny-BF16.gguf"),
        ("me/ggufs@v1", "Old-Q4_0.gguf"),
        ("me/ggufs@v1:Q4_0", "Old-Q4_0.gguf"),
        ("me/ggufs:Q4_0@v1", "Old-Q4_0.gguf"),
        ("me/ggufs/Old-Q4_0.gguf@v1", "Old-Q4_0.gguf"),
        ("me/weights:Q4_0", "model-Q4_0.gguf"),
    ],
)
def test_the_hub_forms_pick_one_gguf_file(path: str, file: str, hub: FakeHub) -> None:
    source = resolve_model(path, hub)
    assert hub.downloaded == [file]
    assert source.kind == "gguf"
    assert source.path.read_text() == file
    assert source.commit == ("commit-v1" if "v1" in path else "commit-main")


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("me/ggufs", r"me/ggufs: 3 GGUF files: Tiny-Q4_K_M\.gguf, .*BF16\.gguf; name one, as in me/ggufs:Q4_K_M or me/ggufs/Tiny"),
        ("me/ggufs:Q5_K", r"a GGUF file labelled 'Q5_K' is not there, found: Tiny-Q4_K_M\.gguf, .*; name one"),
        ("me/ggufs:Q4_K", "labelled 'Q4_K' is not there"),
        ("me/ggufs/gone.gguf", r"file 'gone\.gguf' is not there, found: Tiny-Q4_K_M\.gguf"),
        ("me/parts:Q4_K_M", "the model comes in 2 parts .*merge them first"),
        ("me/parts/Big-Q4_K_M-00001-of-00002.gguf", "is one of 2 parts; merge them first"),
        ("me/empty", r"holds neither a GGUF file nor config\.json with safetensors, found: config\.json, pytorch_model\.bin"),
        ("me/gone", "me/gone: no such repository"),
        ("me/ggufs@v9", "no revision 'v9'"),
    ],
)  # fmt: skip
def test_what_cannot_be_decided_lists_what_there_is(path: str, message: str, hub: FakeHub) -> None:
    with pytest.raises(ModelLoadError, match=message):
        resolve_model(path, hub)
    assert hub.downloaded == []


def test_a_repository_with_weights_is_a_folder_of_what_is_needed(hub: FakeHub) -> None:
    source = resolve_model("me/weights", hub)
    assert source.kind == "folder"
    expected = ["config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"]
    assert sorted(file.name for file in source.path.iterdir()) == expected
    assert hub.downloaded[-1] == "model.safetensors"


def test_only_the_shards_of_the_index_are_downloaded(hub: FakeHub) -> None:
    source = resolve_model("me/shards", hub)
    names = {file.name for file in source.path.iterdir()}
    assert names == {"config.json", "tokenizer.json", INDEX_NAME, "a.safetensors", "b.safetensors"}


def test_labels_are_read_from_file_names() -> None:
    labels = {
        "Qwen2.5-0.5B-Instruct-Q4_K_M.gguf": "Q4_K_M",
        "model.q8_0.gguf": "Q8_0",
        "m-UD-Q4_K_XL.gguf": "UD-Q4_K_XL",
        "m-IQ2_XXS.gguf": "IQ2_XXS",
        "m-f16.gguf": "F16",
        "sub-Q4_0/m-BF16-00001-of-00003.gguf": "BF16",
        "HALF16.gguf": None,
        "plain.gguf": None,
    }
    assert {name: quantization_label(name) for name in labels} == labels


def test_a_model_from_the_hub_loads(tmp_path: Path, hub: FakeHub) -> None:
    """Both kinds, through to weights."""
    peer = ARCHITECTURES["qwen3"].make()
    repo = tmp_path / "real"
    peer.save_pretrained(repo, max_shard_size="60KB")
    save_gguf(repo / "tiny-F32.gguf", peer, "qwen3")
    hub.add("me/real", repo)
    for path in ("me/real", "me/real:F32"):
        assert load_model(resolve_model(path, hub).path).config.architecture == "qwen3"
    assert sum(name.endswith(".safetensors") for name in hub.downloaded) > 2
