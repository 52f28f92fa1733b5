"""The pre-tokenizers that GGUF files name in `tokenizer.ggml.pre`; knows no vocabulary.

A byte-level BPE never merges across the borders its pre-tokenizer draws, so a wrong one gives wrong ids for right text.
The patterns are those of the published tokenizer.json of each family; the names are the ones converters write.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sglang_lite.errors import ModelLoadError

if TYPE_CHECKING:
    from tokenizers import pre_tokenizers

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_TAIL = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_TAIL_SLASH = r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA3 = _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}" + _TAIL
QWEN2 = _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}" + _TAIL
QWEN35 = (
    _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_UPPER_FIRST = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
_UPPER_ONLY = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
TEKKEN = rf"{_UPPER_FIRST}|{_UPPER_ONLY}|\p{{N}}" + _TAIL_SLASH
GPT4O = rf"{_UPPER_FIRST}{_CONTRACTIONS}?|{_UPPER_ONLY}{_CONTRACTIONS}?|\p{{N}}{{1,3}}" + _TAIL_SLASH
DEEPSEEK3 = (
    r"\p{N}{1,3}",
    "[一-龥\u3040-ゟ゠-ヿ]+",
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
    r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
)
DEEPSEEK_CODER = (r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[一-龥ࠀ-一가-\ud7ff]+", r"\p{N}")
_PUNCTUATION = r"[\p{P}\$\+<=>\^~\|`]+"


@dataclass(frozen=True, slots=True)
class PreTokenizer:
    """How one family cuts text before merging.

    Attributes:
        splits: patterns applied in order; each cuts the pieces so far into matches and what lies between them.
        ignore_merges: a piece that is a token as a whole is that token, whatever the merges say.
        nfc: text is brought to Unicode form NFC first.
        add_bos: what a file means that does not set `tokenizer.ggml.add_bos_token`.
    """

    splits: tuple[str, ...]
    ignore_merges: bool = False
    nfc: bool = False
    add_bos: bool = False

    def build(self) -> pre_tokenizers.PreTokenizer:
        """The pre-tokenizer of the `tokenizers` library, byte alphabet included."""
        from tokenizers import Regex, pre_tokenizers

        steps: list[pre_tokenizers.PreTokenizer] = [
            pre_tokenizers.Split(Regex(pattern), behavior="isolated", invert=False) for pattern in self.splits
        ]
        steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False))
        return pre_tokenizers.Sequence(steps)


_GPT2 = PreTokenizer((GPT2,))
_DIGITS_GPT2 = PreTokenizer((r"\p{N}", GPT2))
_LLAMA3 = PreTokenizer((LLAMA3,), ignore_merges=True, add_bos=True)
_LLAMA3_PATTERN = PreTokenizer((LLAMA3,))
_QWEN2_PATTERN = PreTokenizer((QWEN2,))

KNOWN: dict[str, PreTokenizer] = {
    "default": PreTokenizer((_PUNCTUATION, GPT2, r"\p{N}+", "[0-9][0-9][0-9]")),
    **dict.fromkeys(("gpt-2", "phi-2", "mpt", "olmo", "exaone4", "trillion", "granite-docling", "modern-bert"), _GPT2),
    **dict.fromkeys(("smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b"), _DIGITS_GPT2),
    **dict.fromkeys(("llama-bpe", "llama3", "llama-v3", "falcon3"), _LLAMA3),
    **dict.fromkeys(("dbrx", "smaug-bpe", "glm4", "chatglm-bpe"), _LLAMA3_PATTERN),
    "qwen2": PreTokenizer((QWEN2,), nfc=True),
    **dict.fromkeys(("deepseek-r1-qwen", "stablelm2", "hunyuan", "megrez"), _QWEN2_PATTERN),
    "qwen35": PreTokenizer((QWEN35,), nfc=True),
    "tekken": PreTokenizer((TEKKEN,), ignore_merges=True, add_bos=True),
    **dict.fromkeys(("gpt-4o", "llama4"), PreTokenizer((GPT4O,))),
    **dict.fromkeys(("deepseek-v3", "hunyuan-dense"), PreTokenizer(DEEPSEEK3)),
    "deepseek-coder": PreTokenizer(DEEPSEEK_CODER),
    "falcon": PreTokenizer((_PUNCTUATION, GPT2, "[0-9][0-9][0-9]")),
}


def find_pre_tokenizer(name: str) -> PreTokenizer:
    """The pre-tokenizer called `name`.

    Raises:
        ModelLoadError: the name is not known; guessing would give wrong ids without a sign.
    """
    try:
        return KNOWN[name]
    except KeyError:
        raise ModelLoadError(
            f"building the tokenizer: tokenizer.ggml.pre is {name!r}, which is not known here "
            f"(known: {', '.join(sorted(KNOWN))}); use the model's folder with its tokenizer.json instead"
        ) from None
