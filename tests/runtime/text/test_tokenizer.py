"""Tokenizer: ids, special tokens, spans, bytes."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglang_lite.errors import ModelLoadError, RequestError
from sglang_lite.runtime.text.gguf_vocabulary import CONTROL, NORMAL, USER_DEFINED, merges_from_scores
from sglang_lite.runtime.text.pre_tokenizers import KNOWN
from sglang_lite.runtime.text.tokenizer import Tokenizer, tokenizer_from_gguf
from tests.runtime.text.tiny import byte_level_metadata, sentencepiece_metadata

FRAGMENTS = [
    "The quick brown fox", " jumps", "def f(x):\n    return x ** 2\n", "\tif a!=b:\r\n", "  ", "\n\n\n", "   \n", "é",
    "\U0001f469\u200d\U0001f4bb", "漢字かな交じり文", "안녕", "อีก", "a\u0301", "1234567890", " 42", "3.14e-10", "...",
    "don't", " I'LL", "https://x.y/z?q=1&r=%20", "<|im_start|", "<|im_end|>", "{\"key\": [1, 2]}", "ﬁ", "\u00a0", "٣٤", "Ⅷ²",
    "_snake_case", "CamelCase", "\u3000", "🇩🇪", "\x00\x01", "#include <stdio.h>", "ñandú", "--", "(", ")!?",
]  # fmt: skip
TEXTS = [
    "", *FRAGMENTS, *(a + b for a in FRAGMENTS[:12] for b in FRAGMENTS[12:24]), "".join(FRAGMENTS),
    *(" ".join(FRAGMENTS[i:] + FRAGMENTS[:i]) for i in range(0, len(FRAGMENTS), 3)),
]  # fmt: skip


def with_single_digits(hf_tokenizer: Any) -> Any:
    """The oracle's own merges behind the pre-tokenizer `smollm`; transformers reads every GGUF as if it were GPT-2."""
    import tokenizers
    from tokenizers import pre_tokenizers

    backend = tokenizers.Tokenizer.from_str(hf_tokenizer.backend_tokenizer.to_str())
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    return backend


@pytest.fixture(scope="module")
def tiny() -> Tokenizer:
    return tokenizer_from_gguf(byte_level_metadata())


@pytest.fixture(scope="module")
def sentencepiece() -> Tokenizer:
    return tokenizer_from_gguf(sentencepiece_metadata())


@pytest.mark.model
def test_ids_equal_those_of_transformers_for_many_kinds_of_text(tokenizer: Tokenizer, hf_tokenizer: Any) -> None:
    assert len(TEXTS) > 190
    oracle = with_single_digits(hf_tokenizer)
    for text in TEXTS:
        assert tokenizer.encode(text, parse_special=True) == oracle.encode(text, add_special_tokens=False).ids, text
        assert tokenizer.decode(tokenizer.encode(text, parse_special=False)) == text


@pytest.mark.model
def test_ids_equal_those_of_transformers_as_it_is_where_no_digit_follows_spaces(
    tokenizer: Tokenizer, hf_tokenizer: Any
) -> None:
    texts = [text for text in TEXTS if not any(c.isnumeric() for c in text)]
    assert len(texts) > 100
    for text in texts:
        assert tokenizer.encode(text, parse_special=True) == hf_tokenizer.encode(text, add_special_tokens=False), text


@pytest.mark.model
@given(text=st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=60))
def test_any_text_survives_encoding_and_decoding(tokenizer: Tokenizer, text: str) -> None:
    text = "".join(c for c in text if not tokenizer.missing_bytes & set(c.encode()))
    ids = tokenizer.encode(text, parse_special=False)
    assert tokenizer.decode(ids) == text
    assert b"".join(tokenizer.token_bytes[i] for i in ids) == text.encode()
    assert not tokenizer.special_ids & set(ids)


@pytest.mark.model
def test_bytes_that_the_vocabulary_lacks_are_known_and_rare(tokenizer: Tokenizer, hf_tokenizer: Any) -> None:
    """Text that needs them loses them, in the reference tokenizer too."""
    in_text = {byte for byte in tokenizer.missing_bytes if byte < 0x80}
    assert in_text
    assert max(in_text) < 0x20
    assert not in_text & set(b"\t\n\r")
    text = "a" + "".join(map(chr, in_text)) + "b"
    assert tokenizer.encode(text, parse_special=False) == hf_tokenizer.encode(text, add_special_tokens=False)
    assert tokenizer.decode(tokenizer.encode(text, parse_special=False)) == "ab"


