"""Values and texts of a run as expressions: what is appended elsewhere without being waited for."""

from __future__ import annotations

from sglang_lite.errors import RequestError
from sglang_lite.lang.futures import OpFuture
from sglang_lite.lang.ir import SglConstantText, SglExpr, SglExprList, need_expr
from sglang_lite.lang.races import VoteValue
from sglang_lite.lang.reasoning import ThinkingValue
from sglang_lite.lang.session import Session
from sglang_lite.lang.symbols import SglArgument, SglRef, SglTextOf
from sglang_lite.lang.values import OpValue, PlainValue, ScopeValue, Value
from sglang_lite.request_tree import (
    ArgOp,
    CountOp,
    ForkOp,
    GenOp,
    JoinOp,
    MarkOp,
    Op,
    RefOp,
    RewindOp,
    SelectOp,
    TemplateOp,
    TextOp,
)


def ref_op(new: int, branch: int, ref: SglRef) -> Op:
    """A reference as an op."""
    return RefOp(new, branch, ref.target, ref.marks, ref.starts_inside)


def as_symbol(value: Value, session: Session, name: str) -> SglExpr:
    """A value as an expression that needs no waiting.

    Raises:
        RequestError: it is no text, or has roles in it, whose text the backend alone knows.
    """
    match value:
        case OpValue(future=future):
            return SglRef(session, future.op.id, name)
        case ThinkingValue(future=future, format=found, half="answer"):
            return SglRef(session, future.op.id, name, found.marks, found.starts_inside)
        case ScopeValue(futures=futures):
            return SglTextOf([text_symbol(future, session, name) for future in futures], f"the value {name!r}")
        case VoteValue(join=join):
            return SglRef(session, join.op.id, name)
        case PlainValue():
            return need_expr(f"referring to {name!r}", value.get())
        case _:
            raise RequestError(f"referring to {name!r}: it is no text of a gen or select; read it: s[{name!r}]")


def text_symbol(future: OpFuture, session: Session, name: str) -> SglExpr:
    """What an op adds to its branch's text, as an expression.

    Raises:
        RequestError: only the backend knows it.
    """
    match future.op:
        case TextOp(text=text, literal=literal):
            return SglConstantText(text, literal)
        case RefOp(target=target, marks=marks, starts_inside=starts_inside):
            return SglRef(session, target, name, marks, starts_inside)
        case ArgOp(name=argument):
            return SglArgument(argument)
        case GenOp() | SelectOp() | JoinOp(mode="concat"):
            return SglRef(session, future.op.id, name)
        case ForkOp() | TemplateOp() | MarkOp() | RewindOp() | CountOp() | JoinOp(mode="gather"):
            return SglExprList()
        case _:
            raise RequestError(f"referring to {name!r}: its text has roles in it; read it: s[{name!r}]")
