"""From messages to token ids: the model's template, in which nothing that a message says becomes a control token."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sglang_lite.errors import RequestError
from sglang_lite.runtime.server.service import with_bos
from sglang_lite.runtime.text.chat import ChatTemplate
from sglang_lite.runtime.text.tokenizer import Tokenizer

Messages = Sequence[dict[str, Any]]
Piece = tuple[str, bool]


def chat_ids(
    tokenizer: Tokenizer,
    chat: ChatTemplate,
    messages: Messages,
    variables: dict[str, Any] | None,
    *,
    continue_final: bool,
) -> list[int]:
    """The prompt's ids.

    A template that writes turn by turn is written that way, with contents that are never parsed for special tokens. Of any
    other the whole text is taken, and contents that hold the text of a special token are refused.

    Args:
        continue_final: the last message, the assistant's, is the beginning of the answer.

    Raises:
        RequestError: the template refuses the messages (its own words), or see above.
    """
    if continue_final and messages[-1]["role"] != "assistant":
        raise RequestError("reading the request: continue_final_message, but the last message is not the assistant's")
    if continue_final:
        pieces = None if variables else _pieces(chat, messages, continue_final=True)
        if pieces is None:
            raise RequestError(
                "reading the request: continue_final_message needs a template that writes turn by turn, without "
                "chat_template_kwargs; leave it out"
            )
    else:
        text = chat.render(messages, True, variables)
        pieces = None if variables else _pieces(chat, messages, continue_final=False)
        if pieces is None or "".join(piece for piece, _ in pieces) != text:
            _refuse_special(tokenizer, messages)
            pieces = [(text, True)]
    return with_bos(tokenizer, tokenizer.encode_pieces(pieces), from_template=True)


def _pieces(chat: ChatTemplate, messages: Messages, *, continue_final: bool) -> list[Piece] | None:
    """(text, may hold special tokens) of the whole prompt; None: the template does not write turn by turn."""
    history: list[tuple[str, str]] = []
    pieces: list[Piece] = []
    try:
        for number, message in enumerate(messages):
            role, content = message["role"], message["content"]
            is_open = continue_final and number == len(messages) - 1
            pieces.append((chat.role_begin(history, role, closed=not is_open), True))
            pieces.append((content if is_open else chat.shown_content(history, role, content), False))
            if is_open:
                return pieces
            pieces.append((chat.role_end(history, role), True))
            history.append((role, content))
        pieces.append((chat.role_begin(history, "assistant"), True))
    except RequestError:
        return None
    return pieces


def _refuse_special(tokenizer: Tokenizer, messages: Messages) -> None:
    for number, message in enumerate(messages):
        found = [token for token in tokenizer.special_tokens if token in message["content"]]
        if found:
            raise RequestError(
                f"reading the request: messages.{number} holds {found[0]!r}, a control token of the model, which this "
                "model's template cannot keep apart from its own; leave it out"
            )
