"""Where a text may be cut so that its parts, one after the other, tokenise as the whole does; knows no cache.

Cut into words, most texts consist of what was tokenised before, though no two of them are equal.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from sglang_lite.runtime.text.pre_tokenizers import GPT2, KNOWN

if TYPE_CHECKING:
    import tokenizers

_CUT = re.compile(r"(?<=[A-Za-z.,;:!?])(?= [A-Za-z])")
_PATTERNS = frozenset(pattern for known in KNOWN.values() for pattern in known.splits) | {GPT2}


def cuts_at_words(backend: tokenizers.Tokenizer) -> bool:
    """Whether the tokenizer treats both sides of the cuts of `words` separately.

    True only of what is known to: byte-level BPE behind the patterns of `pre_tokenizers`. None of them matches across a
    place with a Latin letter or a mark before it, and a space and a Latin letter behind it, looks ahead over one, or looks
    back. NFC, too, joins nothing over it. Tokens that are looked for in the text before it is cut must not be ones that
    take the white space beside them, or reach over such a place.
    """
    from tokenizers import models, normalizers

    if not isinstance(backend.model, models.BPE) or backend.pre_tokenizer is None:
        return False
    if backend.normalizer is not None and not isinstance(backend.normalizer, normalizers.NFC):
        return False
    for token in backend.get_added_tokens_decoder().values():
        takes_more = token.lstrip or token.rstrip or token.single_word or _CUT.search(token.content)
        if takes_more and not token.special:
            return False
    return _splits_at_words(json.loads(backend.pre_tokenizer.__getstate__()))


def words(text: str) -> list[str]:
    """The parts of `text`, for a tokenizer that `cuts_at_words`; joined they are `text`."""
    return _CUT.split(text)


def _splits_at_words(step: dict[str, Any]) -> bool:
    """Whether a pre-tokenizer of tokenizer.json has a border at each such place, and all its steps keep to one side."""
    steps = step["pretokenizers"] if step["type"] == "Sequence" else [step]
    has_pattern = False
    for one in steps:
        match one:
            case {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}:
                if pattern not in _PATTERNS:
                    return False
                has_pattern = True
            case {"type": "ByteLevel", "use_regex": bool(use_regex)}:
                has_pattern = has_pattern or use_regex
            case {"type": "Digits"}:
                pass
            case _:
                return False
    return has_pattern
