"""GGUF metadata (`tokenizer.ggml.*`) -> `tokenizers` object and VocabInfo; reads no file itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sglang_lite.errors import ModelLoadError
from sglang_lite.runtime.text.pre_tokenizers import find_pre_tokenizer
from sglang_lite.runtime.text.vocabulary import END_TOKENS, SPACE_MARK, VocabInfo

if TYPE_CHECKING:
    import tokenizers

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6  # token types of the GGUF format
_KEY = "tokenizer.ggml."


def build_from_gguf(metadata: Mapping[str, Any]) -> tuple[tokenizers.Tokenizer, VocabInfo]:
    """The tokenizer a GGUF file describes; special tokens are added tokens with `special=True`.

    Raises:
        ModelLoadError: keys are missing or contradict each other, or the tokenizer's kind is not known.
    """
    kind = _need(metadata, "model")
    tokens = [str(token) for token in _need(metadata, "tokens")]
    types = [int(x) for x in metadata.get(_KEY + "token_type", ())] or [NORMAL] * len(tokens)
    _check_tokens(tokens, types)
    if kind == "gpt2":
        backend, info = _byte_level(metadata, tokens)
    elif kind == "llama":
        backend, info = _sentencepiece(metadata, tokens, types)
    else:
        raise ModelLoadError(
            f"building the tokenizer: tokenizer.ggml.model is {kind!r}, known are 'gpt2' (byte-level BPE) and 'llama' "
            f"(SentencePiece BPE); use the model's folder with its tokenizer.json instead"
        )
    _add_tokens(backend, tokens, types, prefixed=info["space_prefix"] != "never")
    default_add_bos = info.pop("add_bos")
    ids = {name: _token_id(metadata, name, len(tokens)) for name in ("bos", "eos", "eot", "eom", "unknown", "padding")}
    return backend, VocabInfo(
        bos_id=ids["bos"],
        eos_id=ids["eos"],
        unk_id=ids["unknown"],
        pad_id=ids["padding"],
        eos_ids=_end_ids(ids, tokens, types),
        add_bos=bool(metadata.get(_KEY + "add_bos_token", default_add_bos)) and ids["bos"] is not None,
        hidden_ids=tuple(i for i, kind_of in enumerate(types) if kind_of in (UNKNOWN, UNUSED)),
        chat_template=metadata.get("tokenizer.chat_template") or None,
        **info,
    )


def _need(metadata: Mapping[str, Any], name: str) -> Any:
    value = metadata.get(_KEY + name)
    if value is None:
        raise ModelLoadError(f"building the tokenizer: the file has no {_KEY}{name}; it holds no usable vocabulary")
    return value


def _check_tokens(tokens: Sequence[str], types: Sequence[int]) -> None:
    if len(types) != len(tokens):
        raise ModelLoadError(
            f"building the tokenizer: tokenizer.ggml.token_type has {len(types)} entries for {len(tokens)} tokens"
        )
    if len(set(tokens)) != len(tokens):
        seen: set[str] = set()
        twice = next(token for token in tokens if token in seen or seen.add(token))
        raise ModelLoadError(f"building the tokenizer: token {twice!r} stands twice in tokenizer.ggml.tokens")


def _token_id(metadata: Mapping[str, Any], name: str, n_tokens: int) -> int | None:
    value = metadata.get(f"{_KEY}{name}_token_id")
    if value is None:
        return None
    if not 0 <= int(value) < n_tokens:
        raise ModelLoadError(
            f"building the tokenizer: {_KEY}{name}_token_id is {value}, outside the vocabulary of {n_tokens} tokens"
        )
    return int(value)


def _end_ids(ids: Mapping[str, int | None], tokens: Sequence[str], types: Sequence[int]) -> tuple[int, ...]:
    declared = {ids[name] for name in ("eos", "eot", "eom")} - {None}
    # The unknown token is no end by its name alone: where it doubles as a text separator the file would say so.
    named = {i for i, t in enumerate(types) if t == CONTROL and tokens[i] in END_TOKENS and i != ids["unknown"]}
    return tuple(sorted(i for i in declared | named if i is not None))


def _byte_level(metadata: Mapping[str, Any], tokens: Sequence[str]) -> tuple[tokenizers.Tokenizer, dict[str, Any]]:
    import tokenizers
    from tokenizers import decoders, models, normalizers

    pre = find_pre_tokenizer(metadata.get(_KEY + "pre", "default"))
    vocabulary = {token: i for i, token in enumerate(tokens)}
    merges: list[tuple[str, str]] = []
    for line in _need(metadata, "merges"):
        left, _, right = str(line).partition(" ")
        if left not in vocabulary or right not in vocabulary or left + right not in vocabulary:
            raise ModelLoadError(
                f"building the tokenizer: merge {len(merges)} of tokenizer.ggml.merges is {str(line)!r}, "
                f"but {left!r}, {right!r} or {left + right!r} is not in tokenizer.ggml.tokens"
            )
        merges.append((left, right))
    backend = tokenizers.Tokenizer(models.BPE(vocab=vocabulary, merges=merges, ignore_merges=pre.ignore_merges))
    if pre.nfc:
        backend.normalizer = normalizers.NFC()  # pyright: ignore[reportAttributeAccessIssue]
    backend.pre_tokenizer = pre.build()  # pyright: ignore[reportAttributeAccessIssue]
    backend.decoder = decoders.ByteLevel()  # pyright: ignore[reportAttributeAccessIssue]
    return backend, {"alphabet": "byte_level", "space_prefix": "never", "add_bos": pre.add_bos}


def _sentencepiece(
    metadata: Mapping[str, Any], tokens: Sequence[str], types: Sequence[int]
) -> tuple[tokenizers.Tokenizer, dict[str, Any]]:
    import tokenizers
    from tokenizers import models, normalizers

    scores = [float(x) for x in _need(metadata, "scores")]
    if len(scores) != len(tokens):
        raise ModelLoadError(
            f"building the tokenizer: tokenizer.ggml.scores has {len(scores)} entries for {len(tokens)} tokens"
        )
    unknown = metadata.get(_KEY + "unknown_token_id")
    backend = tokenizers.Tokenizer(
        models.BPE(
            vocab={token: i for i, token in enumerate(tokens)},
            merges=merges_from_scores(tokens, types, scores),
            unk_token=tokens[int(unknown)] if unknown is not None and int(unknown) < len(tokens) else None,
            fuse_unk=True,
            byte_fallback=True,
        )
    )
    prefix = bool(metadata.get(_KEY + "add_space_prefix", True))
    steps: list[normalizers.Normalizer] = [normalizers.Prepend(SPACE_MARK)] if prefix else []
    steps.append(normalizers.Replace(" ", SPACE_MARK))
    backend.normalizer = normalizers.Sequence(steps)  # pyright: ignore[reportAttributeAccessIssue]
    return backend, {
        "alphabet": "sentencepiece",
        "space_prefix": "always" if prefix else "never",
        "add_bos": True,
    }


def merges_from_scores(tokens: Sequence[str], types: Sequence[int], scores: Sequence[float]) -> list[tuple[str, str]]:
    """The merge list that makes BPE do what SentencePiece does: join the neighbours whose union scores highest.

    Every way to put a token together from two others is a merge; the better the token's score, the earlier.
    Control, unknown and byte tokens are no text and take no part.
    """
    ids = {token: i for i, token in enumerate(tokens) if types[i] in (NORMAL, USER_DEFINED)}
    ranked: list[tuple[float, int, int, str, str]] = []
    for token, i in ids.items():
        for cut in range(1, len(token)):
            left, right = ids.get(token[:cut]), ids.get(token[cut:])
            if left is not None and right is not None:
                ranked.append((-scores[i], left, right, token[:cut], token[cut:]))
    ranked.sort()
    return [(left, right) for *_, left, right in ranked]


def _add_tokens(backend: tokenizers.Tokenizer, tokens: Sequence[str], types: Sequence[int], *, prefixed: bool) -> None:
    from tokenizers import AddedToken

    special = [
        AddedToken(t, normalized=False, special=True) for t, kind in zip(tokens, types, strict=True) if kind == CONTROL
    ]
    # Runs of space marks can only be found in text whose spaces are already marked; that works where nothing is prepended.
    ordinary = [
        AddedToken(t, normalized=SPACE_MARK in t and not prefixed, special=False)
        for t, kind in zip(tokens, types, strict=True)
        if kind == USER_DEFINED
    ]
    backend.add_special_tokens(special)
    backend.add_tokens(ordinary)
