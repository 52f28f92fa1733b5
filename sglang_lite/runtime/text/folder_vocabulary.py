"""A model folder in Hugging Face's layout -> `tokenizers` object and VocabInfo."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sglang_lite.errors import ModelLoadError
from sglang_lite.runtime.text.vocabulary import END_TOKENS, Alphabet, SpacePrefix, VocabInfo

if TYPE_CHECKING:
    import tokenizers


def build_from_folder(path: Path) -> tuple[tokenizers.Tokenizer, VocabInfo]:
    """The tokenizer of a folder: tokenizer.json, tokenizer_config.json, generation_config.json, chat_template.jinja.

    A folder without tokenizer.json is converted by transformers, if it can.

    Raises:
        ModelLoadError: files are missing or damaged, or the tokenizer's kind is not known.
    """
    backend = _backend(path)
    data = json.loads(backend.to_str())
    config = _read_json(path / "tokenizer_config.json")
    generation = _read_json(path / "generation_config.json") or _read_json(path / "config.json")
    ids = {name: _token_id(backend, config.get(f"{name}_token")) for name in ("bos", "eos", "unk", "pad")}
    added = backend.get_added_tokens_decoder()
    ends = {i for i, token in added.items() if token.special and token.content in END_TOKENS and i != ids["unk"]}
    ends |= set(_as_ids(generation.get("eos_token_id")))
    if ids["eos"] is not None:
        ends.add(ids["eos"])
    bos = ids["bos"]
    return backend, VocabInfo(
        alphabet=_alphabet(path, data),
        bos_id=bos,
        eos_id=ids["eos"],
        unk_id=ids["unk"],
        pad_id=ids["pad"],
        eos_ids=tuple(sorted(ends)),
        add_bos=bos is not None and _adds_bos(backend, config, bos),
        space_prefix=_space_prefix(data),
        hidden_ids=() if ids["unk"] is None or ids["unk"] in added else (ids["unk"],),
        chat_template=_chat_template(path, config),
    )


def _backend(path: Path) -> tokenizers.Tokenizer:
    import tokenizers

    file = path / "tokenizer.json"
    if file.is_file():
        try:
            return tokenizers.Tokenizer.from_file(str(file))
        except Exception as error:  # the library raises plain Exception for every fault of the file
            raise ModelLoadError(
                f"reading {file}: {error}; the file is damaged or newer than this tokenizers"
            ) from error
    if not any(path.glob("tokenizer*")) and not any(path.glob("*.model")) and not (path / "vocab.json").is_file():
        raise ModelLoadError(f"loading the tokenizer: {path} holds no tokenizer.json and nothing to make one from")
    from transformers import AutoTokenizer  # seconds to import, and only old folders need it

    try:
        backend = getattr(AutoTokenizer.from_pretrained(path), "backend_tokenizer", None)
    except (OSError, ValueError, ImportError, KeyError) as error:
        raise ModelLoadError(f"loading the tokenizer of {path} through transformers: {error}") from error
    if backend is None:
        raise ModelLoadError(
            f"loading the tokenizer of {path}: transformers knows it only in Python; save a tokenizer.json first"
        )
    return tokenizers.Tokenizer.from_str(backend.to_str())


def _read_json(file: Path) -> dict[str, Any]:
    if not file.is_file():
        return {}
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelLoadError(f"reading {file}: {error}") from error
    if not isinstance(data, dict):
        raise ModelLoadError(f"reading {file}: got a {type(data).__name__}, expected an object")
    return data


def _token_id(backend: tokenizers.Tokenizer, token: Any) -> int | None:
    text = token.get("content") if isinstance(token, Mapping) else token
    return backend.token_to_id(text) if isinstance(text, str) else None


def _as_ids(value: Any) -> Iterable[int]:
    if value is None:
        return ()
    return value if isinstance(value, list) else (value,)


def _adds_bos(backend: tokenizers.Tokenizer, config: Mapping[str, Any], bos: int) -> bool:
    said = config.get("add_bos_token")
    return said if isinstance(said, bool) else backend.encode("a", add_special_tokens=True).ids[:1] == [bos]


def _steps(data: Mapping[str, Any], part: str) -> list[Mapping[str, Any]]:
    """The steps of one part of tokenizer.json, sequences unrolled."""
    waiting, steps = [data.get(part)], []
    while waiting:
        step = waiting.pop(0)
        if step is None:
            continue
        inner = step.get("normalizers") or step.get("pretokenizers") or step.get("decoders")
        if step["type"] == "Sequence" and inner:
            waiting = [*inner, *waiting]
        else:
            steps.append(step)
    return steps


def _alphabet(path: Path, data: Mapping[str, Any]) -> Alphabet:
    kinds = {step["type"] for part in ("decoder", "pre_tokenizer") for step in _steps(data, part)}
    if "ByteLevel" in kinds:
        return "byte_level"
    if kinds & {"ByteFallback", "Metaspace", "Replace"}:
        return "sentencepiece"
    raise ModelLoadError(
        f"loading the tokenizer of {path}: its tokens spell text by {sorted(kinds) or 'nothing known'}; known are byte-level "
        f"(GPT-2, Llama 3, Qwen) and SentencePiece (Llama 2, Gemma) tokenizers"
    )


def _space_prefix(data: Mapping[str, Any]) -> SpacePrefix:
    found: SpacePrefix = "never"
    for step in (*_steps(data, "normalizer"), *_steps(data, "pre_tokenizer")):
        if step["type"] == "Prepend" or (step["type"] == "ByteLevel" and step.get("add_prefix_space")):
            return "always"
        if step["type"] == "Metaspace":
            found = step.get("prepend_scheme", "always")
    return found


def _chat_template(path: Path, config: Mapping[str, Any]) -> str | None:
    file = path / "chat_template.jinja"
    if file.is_file():
        return file.read_text(encoding="utf-8")
    template = config.get("chat_template") or _read_json(path / "chat_template.json").get("chat_template")
    if isinstance(template, list):  # several named templates
        named = {entry.get("name"): entry.get("template") for entry in template}
        template = named.get("default")
    return template if isinstance(template, str) else None
