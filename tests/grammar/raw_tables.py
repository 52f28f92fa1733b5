"""Tables with little room, made without the class that grows them."""

from __future__ import annotations

import numpy as np

from sglang_lite.grammar.automata import build_nfa
from sglang_lite.grammar.kernels import BLOCK, DfaTables
from sglang_lite.grammar.nfa import ByteNfa
from sglang_lite.grammar.regex import parse_regex
from sglang_lite.grammar.syntax import Bytes, Grammar, Ref, alternate, concat


def tables(
    grammar: str | Grammar,
    *,
    states: int = 64,
    items: int = 256,
    cells: int = 64,
    rows: int | None = None,
    blocks: int = 1024,
) -> tuple[ByteNfa, DfaTables]:
    nfa = build_nfa(parse_regex(grammar) if isinstance(grammar, str) else grammar)
    dfa = DfaTables(
        row_of=np.zeros(states, np.int32),
        only=np.zeros((states, 2), np.int32),
        blocks=np.zeros((states if rows is None else rows, nfa.num_columns // BLOCK + 2), np.int32),
        targets=np.zeros((blocks, BLOCK), np.int32),
        set_offsets=np.zeros(states + 1, np.int32),
        set_items=np.zeros(items, np.int64),
        accepting=np.zeros(states, np.uint8),
        buckets=np.full(4 * states, -1, np.int32),
        counters=np.array([0, 0, 1, 0, 0, 0], np.int64),
        cell_parent=np.zeros(cells, np.int32),
        cell_return=np.zeros(cells, np.int32),
        cell_buckets=np.full(256, -1, np.int32),
        seen_keys=np.zeros(256, np.int64),
        seen_marks=np.zeros(256, np.int64),
        stack=np.zeros(256, np.int64),
        scratch=np.zeros(256, np.int64),
    )
    return nfa, dfa


NESTED = Grammar(Ref("a"), {"a": alternate([Bytes(b"x"), concat([Bytes(b"("), Ref("a"), Bytes(b")")])])})
