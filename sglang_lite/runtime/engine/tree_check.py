"""Looks at a tree before it runs: grammars, stops, lengths; it runs nothing and knows no scheduler."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import numpy as np

from sglang_lite.errors import SglangLiteError
from sglang_lite.request_tree import Finding, GenOp, RequestTree, SamplingParams, SelectOp
from sglang_lite.runtime.engine.requests import Limits
from sglang_lite.runtime.executor.lengths import Lengths, LengthWalk, Need, unknown_arguments
from sglang_lite.runtime.executor.ports import TextParts

logger = logging.getLogger(__name__)

Compile = Callable[[SamplingParams], Future[Any]]
"""Starts compiling the constraint of some parameters."""


def check_tree(
    tree: RequestTree, text: TextParts, limits: Limits, compile_grammar: Compile, kv_bytes_per_token: float
) -> list[Finding]:
    """What is wrong with `tree`, what may go wrong, and its bounds; findings in the order of the ops, the bounds last."""
    gens = [op for op in tree.ops.values() if isinstance(op, GenOp)]
    grammars = {
        op.id: compile_grammar(op.params.with_(thinking=None, thinking_budget=None))
        for op in gens
        if op.params.constraint is not None
    }
    lengths = LengthWalk(text, limits.context_length).walk(tree)
    findings = [Finding(op, "error", message) for op, message in lengths.errors.items()]
    findings += [finding for need in lengths.needs for finding in _length_findings(need, limits)]
    for op in gens:
        if op.id in grammars:
            findings += _grammar_findings(op, grammars[op.id], text.tokenizer.vocab_size)
    places = {op: place for place, op in enumerate(tree.ops)}
    findings.sort(key=lambda finding: places[finding.op] if finding.op is not None else len(places))
    return [*findings, _bounds(tree, lengths, limits, kv_bytes_per_token)]


def _label(op: GenOp | SelectOp) -> str:
    name = f" {op.name!r}" if op.name is not None else ""
    return f"{type(op).__name__.removesuffix('Op').lower()}{name} (op {op.id}, branch {op.branch})"


def _length_findings(need: Need, limits: Limits) -> list[Finding]:
    op, room = need.op, min(limits.context_length, limits.pool_tokens)
    what = (
        f"the context holds {limits.context_length}"
        if room == limits.context_length
        else f"the KV pool has {limits.pool_tokens}"
    )
    if need.prompt_low + need.output_low > room:
        more = f" and {need.output_low} must follow" if need.output_low else ""
        message = f"{_label(op)}: its prompt has at least {need.prompt_low} tokens{more}, {what}; shorten it"
        return [Finding(op.id, "error", message)]
    if need.prompt_high + need.output_high > room:
        message = (
            f"{_label(op)}: up to {need.prompt_high} tokens of prompt and {need.output_high} after them, {what}: it may "
            "be refused or cut; lower max_tokens"
        )
        return [Finding(op.id, "warning", message)]
    return []


def _grammar_findings(op: GenOp, compiled: Future[Any], vocab_size: int) -> list[Finding]:
    kind = op.params.constraint
    try:
        matcher = compiled.result()
    except SglangLiteError as error:
        return [Finding(op.id, "error", f"{_label(op)}: {error}")]
    except Exception as error:
        logger.exception("checking %s: its grammar failed", _label(op))
        return [Finding(op.id, "error", f"{_label(op)}: compiling its {kind}: {error!r}")]
    allowed = np.zeros((1, -(-vocab_size // 32)), np.int32)
    matcher.fill_bitmask(allowed)
    if not allowed.any():
        message = f"{_label(op)}: no text matches its {kind} {getattr(op.params, str(kind))!r:.200}"
        return [Finding(op.id, "error", message)]
    return [
        Finding(
            op.id,
            "warning",
            f"{_label(op)}: the stop {stop!r} never comes: no text of its {kind} has it; leave it out",
        )
        for stop in op.params.stop
        if _is_unreachable(stop, op.params)
    ]


def _is_unreachable(stop: str, params: SamplingParams) -> bool:
    """Whether no text under the constraint has `stop` in it; False where that cannot be told."""
    if params.choices is not None:
        return not any(stop in choice for choice in params.choices)
    if params.thinking is not None:  # the stop may come in the thinking
        return False
    from sglang_lite.grammar import Grammar, GrammarError, schema_to_grammar  # numba: only when a grammar is used
    from sglang_lite.grammar.automata import build_nfa
    from sglang_lite.grammar.regex import parse_regex
    from sglang_lite.grammar.syntax import Bytes, both, concat

    try:
        if params.regex is not None:
            language = Grammar(parse_regex(params.regex))
        elif params.json_schema is not None and params.json_whitespace in (None, "compact"):
            language = schema_to_grammar(params.json_schema).grammar
        else:
            return False
        anything = parse_regex(r"[\s\S]*")
        with_stop = concat([anything, Bytes(stop.encode()), anything])
        return build_nfa(Grammar(both(language.start, with_stop), language.rules)).start < 0
    except (GrammarError, ValueError):  # recursive, or too large a product: it cannot be told
        return False


def _bounds(tree: RequestTree, lengths: Lengths, limits: Limits, kv_bytes_per_token: float) -> Finding:
    longest = max((need.prompt_high + need.output_high for need in lengths.needs), default=0)
    longest = min(longest, limits.context_length)
    size = lengths.kv_high * kv_bytes_per_token
    message = (
        f"at most {lengths.output_high} tokens generated, {longest} on the longest branch, KV of {lengths.kv_high} tokens "
        f"({size / 2**20:.1f} MiB) for the whole tree, the pool has {limits.pool_tokens}{unknown_arguments(tree)}"
    )
    return Finding(None, "info", message)
