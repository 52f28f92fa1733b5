"""A tokenizer whose ids are bytes, with three special tokens and a ChatML template: text parts for tests without a model."""

from __future__ import annotations

import tokenizers
from tokenizers import AddedToken, decoders, models, pre_tokenizers

from sglang_lite.runtime.executor.ports import TextParts
from sglang_lite.runtime.text.chat import ChatTemplate
from sglang_lite.runtime.text.tokenizer import Tokenizer
from sglang_lite.runtime.text.vocabulary import VocabInfo, _byte_level_table

CHATML = (
    "{% for m in messages %}{% if loop.first and m['role'] != 'system' %}<|im_start|>system\nBe kind.<|im_end|>\n{% endif %}"
    "<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
START, END, PAD = 256, 257, 258
VOCAB_SIZE = 259


def toy_tokenizer(*, add_bos: bool = False) -> Tokenizer:
    """Ids 0 to 255 are the bytes; 256 `<|im_start|>`, 257 `<|im_end|>` (ends a generation), 258 `<pad>`."""
    alphabet = {chr(code): ord(byte) for code, byte in _byte_level_table().items()}
    backend = tokenizers.Tokenizer(models.BPE(vocab=alphabet, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(
        [AddedToken(text, special=True, normalized=False) for text in ("<|im_start|>", "<|im_end|>", "<pad>")]
    )
    info = VocabInfo("byte_level", bos_id=START, eos_id=END, pad_id=PAD, eos_ids=(END,), add_bos=add_bos)
    return Tokenizer(backend, info)


def toy_text(*, add_bos: bool = False) -> TextParts:
    """The tokenizer with its template."""
    tokenizer = toy_tokenizer(add_bos=add_bos)
    return TextParts(tokenizer, ChatTemplate(CHATML, tokenizer.template_variables), tokenizer.visible_bytes)
