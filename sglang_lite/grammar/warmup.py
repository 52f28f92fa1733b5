"""Compiles the package's kernels ahead of the first request, or loads them from their cache on disk."""

from __future__ import annotations

import numpy as np

from sglang_lite.grammar.automata import are_disjoint, build_nfa
from sglang_lite.grammar.compiler import GrammarCompiler
from sglang_lite.grammar.matcher import GrammarMatcher
from sglang_lite.grammar.regex import parse_regex
from sglang_lite.grammar.tables import LazyTables
from sglang_lite.grammar.vocab import TokenVocab


def compile_all() -> None:
    """Run every compiled loop once on a tiny grammar. Takes tens of seconds the first time on a machine, under a second later."""
    vocab = TokenVocab([b"a", b"ab", b"b", b"b", None], eos_ids=[4])
    # More states than the tables begin with, so that growth is compiled too.
    compiled = GrammarCompiler(vocab).compile_regex("a[ab]{100}")
    matcher = GrammarMatcher(compiled)
    matcher.forced_bytes()
    while matcher.accept_tokens([1, 2]):
        matcher.allowed_ids()
    compiled.compressed()
    GrammarCompiler(vocab).compile_ebnf('root ::= "a" root? "b"').accepts("aabb")
    are_disjoint(parse_regex("a+"), parse_regex("b+"))
    tables = LazyTables(build_nfa(parse_regex("a")), max_bytes=1 << 20)
    tables.spans_end(np.zeros(1, np.uint8), tables.start, vocab.trie)
