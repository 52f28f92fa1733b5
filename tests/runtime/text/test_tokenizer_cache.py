"""Loading a tokenizer: from the cache, from a GGUF file, from a folder."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from sglang_lite.errors import ModelLoadError
from sglang_lite.runtime.text.tokenizer import Tokenizer, tokenizer_from_gguf
from sglang_lite.runtime.text.tokenizer_cache import load_tokenizer
from tests.runtime.text.tiny import byte_level_metadata, sentencepiece_metadata


class Reader:
    """Hands out metadata and counts how often it was asked."""

    def __init__(self, metadata: Mapping[str, Any]) -> None:
        self.metadata = metadata
        self.calls = 0

    def __call__(self, path: Path) -> Mapping[str, Any]:
        self.calls += 1
        return self.metadata


@pytest.fixture
def gguf_file(tmp_path: Path) -> Path:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"GGUF stands in for a model")
    return path


@pytest.mark.parametrize("metadata", [byte_level_metadata(chat_template="{{ 1 }}"), sentencepiece_metadata()])
def test_the_second_load_is_equal_and_reads_no_metadata(
    gguf_file: Path, tmp_path: Path, metadata: dict[str, Any]
) -> None:
    reader = Reader(metadata)
    first = load_tokenizer(gguf_file, tmp_path / "cache", reader)
    second = load_tokenizer(gguf_file, tmp_path / "cache", reader)
    assert reader.calls == 1
    assert second.fingerprint == first.fingerprint
    assert second.info == first.info
    assert second.token_bytes == first.token_bytes
    assert second.special_ids == first.special_ids
    text = "<s>hello wor<|im_end|>\n漢"
    assert second.encode(text, parse_special=True) == first.encode(text, parse_special=True)


@pytest.mark.model
def test_the_embedded_models_tokenizer_is_the_same_from_the_cache(
    embedded_model_path: Path, embedded_metadata: Mapping[str, Any], tokenizer: Tokenizer, tmp_path: Path
) -> None:
    reader = Reader(embedded_metadata)
    load_tokenizer(embedded_model_path, tmp_path, reader)
    cached = load_tokenizer(embedded_model_path, tmp_path, reader)
    assert reader.calls == 1
    assert cached.fingerprint == tokenizer.fingerprint
    assert cached.token_bytes == tokenizer.token_bytes


def test_a_changed_file_is_read_anew(gguf_file: Path, tmp_path: Path) -> None:
    load_tokenizer(gguf_file, tmp_path, Reader(byte_level_metadata()))
    status = gguf_file.stat()
    os.utime(gguf_file, ns=(status.st_atime_ns, status.st_mtime_ns + 1_000_000_000))
    changed = Reader(byte_level_metadata(eos_token_id=3))
    assert 3 in load_tokenizer(gguf_file, tmp_path, changed).eos_ids
    assert changed.calls == 1


def test_a_damaged_entry_is_built_anew(gguf_file: Path, tmp_path: Path) -> None:
    reader = Reader(byte_level_metadata())
    load_tokenizer(gguf_file, tmp_path / "cache", reader)
    (entry,) = (tmp_path / "cache" / "tokenizers").iterdir()
    for damage in (entry.read_bytes()[:-10], b"", b"[1]\nx"):
        entry.write_bytes(damage)
        assert load_tokenizer(gguf_file, tmp_path / "cache", reader).eos_ids == {2}
    assert reader.calls == 4


def test_a_cache_that_cannot_be_written_is_one_warning(
    gguf_file: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("in the way")
    with caplog.at_level(logging.WARNING):
        tokenizer = load_tokenizer(gguf_file, tmp_path / "file", Reader(byte_level_metadata()))
    assert tokenizer.eos_ids == {2}
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "cannot keep the built tokenizer" in caplog.text


def test_without_a_cache_folder_nothing_is_kept(gguf_file: Path, tmp_path: Path) -> None:
    reader = Reader(byte_level_metadata())
    load_tokenizer(gguf_file, None, reader)
    load_tokenizer(gguf_file, None, reader)
    assert reader.calls == 2
    assert list(tmp_path.iterdir()) == [gguf_file]


def write_folder(folder: Path, tokenizer: Tokenizer, **config: Any) -> Path:
    folder.mkdir()
    (folder / "tokenizer.json").write_text(tokenizer.backend_json(), encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    return folder


def test_a_folder_gives_the_ids_of_the_gguf_file(tmp_path: Path) -> None:
    from_gguf = tokenizer_from_gguf(byte_level_metadata())
    folder = write_folder(
        tmp_path / "model", from_gguf, bos_token="<s>", eos_token={"content": "<|im_end|>"}, add_bos_token=True,
        chat_template=[{"name": "tool_use", "template": "x"}, {"name": "default", "template": "y"}],
    )  # fmt: skip
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [2, 3]}))
    tokenizer = load_tokenizer(folder, None, Reader({}))
    text = "<s>hello wor<|im_end|>\n漢 12"
    for parse_special in (True, False):
        expected = from_gguf.encode(text, parse_special=parse_special)
        assert tokenizer.encode(text, parse_special=parse_special) == expected
    assert tokenizer.token_bytes == from_gguf.token_bytes
    assert tokenizer.special_tokens == from_gguf.special_tokens
    assert tokenizer.eos_ids == {2, 3}
    assert tokenizer.add_bos
    assert tokenizer.template_variables == {"bos_token": "<s>", "eos_token": "<|im_end|>"}
    assert tokenizer.chat_template == "y"
    (folder / "chat_template.jinja").write_text("z")
    assert load_tokenizer(folder, None, Reader({})).chat_template == "z"


def test_a_folders_post_processor_says_whether_there_is_a_bos(tmp_path: Path) -> None:
    from tokenizers import Tokenizer as Backend
    from tokenizers import processors

    plain = tokenizer_from_gguf(byte_level_metadata())
    backend = Backend.from_str(plain.backend_json())
    folder = write_folder(tmp_path / "a", plain, bos_token="<s>")
    assert not load_tokenizer(folder, None, Reader({})).add_bos
    backend.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    (folder / "tokenizer.json").write_text(backend.to_str())
    assert load_tokenizer(folder, None, Reader({})).add_bos


def test_a_metaspace_folder_puts_a_space_only_at_the_very_start(tmp_path: Path) -> None:
    """Newer Llama folders mark spaces in the pre-tokenizer with the scheme `first`; special tokens get no space after."""
    from tokenizers import Tokenizer as Backend
    from tokenizers import decoders, pre_tokenizers

    backend = Backend.from_str(tokenizer_from_gguf(sentencepiece_metadata()).backend_json())
    backend.normalizer = None
    backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    backend.decoder = decoders.Metaspace(prepend_scheme="first", split=False)
    folder = tmp_path / "model"
    folder.mkdir()
    backend.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"bos_token": "<s>", "unk_token": "<unk>"}))
    tokenizer = load_tokenizer(folder, None, Reader({}))
    assert tokenizer.info.space_prefix == "first"
    for text in ("hello", "<|user|>hello", "hello<|user|>hello wor", " hello"):
        assert tokenizer.encode(text, parse_special=True) == backend.encode(text, add_special_tokens=False).ids
    (token_id,) = tokenizer.encode("hello", parse_special=True, previous_id=3)
    assert tokenizer.token_bytes[token_id] == b"hello"
    assert b" hello" in tokenizer.token_bytes
    assert 0 in tokenizer.special_ids


@pytest.mark.parametrize("content", ["{}", "no json", '{"version": "1.0", "model": {"type": "Martian"}}'])
def test_a_damaged_folder_is_refused_by_file(tmp_path: Path, content: str) -> None:
    (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(ModelLoadError, match=r"tokenizer\.json"):
        load_tokenizer(tmp_path, None, Reader({}))


def test_missing_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match="nothing to make one from"):
        load_tokenizer(tmp_path, None, Reader({}))
    with pytest.raises(ModelLoadError, match="neither a GGUF file nor a model folder"):
        load_tokenizer(tmp_path / "gone.gguf", None, Reader({}))


def test_an_alphabet_that_is_not_known_is_refused(tmp_path: Path) -> None:
    from tokenizers import Tokenizer as Backend
    from tokenizers import models

    Backend(models.WordLevel({"a": 0}, unk_token="a")).save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(ModelLoadError, match="byte-level"):
        load_tokenizer(tmp_path, None, Reader({}))
