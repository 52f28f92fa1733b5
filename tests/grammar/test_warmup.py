from __future__ import annotations

from numba.core.dispatcher import Dispatcher

from sglang_lite.grammar import compile_all, kernels, trie_kernels
from tests.grammar.toy import regex


def signatures() -> dict[str, int]:
    """Also of those that only other kernels call, so that none is compiled twice."""
    return {
        name: len(item.overloads)
        for module in (kernels, trie_kernels)
        for name, item in vars(module).items()
        if isinstance(item, Dispatcher) and item.py_func.__module__ == module.__name__
    }


def test_after_the_warm_up_no_grammar_compiles_a_kernel() -> None:
    """Each has one signature; a second one would be compiled in the middle of somebody's request."""
    compile_all()
    ready = signatures()
    assert set(ready.values()) <= {0, 1}  # 0: loaded from the cache as a part of its caller
    compiled = regex(r"(\w+ ){1,3}end")
    compiled.accepts("one two end")
    compiled.mask(compiled.start_state)
    compiled.compressed()
    assert signatures() == ready
