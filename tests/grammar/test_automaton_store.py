from __future__ import annotations

import logging
from pathlib import Path

import pytest

from sglang_lite.grammar.compiler import GrammarCompiler
from tests.grammar.toy import toy_vocab

SCHEMA = {"type": "object", "properties": {"a": {"type": "string", "maxLength": 3}}, "required": ["a"]}


def stored(folder: Path) -> list[Path]:
    return sorted(folder.glob("grammar-*.bin"))


def test_another_compiler_finds_the_automaton_and_its_notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loose = {"allOf": [SCHEMA], "not": {"properties": {"b": {"multipleOf": 0.7}}, "required": ["b"]}}
    compiler = GrammarCompiler(toy_vocab(), cache_dir=tmp_path)
    first = compiler.compile_json_schema(SCHEMA)
    noted = compiler.compile_json_schema(loose, strict=False)
    assert len(stored(tmp_path)) == 2

    def never(*_: object) -> None:
        raise AssertionError("compiled again")

    monkeypatch.setattr("sglang_lite.grammar.compiler.schema_to_grammar", never)
    again = GrammarCompiler(toy_vocab(), cache_dir=tmp_path)
    second = again.compile_json_schema(SCHEMA)
    for text in ('{"a":"xyz"}', '{"a":"wxyz"}', "{}"):
        assert first.accepts(text) == second.accepts(text)
    assert (first.mask(first.start_state).words == second.mask(second.start_state).words).all()
    assert again.compile_json_schema(loose, strict=False).notes == noted.notes


def test_source_options_and_vocabulary_are_the_key(tmp_path: Path) -> None:
    compiler = GrammarCompiler(toy_vocab(), cache_dir=tmp_path)
    compiler.compile_json_schema(SCHEMA)
    compiler.compile_json_schema(SCHEMA, whitespace="spaced")
    compiler.compile_regex("a")
    compiler.compile_ebnf('root ::= "a"')
    assert len(stored(tmp_path)) == 4
    compiler.compile_regex("a")
    assert len(stored(tmp_path)) == 4


@pytest.mark.parametrize("damage", [b"", b"something else", None])
def test_a_damaged_file_is_compiled_anew(
    tmp_path: Path, damage: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    GrammarCompiler(toy_vocab(), cache_dir=tmp_path).compile_regex("ab+")
    (path,) = stored(tmp_path)
    whole = path.read_bytes()
    path.write_bytes(whole[:-3] + b"zzz" if damage is None else damage)
    with caplog.at_level(logging.WARNING):
        assert GrammarCompiler(toy_vocab(), cache_dir=tmp_path).compile_regex("ab+").accepts("abb")
    assert "damaged" in caplog.text
    assert path.read_bytes() == whole


def test_a_folder_that_cannot_be_written_is_only_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("")
    with caplog.at_level(logging.WARNING):
        assert GrammarCompiler(toy_vocab(), cache_dir=tmp_path / "file").compile_regex("a").accepts("a")
    assert "cannot be" in caplog.text


def test_the_vocabularys_folder_is_the_default() -> None:
    compiler = GrammarCompiler(toy_vocab())
    assert compiler.compile_regex("a").accepts("a")
    assert toy_vocab().cache_dir is None
