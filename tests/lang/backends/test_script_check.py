from __future__ import annotations

import pytest

from sglang_lite.lang.backends.scripted import ScriptedBackend
from sglang_lite.request_tree import (
    ArgOp,
    Finding,
    GenOp,
    Op,
    RequestTree,
    SamplingParams,
    SelectOp,
    TextOp,
    TreeChecker,
)


def findings(*ops: Op) -> list[Finding]:
    tree = RequestTree()
    for op in ops:
        tree.add(op)
    backend = ScriptedBackend()
    assert isinstance(backend, TreeChecker)
    return backend.check(tree)


def gen(**params: object) -> GenOp:
    return GenOp(1, 0, "x", SamplingParams(**{"max_new_tokens": 8, **params}))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("params", "severity", "message"),
    [
        ({"regex": "["}, "error", "gen 'x' (op 1, branch 0): its regex '[' is no regular expression"),
        ({"json_schema": "{"}, "error", "its json_schema is no JSON"),
        ({"json_schema": "false"}, "error", "no text matches its json_schema false"),
        ({"choices": ("a", "b"), "stop": ("c",)}, "warning", "the stop 'c' never comes"),
    ],
)
def test_what_a_script_can_see_is_found(params: dict[str, object], severity: str, message: str) -> None:
    found = findings(gen(**params))
    assert (found[0].op, found[0].severity, len(found)) == (1, severity, 2)
    assert message in found[0].message


def test_bounds_are_in_words_with_what_is_not_known() -> None:
    ops = [
        TextOp(0, 0, "two words"),
        gen(n=2),
        SelectOp(2, 0, "s", ("a b c", "d")),
        ArgOp(3, 0, "q"),
        GenOp(4, 0, None, SamplingParams(max_new_tokens=None)),
    ]
    (bounds,) = findings(*ops)
    assert bounds.severity == "info"
    assert bounds.message.startswith(
        "2 words of text, the arguments ['q'] not counted; at most 19 words generated, those of gens"
    )


def test_stops_that_come_and_free_gens_are_no_findings() -> None:
    assert len(findings(gen(choices=("a", "b"), stop=("b",)))) == 1
    assert len(findings(gen(stop=("z",)))) == 1
