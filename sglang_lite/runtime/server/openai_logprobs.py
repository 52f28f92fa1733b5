"""OpenAI's two forms of log-probabilities, from the engine's lists."""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from typing import Any

from sglang_lite.op_json import NOT_FINITE
from sglang_lite.runtime.text.tokenizer import Tokenizer

Entry = Sequence[Any]
"""(log-probability, token id, text)"""


def chat_logprobs(tokenizer: Tokenizer, meta: dict[str, Any], first: int, end: int) -> dict[str, Any]:
    """`choices[].logprobs` of a chat answer, for its tokens `first` to `end`."""
    tops = meta.get("output_top_logprobs")
    content: list[dict[str, Any]] = []
    for i in range(first, end):
        value, token_id, _ = meta["output_token_logprobs"][i]
        top = [_chat_token(tokenizer, one[1], one[0]) for one in tops[i]] if tops else []
        content.append(_chat_token(tokenizer, token_id, value) | {"top_logprobs": top})
    return {"content": content, "refusal": None}


def completion_logprobs(
    tokenizer: Tokenizer,
    entries: Sequence[Entry],
    tops: Sequence[Sequence[Entry] | None] | None,
    pieces: Sequence[str],
    offset: int,
) -> dict[str, Any]:
    """`choices[].logprobs` of a completion.

    Args:
        entries: one a token.
        tops: the most likely tokens at each position, where they are known.
        pieces: each token's share of the text (see `text_pieces`).
        offset: where the first one begins in the choice's text.
    """
    offsets: list[int] = []
    for piece in pieces:
        offsets.append(offset)
        offset += len(piece)
    rows: list[dict[str, float] | None] = []
    for i, entry in enumerate(entries):
        top = tops[i] if tops is not None else None
        if top is None:
            rows.append(None if entry[0] is None else {})
        else:
            named: dict[str, float] = {}
            for one in top:  # best first: it is the one that is told of several tokens with one name, or with no text
                named.setdefault(token_name(tokenizer, one[1]), _number(one[0]))
            rows.append(named)
    return {
        "tokens": list(pieces),
        "token_logprobs": [None if entry[0] is None else _number(entry[0]) for entry in entries],
        "top_logprobs": rows if tops is not None else None,
        "text_offset": offsets,
    }


def text_pieces(tokenizer: Tokenizer, ids: Sequence[int], text: str, *, is_visible: bool = False) -> list[str]:
    """Each token's share of `text`: a character cut over tokens goes to its last one, so that the shares join to the text.

    Args:
        is_visible: special tokens have no text, as in output.
    """
    source = tokenizer.visible_bytes if is_visible else tokenizer.token_bytes
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    pieces = [decoder.decode(source[token_id]) for token_id in ids]
    if pieces and (rest := decoder.decode(b"", final=True)):
        pieces[-1] += rest
    joined = "".join(pieces)
    surplus = len(joined) - len(text)
    if surplus > 0 and joined.endswith(text):  # a begin token, or the space that a tokenizer puts in front
        for i, piece in enumerate(pieces):
            cut = min(surplus, len(piece))
            pieces[i] = piece[cut:]
            surplus -= cut
    return pieces


def token_name(tokenizer: Tokenizer, token_id: int) -> str:
    """A token as a key: its text, or its bytes where they are no characters by themselves."""
    data = tokenizer.token_bytes[token_id]
    try:
        return data.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in data)


def _chat_token(tokenizer: Tokenizer, token_id: int, value: float | None) -> dict[str, Any]:
    data = tokenizer.token_bytes[token_id]
    return {"token": data.decode("utf-8", "replace"), "logprob": _number(value), "bytes": list(data)}


def _number(value: float | None) -> float:
    """OpenAI writes -9999.0 where there is no number."""
    return -NOT_FINITE if value is None or not value > -NOT_FINITE else value
