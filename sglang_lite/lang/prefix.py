"""What every run of a program begins with, and how a backend gets it ahead of them."""

from __future__ import annotations

from collections.abc import Sequence

from sglang_lite.lang.ir import SglConstantText, SglExpr, SglGen, SglRoleBegin, SglRoleEnd
from sglang_lite.lang.runner import Call, run
from sglang_lite.lang.state import ProgramState
from sglang_lite.lang.tracer import TracerProgramState, symbolic_prefix
from sglang_lite.request_tree import Backend, Op, RoleBeginOp, RoleEndOp, TextOp


def cache_prefix(traced: TracerProgramState, backend: Backend) -> None:
    """Compute the known text at the beginning of a trace; the backend keeps it as it keeps any prefix.

    Raises:
        Exception: the backend's error.
    """
    nodes = _nodes(symbolic_prefix(traced))
    if not nodes:
        return

    def body(s: ProgramState) -> None:
        for node in nodes:
            s += node
        s += SglGen(max_tokens=0, temperature=0.0)

    run(Call(body, (), {}, backend))


def _nodes(ops: Sequence[Op]) -> list[SglExpr]:
    nodes: list[SglExpr] = []
    role = ""
    for op in ops:
        match op:
            case TextOp(text=text, literal=literal):
                nodes.append(SglConstantText(text, literal))
            case RoleBeginOp(role=role):
                nodes.append(SglRoleBegin(role))
            case RoleEndOp():
                nodes.append(SglRoleEnd(role))
            case _:
                raise AssertionError(f"op {op.id}, a {type(op).__name__}, is no known text")
    return nodes
