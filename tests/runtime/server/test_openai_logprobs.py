from __future__ import annotations

from sglang_lite.runtime.server.openai_logprobs import chat_logprobs, completion_logprobs, text_pieces, token_name
from tests.support.toy_text import START, toy_tokenizer

TOKENIZER = toy_tokenizer()


def test_pieces_join_to_the_text_whatever_cuts_a_character() -> None:
    text = "aé\U0001f469b"
    pieces = text_pieces(TOKENIZER, list(text.encode()), text)
    assert "".join(pieces) == text
    assert pieces[:3] == ["a", "", "é"]


def test_a_begin_token_that_was_added_has_no_text() -> None:
    assert text_pieces(TOKENIZER, [START, 72, 105], "Hi") == ["", "H", "i"]
    assert text_pieces(TOKENIZER, [START, 72], "<|im_start|>H") == ["<|im_start|>", "H"]
    assert text_pieces(TOKENIZER, [START, 72], "H", is_visible=True) == ["", "H"]


def test_bytes_that_are_no_character_have_a_name() -> None:
    assert token_name(TOKENIZER, 72) == "H"
    assert token_name(TOKENIZER, 0xC3) == "bytes:\\xc3"


def test_no_number_is_written_as_openai_does() -> None:
    entries = [(None, 72, None), (float("-inf"), 105, None)]
    got = completion_logprobs(TOKENIZER, entries, [None, [(-1.0, 105, None)]], ["H", "i"], 5)
    assert got == {
        "tokens": ["H", "i"],
        "token_logprobs": [None, -9999.0],
        "top_logprobs": [None, {"i": -1.0}],
        "text_offset": [5, 6],
    }


def test_a_slice_of_a_chat_answer() -> None:
    meta = {"output_token_logprobs": [(-1.0, 72, None), (-2.0, 0xC3, None)]}
    (entry,) = chat_logprobs(TOKENIZER, meta, 1, 2)["content"]
    assert entry == {"token": "\ufffd", "logprob": -2.0, "bytes": [0xC3], "top_logprobs": []}


def test_of_tokens_with_one_name_the_most_likely_is_told() -> None:
    """Tokens without text have all the same."""
    padded = toy_tokenizer()
    padded.cover(padded.vocab_size + 2)
    first = padded.vocab_size - 2
    top = [(-1.0, first + 1, None), (-2.0, 72, None), (-3.0, first, None)]
    got = completion_logprobs(padded, [(-3.0, first, None)], [top], [""], 0)
    assert got["top_logprobs"] == [{"": -1.0, "H": -2.0}]