@pytest.mark.model
def test_every_id_has_the_bytes_that_the_oracle_decodes_it_to(tokenizer: Tokenizer, hf_tokenizer: Any) -> None:
    assert tokenizer.vocab_size == 49152 == len(tokenizer.token_bytes)
    texts = hf_tokenizer.batch_decode([[i] for i in range(tokenizer.vocab_size)], clean_up_tokenization_spaces=False)
    for i, (raw, text) in enumerate(zip(tokenizer.token_bytes, texts, strict=True)):
        assert raw.decode("utf-8", "replace") == text, i
        assert tokenizer.visible_bytes[i] == (b"" if i in tokenizer.special_ids else raw)


@pytest.mark.model
def test_the_embedded_models_special_tokens_are_known(tokenizer: Tokenizer) -> None:
    assert tokenizer.eos_ids == {tokenizer.special_tokens["<|im_end|>"]} == {2}
    assert tokenizer.bos_token == "<|im_start|>"
    assert not tokenizer.add_bos
    assert tokenizer.special_ids == set(range(17))
    assert tokenizer.chat_template is not None


@pytest.mark.model
def test_special_tokens_are_single_ids_only_where_they_are_parsed(tokenizer: Tokenizer) -> None:
    """C92: the markers a template writes are control ids; the same text written by a user never is."""
    text = "<|im_start|>user\nhi<|im_end|>"
    parsed = tokenizer.encode(text, parse_special=True)
    literal = tokenizer.encode(text, parse_special=False)
    assert parsed[0] == 1
    assert parsed[-1] == 2
    assert not {1, 2} & set(literal)
    assert tokenizer.decode(literal) == text
    assert tokenizer.decode(parsed) == "user\nhi"
    assert tokenizer.decode(parsed, skip_special=False) == text


@pytest.mark.model
@given(
    pieces=st.lists(
        st.tuples(
            st.sampled_from([" the", "he", "llo", "\n", "<|im_end|>", "<|im", "_start|>", "é", " "]), st.booleans()
        ),
        max_size=8,
    )
)
def test_a_span_is_tokenised_as_its_whole_text_and_never_makes_a_special_token_of_literal_text(
    tokenizer: Tokenizer, pieces: list[tuple[str, bool]]
) -> None:
    ids = tokenizer.encode_pieces(pieces)
    assert tokenizer.decode(ids, skip_special=False) == "".join(text for text, _ in pieces)
    parsed = sum(special and text == "<|im_end|>" for text, special in pieces)
    assert sum(i in tokenizer.special_ids for i in ids) == parsed
    literal = [(text, special and text == "<|im_end|>") for text, special in pieces]
    joined: list[int] = []
    run = ""
    for text, special in [*literal, ("<|im_end|>", True)]:
        if not special:
            run += text
            continue
        joined += [*tokenizer.encode(run, parse_special=False), 2]
        run = ""
    assert ids == joined[:-1]


def test_text_is_joined_across_pieces_before_it_is_tokenised(tiny: Tokenizer) -> None:
    assert tiny.encode_pieces([("he", False), ("llo", True)]) == tiny.encode("hello", parse_special=False)
    assert len(tiny.encode("hello", parse_special=False)) == 1


def test_a_special_token_split_over_two_pieces_stays_text(tiny: Tokenizer) -> None:
    ids = tiny.encode_pieces([("<|im_", True), ("end|>", True)])
    assert tiny.special_tokens["<|im_end|>"] not in ids
    assert tiny.decode(ids) == "<|im_end|>"


def test_the_longest_special_token_wins() -> None:
    metadata = byte_level_metadata()
    metadata["tokenizer.ggml.tokens"] = [*metadata["tokenizer.ggml.tokens"], "<s>x"]
    metadata["tokenizer.ggml.token_type"] = [*metadata["tokenizer.ggml.token_type"], CONTROL]
    tokenizer = tokenizer_from_gguf(metadata)
    assert tokenizer.encode("<s>x<s>", parse_special=True) == [tokenizer.special_tokens["<s>x"], 1]


def test_user_defined_tokens_are_text_even_where_special_tokens_are_not_parsed() -> None:
    metadata = byte_level_metadata()
    metadata["tokenizer.ggml.tokens"] = [*metadata["tokenizer.ggml.tokens"], "<tool> é"]
    metadata["tokenizer.ggml.token_type"] = [*metadata["tokenizer.ggml.token_type"], USER_DEFINED]
    tokenizer = tokenizer_from_gguf(metadata)
    (token_id,) = tokenizer.encode("<tool> é", parse_special=False)
    assert token_id == tokenizer.vocab_size - 1
    assert token_id not in tokenizer.special_ids
    assert tokenizer.visible_bytes[token_id] == "<tool> é".encode()


