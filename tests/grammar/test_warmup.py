from __future__ import annotations

from numba.core.dispatcher import Dispatcher

from sglang_lite.grammar import compile_all, kernels
from tests.grammar.toy import regex

CALLED_FROM_PYTHON = [
    "advance",
    "advance_known",
    "check_trie",
    "expand",
    "follow_forced",
    "lay_out_trie",
    "rehash",
    "start_state",
    "walk",
]


def signatures() -> dict[str, int]:
    return {name: len(item.nopython_signatures) for name, item in vars(kernels).items() if isinstance(item, Dispatcher)}


def test_after_the_warm_up_no_grammar_compiles_a_kernel() -> None:
    """Each has one signature; a second one would be compiled in the middle of somebody's request."""
    compile_all()
    ready = signatures()
    assert [ready[name] for name in CALLED_FROM_PYTHON] == [1] * len(CALLED_FROM_PYTHON)
    compiled = regex(r"(\w+ ){1,3}end")
    compiled.accepts("one two end")
    compiled.mask(compiled.start_state)
    compiled.compressed()
    assert signatures() == ready
