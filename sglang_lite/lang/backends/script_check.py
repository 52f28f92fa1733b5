"""What can be said of a tree without a model: constraints, stops of choices, and lengths in words; it runs nothing."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from sglang_lite.lang.backends.script import words
from sglang_lite.request_tree import ArgOp, Finding, GenOp, RequestTree, SamplingParams, SelectOp, TextOp


def check_script(tree: RequestTree) -> list[Finding]:
    """Findings in the order of the ops, the bounds last. Texts count in words, as `max_tokens` does here."""
    findings = [finding for op in tree.ops.values() if isinstance(op, GenOp) for finding in _gen_findings(op)]
    return [*findings, _bounds(tree)]


def _gen_findings(op: GenOp) -> Iterator[Finding]:
    label = f"gen{f' {op.name!r}' if op.name is not None else ''} (op {op.id}, branch {op.branch})"
    wrong = _constraint_error(op.params)
    if wrong is not None:
        yield Finding(op.id, "error", f"{label}: {wrong}")
        return
    for stop in op.params.stop:
        if op.params.choices is not None and not any(stop in choice for choice in op.params.choices):
            message = f"{label}: the stop {stop!r} never comes: no text of its choices has it; leave it out"
            yield Finding(op.id, "warning", message)


def _constraint_error(params: SamplingParams) -> str | None:
    """Why no text can be checked against the constraint; None: it can."""
    if params.regex is not None:
        try:
            re.compile(params.regex)
        except re.error as error:
            return f"its regex {params.regex!r} is no regular expression: {error}"
    if params.json_schema is not None:
        try:
            schema: object = json.loads(params.json_schema)
        except json.JSONDecodeError as error:
            return f"its json_schema is no JSON: {error}"
        if schema is False:
            return "no text matches its json_schema false"
    return None


def _bounds(tree: RequestTree) -> Finding:
    text = output = 0
    for op in tree.ops.values():
        match op:
            case TextOp(text=given):
                text += len(words(given))
            case GenOp(params=params):
                output += (params.max_new_tokens or 0) * params.n
            case SelectOp(choices=choices):
                output += max(len(words(choice)) for choice in choices)
            case _:
                pass
    is_open = any(isinstance(op, GenOp) and op.params.max_new_tokens is None for op in tree.ops.values())
    names = sorted({op.name for op in tree.ops.values() if isinstance(op, ArgOp)})
    message = (
        f"{text} words of text{f', the arguments {names} not counted' if names else ''}; at most {output} words generated"
        f"{', those of gens without max_tokens not counted' if is_open else ''}; a script has no context and no KV"
    )
    return Finding(None, "info", message)