@pytest.mark.parametrize(
    ("add_bos", "text", "from_template", "expected"),
    [
        (True, "hello", False, True),
        (True, "<s>hello", False, False),
        (True, "<s>hello", True, False),
        (True, "hello", True, False),
        (True, "", False, True),
        (False, "hello", False, False),
    ],
)
def test_a_sequence_gets_one_bos_at_most(add_bos: bool, text: str, from_template: bool, expected: bool) -> None:
    """C41: text that starts with BOS gets no second one, and after a chat template only the template decides."""
    tokenizer = tokenizer_from_gguf(byte_level_metadata(add_bos_token=add_bos))
    ids = tokenizer.encode(text, parse_special=True)
    assert tokenizer.needs_bos(ids, from_template=from_template) is expected


def test_every_kind_of_end_token_ends_a_generation() -> None:
    assert tokenizer_from_gguf(byte_level_metadata(eos_token_id=1)).eos_ids == {1, 2}  # <|im_end|> by its name
    assert tokenizer_from_gguf(byte_level_metadata(eos_token_id=1, eot_token_id=3)).eos_ids == {1, 2, 3}


def test_text_with_a_lone_surrogate_is_refused(tiny: Tokenizer) -> None:
    with pytest.raises(RequestError, match="surrogate"):
        tiny.encode("a\ud800b", parse_special=False)


def test_tokenised_runs_are_cached_by_content_within_a_bound() -> None:
    backend_tokenizer = tokenizer_from_gguf(byte_level_metadata())
    tokenizer = Tokenizer(backend_tokenizer._backend, backend_tokenizer.info, cache_chars=400)
    first = tokenizer.encode_pieces([("hello", False), (" w", True)])
    first.append(-1)  # the caller owns the list
    assert tokenizer.encode("hello w", parse_special=False) == first[:-1]
    assert tokenizer.statistics().hits == 1
    for i in range(50):
        tokenizer.encode(f"text {i}", parse_special=False)
    assert tokenizer.statistics().chars <= 400
    assert tokenizer.statistics().entries <= 6
    tokenizer.encode("x" * 1000, parse_special=False)
    assert tokenizer.statistics().chars <= 400


@given(text=st.text(alphabet=st.sampled_from("helowr x\n\u00e9漢<>|"), max_size=30))
def test_a_sentencepiece_text_survives_encoding_and_decoding(sentencepiece: Tokenizer, text: str) -> None:
    ids = sentencepiece.encode(text, parse_special=False)
    assert sentencepiece.decode(ids, at_start=True) == text
    continued = sentencepiece.encode(text, parse_special=False, previous_id=sentencepiece.vocab_size - 1)
    assert sentencepiece.decode(continued) == text


def test_sentencepiece_joins_by_score_and_falls_back_to_bytes(sentencepiece: Tokenizer) -> None:
    def spell(text: str, **kwargs: Any) -> list[bytes]:
        return [sentencepiece.token_bytes[i] for i in sentencepiece.encode(text, parse_special=True, **kwargs)]

    assert spell("hello wor") == [b" hello", b" wor"]
    assert spell("é") == [b" ", b"\xc3", b"\xa9"]
    assert spell("<|user|>hello") == [b"<|user|>", b" hello"]
    assert spell("hello", previous_id=261) == [b"hello"]
    assert spell("hello", previous_id=3) == [b" hello"]
    assert sentencepiece.add_bos
    assert sentencepiece.eos_ids == {2}
    assert sentencepiece.visible_bytes[0] == b""


def test_the_greedy_sentencepiece_algorithm_gives_the_same_ids(sentencepiece: Tokenizer) -> None:
    """Oracle: SentencePiece's definition, joining the best-scored neighbours until none is left."""
    metadata = sentencepiece_metadata()
    tokens, scores = metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.scores"]
    types = metadata["tokenizer.ggml.token_type"]
    rank = {t: s for t, s, kind in zip(tokens, scores, types, strict=True) if kind == NORMAL}
    for text in ("hello", "hell", "he he", "lllll", "worwor hello", "ohello", "wellhello or"):
        symbols = list("▁" + text.replace(" ", "▁"))
        while True:
            pairs = [(rank[a + b], -i) for i, (a, b) in enumerate(itertools.pairwise(symbols)) if a + b in rank]
            if not pairs:
                break
            at = -max(pairs)[1]
            symbols[at : at + 2] = ["".join(symbols[at : at + 2])]
        assert sentencepiece.encode(text, parse_special=False) == [tokens.index(s) for s in symbols], text


def test_no_merge_makes_a_control_token_out_of_text() -> None:
    tokens, types = ["<s>", "<", "s>", "<s", ">", "s"], [CONTROL, *[NORMAL] * 5]
    assert merges_from_scores(tokens, types, [0.0, -1, -5, -2, -3, -4]) == [("<", "s"), ("s", ">")]


