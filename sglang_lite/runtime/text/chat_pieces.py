"""A rendered dialogue as pieces for the tokenizer, in which nothing that a message says becomes a control token.

Special tokens in given texts are rendered with a guard inside, a code point that no text has, so that they are told from
the template's own whatever the template does with the texts around them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Piece = tuple[str, bool]  # text, and whether special tokens in it are parsed

GUARD = "\ufdd1"


def tail_of(pieces: Sequence[Piece], num_chars: int) -> list[Piece]:
    """The pieces without their first `num_chars` characters."""
    found: list[Piece] = []
    for text, parse_special in pieces:
        if len(text) > num_chars:
            found.append((text[num_chars:], parse_special))
        num_chars = max(0, num_chars - len(text))
    return found


class SpecialGuard:
    """Guards and finds the texts of one tokenizer's special tokens."""

    def __init__(self, special_tokens: Iterable[str]) -> None:
        texts = sorted((text for text in special_tokens if len(text) > 1), key=len, reverse=True)
        self._plain = re.compile("|".join(map(re.escape, texts))) if texts else None
        guarded = [re.escape(text[0]) + GUARD + re.escape(text[1:]) for text in texts]
        self._split = re.compile("(" + "|".join([*guarded, GUARD]) + ")")

    def guarded(self, value: Any) -> Any:
        """A copy of plain data, with a guard in each special token of its texts."""
        if isinstance(value, str):
            return value if self._plain is None else self._plain.sub(lambda m: m[0][0] + GUARD + m[0][1:], value)
        if isinstance(value, Mapping):
            return {key: self.guarded(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.guarded(item) for item in value]
        return value

    def pieces(self, rendered: str) -> list[Piece]:
        """The rendered text without guards; what was guarded is never parsed."""
        if GUARD not in rendered:
            return [(rendered, True)] if rendered else []
        found: list[Piece] = []
        for index, part in enumerate(self._split.split(rendered)):
            text = part.replace(GUARD, "")
            if text:
                found.append((text, index % 2 == 0))
        return found


NO_GUARD = SpecialGuard(())
"""For tokenizers without special tokens."""
