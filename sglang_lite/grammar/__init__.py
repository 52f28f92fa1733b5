"""Grammar-constrained decoding, usable alone: a text and a vocabulary in, token masks out.

```python
vocab = TokenVocab(token_bytes, eos_ids=[0])  # or TokenVocab.from_tokenizer(tokenizer)
compiled = GrammarCompiler(vocab).compile_regex(r"(yes|no)!")
matcher = GrammarMatcher(compiled)
bitmask = allocate_token_bitmask(1, vocab.vocab_size)
matcher.fill_bitmask(bitmask)  # int32 [1, ceil(V / 32)], bit 1 = allowed
apply_token_bitmask_inplace(logits, bitmask)
matcher.accept_token(token_id)  # False if it is not legal
```

Front ends: `compile_regex`, `compile_choices`, `compile_json_schema`, `compile_ebnf` (GBNF), `compile_lark`, `compile_structural_tag` (JSON), `compile_structural_tags`
(objects), and `compile_grammar` for the
nodes of `sglang_lite.grammar.syntax`. A vocabulary with `encode=` also gives `matcher.jump_forward()`.

Needs NumPy and Numba only. They are loaded with the first name that needs them, not with the package.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from sglang_lite.grammar.errors import (
    GrammarError,
    GrammarTooLargeError,
    InvalidBitmaskError,
    InvalidGrammarError,
    InvalidRollbackError,
    InvalidVocabularyError,
    UnsupportedGrammarError,
)

if TYPE_CHECKING:
    from sglang_lite.grammar.automata import are_disjoint, is_empty, is_subset
    from sglang_lite.grammar.bitmask import allocate_token_bitmask, apply_token_bitmask_inplace, bitmask_shape
    from sglang_lite.grammar.compiled import CompiledGrammar, GrammarSource, GrammarStatistics
    from sglang_lite.grammar.compiler import GrammarCompiler
    from sglang_lite.grammar.compressed import CompressedEdge, CompressedFsm
    from sglang_lite.grammar.json_schema import (
        SchemaGrammar,
        SchemaNote,
        SchemaOptions,
        describe_schema,
        schema_to_grammar,
    )
    from sglang_lite.grammar.matcher import GrammarMatcher
    from sglang_lite.grammar.pieces import piece_bytes, rank_bytes
    from sglang_lite.grammar.structural_tags import StructuralTag
    from sglang_lite.grammar.syntax import Grammar
    from sglang_lite.grammar.vocab import TokenVocab
    from sglang_lite.grammar.warmup import compile_all

__all__ = [
    "CompiledGrammar",
    "CompressedEdge",
    "CompressedFsm",
    "Grammar",
    "GrammarCompiler",
    "GrammarError",
    "GrammarMatcher",
    "GrammarSource",
    "GrammarStatistics",
    "GrammarTooLargeError",
    "InvalidBitmaskError",
    "InvalidGrammarError",
    "InvalidRollbackError",
    "InvalidVocabularyError",
    "SchemaGrammar",
    "SchemaNote",
    "SchemaOptions",
    "StructuralTag",
    "TokenVocab",
    "UnsupportedGrammarError",
    "allocate_token_bitmask",
    "apply_token_bitmask_inplace",
    "are_disjoint",
    "bitmask_shape",
    "compile_all",
    "describe_schema",
    "is_empty",
    "is_subset",
    "piece_bytes",
    "rank_bytes",
    "schema_to_grammar",
]

# Numba takes most of a second to import and NumPy a tenth, so what needs them is loaded when it is first asked for.
_HOMES = {
    "CompiledGrammar": "compiled",
    "CompressedEdge": "compressed",
    "CompressedFsm": "compressed",
    "Grammar": "syntax",
    "GrammarCompiler": "compiler",
    "GrammarMatcher": "matcher",
    "GrammarSource": "compiled",
    "GrammarStatistics": "compiled",
    "SchemaGrammar": "json_schema",
    "SchemaNote": "json_schema",
    "SchemaOptions": "json_schema",
    "StructuralTag": "structural_tags",
    "TokenVocab": "vocab",
    "allocate_token_bitmask": "bitmask",
    "apply_token_bitmask_inplace": "bitmask",
    "are_disjoint": "automata",
    "bitmask_shape": "bitmask",
    "compile_all": "warmup",
    "describe_schema": "json_schema",
    "is_empty": "automata",
    "is_subset": "automata",
    "piece_bytes": "pieces",
    "rank_bytes": "pieces",
    "schema_to_grammar": "json_schema",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
