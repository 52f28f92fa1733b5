"""The last programs are remembered, a bounded number of them and of a bounded size, and can be shown without texts."""

from __future__ import annotations

import json

from sglang_lite.request_tree import GenOp, OpDone, SamplingParams, TextOp
from sglang_lite.runtime.server.recent_programs import KEPT, MAX_OPS, RecentPrograms, without_texts
from tests.records.support import recorded


def test_the_oldest_is_forgotten() -> None:
    recent = RecentPrograms("m")
    for number in range(KEPT + 2):
        recent.open(f"p{number}", None)
    names = [one["name"] for one in recent.overview()]
    assert (len(names), names[0], names[-1]) == (KEPT, f"p{KEPT + 1}", "p2")
    assert recent.record("p0", with_texts=True) is None


def test_a_program_too_large_keeps_its_counts_only() -> None:
    recent = RecentPrograms("m")
    program = recent.open("big", 1)
    program.sent([TextOp(number, 0, "x") for number in range(MAX_OPS)])
    assert recent.record("big", with_texts=True) is not None
    program.sent([GenOp(MAX_OPS, 0, "x", SamplingParams())])
    program.take(OpDone(MAX_OPS, "y", "y"))
    assert recent.record("big", with_texts=True) is None
    (shown,) = recent.overview()
    assert (shown["ops"], shown["calls"], shown["has_record"]) == (MAX_OPS + 1, 1, False)


def test_what_is_shown_without_texts_has_structure_and_counts_and_no_word() -> None:
    words = ("Be short", "Why", "tea", "two three", "the end", "topic", "idea", "Best")
    whole = recorded().to_json()
    hidden = without_texts(whole)
    assert all(word in json.dumps(whole) for word in words)
    assert not any(word in json.dumps(hidden) for word in words)
    assert [entry["op"]["op"] for entry in hidden["ops"]] == [entry["op"]["op"] for entry in whole["ops"]]
    assert [entry.get("usage") for entry in hidden["ops"]] == [entry.get("usage") for entry in whole["ops"]]