def test_an_unknown_pre_tokenizer_is_named_with_the_known_ones() -> None:
    with pytest.raises(ModelLoadError, match=r"'my-pre'.*known: .*smollm"):
        tokenizer_from_gguf(byte_level_metadata(pre="my-pre"))


@pytest.mark.parametrize("name", sorted(KNOWN))
def test_every_known_pre_tokenizer_keeps_all_text(name: str) -> None:
    tokenizer = tokenizer_from_gguf(byte_level_metadata(pre=name))
    for text in TEXTS:
        if KNOWN[name].nfc and "\u0301" in text:
            continue
        assert tokenizer.decode(tokenizer.encode(text, parse_special=False)) == text


@pytest.mark.parametrize(
    ("name", "text", "pieces"),
    [
        ("gpt-2", "It's 123  x\n", ["It", "'s", " 123", " ", " x", "\n"]),
        ("smollm", "a  12", ["a", "  ", "1", "2"]),
        ("llama-bpe", "It'S 12345\n\n x", ["It", "'S", " ", "123", "45", "\n\n", " x"]),
        ("qwen2", "It'S 12\r\n.x", ["It", "'S", " ", "1", "2", "\r\n", ".x"]),
        ("tekken", "HelloWorld 1/", ["Hello", "World", " ", "1", "/"]),
        ("gpt-4o", "I'Ll 1234", ["I'Ll", " ", "123", "4"]),
        ("deepseek-v3", "x 1234漢字", ["x", " ", "123", "4", "漢字"]),
        ("default", "a+b 1234", ["a", "+", "b", " ", "123", "4"]),
        ("falcon", "a+b 1234", ["a", "+", "b", " ", "123", "4"]),
    ],
)
def test_pre_tokenizers_cut_where_their_family_cuts(name: str, text: str, pieces: list[str]) -> None:
    cut = KNOWN[name].build().pre_tokenize_str(text)
    assert [text[start:end] for _, (start, end) in cut] == pieces


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tokens": None}, r"no tokenizer\.ggml\.tokens"),
        ({"merges": None}, r"no tokenizer\.ggml\.merges"),
        ({"model": "t5"}, "'t5'"),
        ({"token_type": [1, 3]}, "2 entries"),
        ({"merges": ["h e", "zz q"]}, r"merge 1 .*'zz q'"),
        ({"eos_token_id": 99999}, "eos_token_id is 99999"),
    ],
)
def test_a_damaged_vocabulary_is_refused_by_name(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelLoadError, match=message):
        tokenizer_from_gguf(byte_level_metadata(**changes))


def test_a_token_that_stands_twice_is_refused() -> None:
    metadata = byte_level_metadata()
    metadata["tokenizer.ggml.tokens"] = [*metadata["tokenizer.ggml.tokens"][:-1], "<s>"]
    with pytest.raises(ModelLoadError, match="'<s>' stands twice"):
        tokenizer_from_gguf(metadata)


def test_the_fingerprint_tells_tokenizers_apart(tiny: Tokenizer) -> None:
    assert tiny.fingerprint == tokenizer_from_gguf(byte_level_metadata()).fingerprint
    assert tiny.fingerprint != tokenizer_from_gguf(byte_level_metadata(pre="smollm")).fingerprint
    assert tiny.fingerprint != tokenizer_from_gguf(byte_level_metadata(eos_token_id=1)).fingerprint


def test_importing_the_text_layer_loads_neither_torch_nor_transformers(tmp_path: Path) -> None:
    import subprocess
    import sys

    code = (
        "import sys, sglang_lite.runtime.text.tokenizer_cache, sglang_lite.runtime.text.chat, "
        "sglang_lite.runtime.text.detokenizer; assert not {'torch', 'transformers'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[3])


def test_ids_of_padding_have_no_text(tiny: Tokenizer) -> None:
    """As in transformers, which leaves out what its vocabulary lacks. What was handed out before knows them, too."""
    from transformers import PreTrainedTokenizerFast

    padded = tokenizer_from_gguf(byte_level_metadata())
    visible, size = padded.visible_bytes, tiny.vocab_size
    padded.cover(size + 100)
    padded.cover(size)
    assert padded.vocab_size == len(padded.token_bytes) == len(visible) == size + 100
    assert padded.token_bytes[:size] == tiny.token_bytes
    assert padded.visible_bytes[:size] == tiny.visible_bytes
    hello = padded.encode("hello", parse_special=False)
    ids = [size, *hello, size + 99, 2, *hello]
    peer = PreTrainedTokenizerFast(tokenizer_object=tiny._backend)
    for skip_special in (True, False):
        assert padded.decode(ids, skip_special) == peer.decode(ids, skip_special_tokens=skip_special)
    assert padded.fingerprint == tiny.fingerprint
