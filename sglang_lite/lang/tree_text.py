"""A request tree as text for people: one op a line, children of a fork indented; it executes nothing."""

from __future__ import annotations

from collections.abc import Iterator

from sglang_lite.request_tree import (
    ArgOp,
    DecideOp,
    ForkOp,
    GenOp,
    JoinOp,
    Op,
    RefOp,
    RequestTree,
    RewindOp,
    RoleBeginOp,
    RoleEndOp,
    SamplingParams,
    SelectOp,
    TemplateOp,
    TextOp,
)
from sglang_lite.sampling_params import CONSTRAINTS

_WIDTH = 60


def tree_text(label: str, tree: RequestTree) -> str:
    """The whole tree, depth first: what a fork child appends stands below its fork."""
    return "\n".join([f"{label}:", *_branch_lines(tree, 0, 1)])


def _branch_lines(tree: RequestTree, branch: int, depth: int) -> Iterator[str]:
    for op in tree.ops.values():
        if op.branch != branch:
            continue
        yield f"{'  ' * depth}{op.id} {_op_text(op)}"
        if isinstance(op, ForkOp):
            for child in op.children:
                yield f"{'  ' * (depth + 1)}branch {child}:"
                yield from _branch_lines(tree, child, depth + 2)


def _op_text(op: Op) -> str:
    match op:
        case TextOp(text=text):
            return f"text {_shortened(text)}"
        case RoleBeginOp(role=role):
            return f"role_begin {role}"
        case RoleEndOp():
            return "role_end"
        case TemplateOp(variables=variables):
            return f"template {_shortened(variables, quote=False)}"
        case GenOp(name=name, params=params):
            return f"gen {_name(name)}{_limits(params)}"
        case SelectOp(name=name, choices=choices):
            return f"select {_name(name)} of {_shortened(', '.join(choices))}"
        case DecideOp(select=select, index=index):
            return f"decide op {select}: {index}"
        case RefOp(target=target):
            return f"ref to op {target}"
        case _:
            return _edge_text(op)


def _edge_text(op: Op) -> str:
    """An op that ties branches together, or has little to show."""
    match op:
        case ArgOp(name=name):
            return f"arg {name}"
        case ForkOp(children=children):
            return f"fork {len(children)}"
        case JoinOp(children=children, mode=mode):
            race = f" first={op.first}" if op.first is not None else f" vote={op.vote!r}" if op.vote is not None else ""
            return f"join {mode} of branches {', '.join(map(str, children))}{race}"
        case RewindOp(mark=mark):
            return f"rewind to op {mark}"
        case _:
            return type(op).__name__.removesuffix("Op").lower()


def _name(name: str | None) -> str:
    return "(no name)" if name is None else name


def _limits(params: SamplingParams) -> str:
    """What a gen was given beside its name, where it differs from the defaults."""
    default = SamplingParams()
    names = ("max_new_tokens", "temperature", "n", "stop", *CONSTRAINTS)
    given = [
        f"{name}={_shortened(repr(getattr(params, name)), quote=False)}"
        for name in names
        if _differs(params, default, name)
    ]
    return f" ({', '.join(given)})" if given else ""


def _differs(params: SamplingParams, default: SamplingParams, name: str) -> bool:
    return getattr(params, name) != getattr(default, name)


def _shortened(text: str, *, quote: bool = True) -> str:
    cut = text if len(text) <= _WIDTH else f"{text[:_WIDTH]}..."
    return repr(cut) if quote else cut
