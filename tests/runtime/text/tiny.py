"""GGUF key/values of tiny tokenizers made by hand."""

from __future__ import annotations

from typing import Any

from sglang_lite.runtime.text.gguf_vocabulary import BYTE, CONTROL, NORMAL, UNKNOWN
from sglang_lite.runtime.text.vocabulary import _BYTE_LEVEL


def byte_level_metadata(**changes: Any) -> dict[str, Any]:
    """GGUF key/values of a tiny byte-level BPE: control tokens, 256 bytes, a few merges; None removes a key."""
    control = ["<unk>", "<s>", "<|im_end|>", "<|im_start|>"]
    alphabet = [chr(code) for code in sorted(_BYTE_LEVEL, key=lambda code: ord(_BYTE_LEVEL[code]))]
    merges = ["h e", "l l", "he ll", "hell o", "Ġ w", "Ġ hello"]
    tokens = control + alphabet + [merge.replace(" ", "") for merge in merges]
    metadata = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [CONTROL] * len(control) + [NORMAL] * (len(tokens) - len(control)),
        "tokenizer.ggml.merges": merges,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
        "tokenizer.ggml.add_bos_token": False,
    }
    return _changed(metadata, changes)


def sentencepiece_metadata(**changes: Any) -> dict[str, Any]:
    """GGUF key/values of a tiny SentencePiece BPE with scores and byte fallback; None removes a key."""
    control = ["<unk>", "<s>", "</s>", "<|user|>"]
    data = [f"<0x{byte:02X}>" for byte in range(256)]
    pieces = ["▁wor", "hello", "or", "▁hello", "ll", "▁", "he", "hell", "▁w"]
    learnt = ["he", "ll", "hell", "hello", "▁hello", "▁w", "or", "▁wor", "▁"]  # scores fall in this order, ids do not
    letters = list("helowrdxy|<>user")
    letters = list(dict.fromkeys(letters))
    tokens = control + data + pieces + letters
    types = [UNKNOWN, CONTROL, CONTROL, CONTROL] + [BYTE] * 256 + [NORMAL] * (len(pieces) + len(letters))
    scores = [0.0] * 260 + [-float(learnt.index(piece)) for piece in pieces] + [-100.0 - i for i in range(len(letters))]
    metadata = {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.scores": scores,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
    }
    return _changed(metadata, changes)


def _changed(metadata: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    for name, value in changes.items():
        key = "tokenizer.chat_template" if name == "chat_template" else f"tokenizer.ggml.{name}"
        metadata[key] = value
    return {key: value for key, value in metadata.items() if value is not None}
