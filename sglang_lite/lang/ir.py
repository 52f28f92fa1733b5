"""The expression nodes: what a program says, as pure data; they know no state and no backend."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from sglang_lite.errors import RequestError
from sglang_lite.lang.choices import ChoicesSamplingMethod, token_length_normalized
from sglang_lite.sampling_params import JsonWhitespace, JumpForward

REGEX_INT = r"[-+]?[0-9]+[ \n]*"
REGEX_FLOAT = r"[-+]?[0-9]*\.?[0-9]+[ \n]*"
REGEX_BOOL = r"(True|False)"
# A number of a type has an end only where its digits do: a text that may go on with digits would never be done.
REGEX_TYPED_INT = r"-?(0|[1-9][0-9]{0,17})[ \n]?"
REGEX_TYPED_FLOAT = r"-?(0|[1-9][0-9]{0,14})(\.[0-9]{1,15})?[ \n]?"
REGEX_TYPED_BOOL = r"(true|false|True|False)"
REGEX_STR = r"\"[\w\d\s]*\""  # the value of a `dtype=str` gen includes the quotes


class SglExpr:
    """Something to append to a state. `+` joins expressions and text on either side to one flat list."""

    def __add__(self, other: object) -> SglExprList:
        node = as_expr(other)
        return NotImplemented if node is None else SglExprList([*flatten(self), *flatten(node)])

    def __radd__(self, other: object) -> SglExprList:
        node = as_expr(other)
        return NotImplemented if node is None else SglExprList([*flatten(node), *flatten(self)])

    def __format__(self, spec: str) -> str:
        raise TypeError(
            f"formatting {type(self).__name__} into a string: its text is not known yet; "
            "join it with +, as in 'text ' + gen('x'), not in an f-string"
        )


@dataclass(frozen=True, slots=True, eq=False)
class SglConstantText(SglExpr):
    """Given text. `literal`: never parsed for special tokens."""

    value: str
    literal: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class SglGen(SglExpr):
    """One generation; a field that is None takes the run's default."""

    name: str | None = None
    max_tokens: int | None = None
    min_tokens: int | None = None
    n: int | None = None
    stop: tuple[str, ...] | None = None
    stop_token_ids: tuple[int, ...] | None = None
    stop_regex: tuple[str, ...] | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    ignore_eos: bool | None = None
    return_logprob: bool | None = None
    logprob_start_len: int | None = None
    top_logprobs_num: int | None = None
    return_text_in_logprobs: bool | None = None
    dtype: str | None = None
    regex: str | None = None
    json_schema: str | None = None
    ebnf: str | None = None
    structural_tag: str | None = None
    json_whitespace: JsonWhitespace | None = None
    json_strict: bool | None = None
    jump_forward: JumpForward | None = None


@dataclass(frozen=True, slots=True, eq=False)
class SglSelect(SglExpr):
    """The best of `choices` by `choices_method`."""

    name: str | None
    choices: tuple[str, ...]
    choices_method: ChoicesSamplingMethod = token_length_normalized


@dataclass(frozen=True, slots=True, eq=False)
class SglRoleBegin(SglExpr):
    """A turn of the chat begins."""

    role: str


@dataclass(frozen=True, slots=True, eq=False)
class SglRoleEnd(SglExpr):
    """The turn ends."""

    role: str


@dataclass(frozen=True, slots=True, eq=False)
class SglVarScopeBegin(SglExpr):
    """From here on text belongs to the variable `name`, too."""

    name: str


@dataclass(frozen=True, slots=True, eq=False)
class SglVarScopeEnd(SglExpr):
    """The text of the variable `name` is complete."""

    name: str


@dataclass(frozen=True, slots=True, eq=False)
class SglSeparateReasoning(SglExpr):
    """`expr`, whose gens are split into thinking and answer the way models of `model_type` write them."""

    expr: SglExpr
    model_type: str


@dataclass(frozen=True, slots=True, eq=False)
class SglExprList(SglExpr):
    """Expressions in order."""

    expr_list: list[SglExpr] = field(default_factory=list[SglExpr])


@dataclass(frozen=True, slots=True, eq=False)
class SglAppended(SglExprList):
    """What `s.user(expr)` returns: it is in the state already, so it cannot be appended once more."""


def as_expr(value: object) -> SglExpr | None:
    """`value` as a node; None when it is neither text nor an expression."""
    if isinstance(value, str):
        return SglConstantText(value)
    return value if isinstance(value, SglExpr) else None


def flatten(expr: SglExpr) -> Iterator[SglExpr]:
    """The nodes of `expr` in order, without nested lists."""
    if isinstance(expr, SglExprList):
        for inner in expr.expr_list:
            yield from flatten(inner)
    else:
        yield expr


def need_expr(what: str, value: object) -> SglExpr:
    """`value` as a node.

    Raises:
        RequestError: it is neither text nor an expression.
    """
    node = as_expr(value)
    if node is None:
        raise RequestError(
            f"{what}: got {value!r} ({type(value).__name__}), expected a str or an expression such as gen(...); "
            "turn other values into text with str()"
        )
    return node


def role_block(role: str, expr: object) -> list[SglExpr]:
    """The nodes of one whole turn; `expr` None: an empty one."""
    inner = [] if expr is None else [need_expr(f"making a {role} turn", expr)]
    return [SglRoleBegin(role), *inner, SglRoleEnd(role)]
