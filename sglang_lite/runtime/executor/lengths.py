"""How long a tree's branches can get, in tokens, from what is known before it runs; it runs nothing."""

from __future__ import annotations

from dataclasses import dataclass, field

from sglang_lite.errors import RequestError
from sglang_lite.request_tree import (
    ArgOp,
    ForkOp,
    GenOp,
    JoinOp,
    MarkOp,
    Op,
    RefOp,
    RequestTree,
    RewindOp,
    RoleBeginOp,
    RoleEndOp,
    SelectOp,
    TemplateOp,
    TextOp,
)
from sglang_lite.runtime.executor.branch import Branch
from sglang_lite.runtime.executor.dialogue import read_object
from sglang_lite.runtime.executor.ports import TextParts


@dataclass(frozen=True, slots=True)
class Need:
    """What one gen or select needs, in tokens: its prompt at least and at most, what comes after it at most.

    `output_low`: room that there must be after the prompt, or the op is refused.
    """

    op: GenOp | SelectOp
    prompt_low: int
    prompt_high: int
    output_low: int
    output_high: int


@dataclass(slots=True)
class Lengths:
    """The needs of all gens and selects in order, and sums over the tree.

    `kv_high`: tokens of all branches, what they share counted once: the KV of the tree if nothing is given up.
    `output_high`: tokens that are generated. `errors`: ops that cannot run at all, and why.
    """

    needs: list[Need] = field(default_factory=list[Need])
    kv_high: int = 0
    output_high: int = 0
    errors: dict[int, str] = field(default_factory=dict[int, str])


@dataclass(slots=True)
class _Measured:
    """A branch with its known ids, and how many tokens it may have beside them.

    `inherited`, `inherited_slack`: how many of both, and of the latter, are its parent's.
    """

    branch: Branch
    slack: int = 0
    inherited: int = 0
    inherited_slack: int = 0


class LengthWalk:
    """Follows a tree op by op with the executor's own branches, so that spans and templates are tokenised as in a run.

    What is generated, chosen, referred to or given as an argument counts as no token at least; at most as many as its
    limit allows, and an argument as none.
    """

    def __init__(self, text: TextParts, context_length: int) -> None:
        self._text = text
        self._context = context_length
        self._branches = {0: _Measured(Branch(0, None))}
        self._marks: dict[int, _Measured] = {}
        self._value_high: dict[int, int] = {}
        self.lengths = Lengths()

    def walk(self, tree: RequestTree) -> Lengths:
        """All of `tree`."""
        for op in tree.ops.values():
            measured = self._branches[op.branch]
            try:
                self._take(op, measured)
            except RequestError as error:
                self.lengths.errors[op.id] = str(error)
        for measured in self._branches.values():
            measured.branch.close_span(self._text.tokenizer)
            self.lengths.kv_high += len(measured.branch.ids) + measured.slack - measured.inherited
        return self.lengths

    def _take(self, op: Op, measured: _Measured) -> None:
        branch, chat = measured.branch, self._text.chat
        match op:
            case TextOp(text=text, literal=literal):
                branch.add_text(text, literal=literal)
            case RoleBeginOp(role=role, fields=fields):
                branch.begin_role(role, chat, fields, self._text.tokenizer.guard)
            case TemplateOp(variables=variables):
                branch.dialogue.set_variables(read_object(variables, f"the variables of op {op.id}"))
            case RoleEndOp():
                branch.end_role(chat, self._text.tokenizer.guard)
            case GenOp():
                high = op.params.max_new_tokens
                self._need(op, measured, self._context if high is None else high)
            case SelectOp(choices=choices):
                encode = self._text.tokenizer.encode
                self._need(op, measured, max(len(encode(choice, parse_special=False)) for choice in choices))
            case _:
                self._take_edge(op, measured)

    def _take_edge(self, op: Op, measured: _Measured) -> None:
        """An op that has to do with more than the end of its branch."""
        match op:
            case RefOp(target=target):
                measured.slack += self._value_high.get(target, 0)
            case ForkOp(children=children):
                for child in children:
                    self._branches[child] = self._copy(child, measured, inherited=True)
            case JoinOp(children=children, mode="concat"):
                for child in children:
                    self._append(measured, self._branches[child])
            case MarkOp():
                self._marks[op.id] = self._copy(op.branch, measured)
            case RewindOp(mark=mark):
                marked = self._marks[mark]
                kept = self._copy(op.branch, marked)
                kept.inherited = measured.inherited
                self.lengths.kv_high += max(_length(measured) - _length(kept), 0)
                self._branches[op.branch] = kept
            case _:
                pass

    def _need(self, op: GenOp | SelectOp, measured: _Measured, output: int) -> None:
        low = len(measured.branch.flush(self._text.tokenizer))
        high = low + measured.slack
        needed = 1 if isinstance(op, GenOp) and op.params.max_new_tokens is None else output
        output = min(output, max(self._context - low, 0))
        self.lengths.needs.append(Need(op, low, high, needed, output))
        self._value_high[op.id] = output
        measured.slack += output
        if isinstance(op, GenOp):
            self.lengths.output_high += output * op.params.n
            self.lengths.kv_high += output * (op.params.n - 1)
        else:  # the choices that lose are computed, too
            lengths = [len(self._text.tokenizer.encode(choice, parse_special=False)) for choice in op.choices]
            self.lengths.kv_high += sum(lengths) - max(lengths)

    def _copy(self, number: int, measured: _Measured, *, inherited: bool = False) -> _Measured:
        branch = Branch(number, measured.branch)
        branch.copy_from(measured.branch, self._text.tokenizer)
        copied = _Measured(branch, measured.slack)
        copied.inherited = _length(copied) if inherited else measured.inherited
        copied.inherited_slack = copied.slack if inherited else measured.inherited_slack
        return copied

    def _append(self, measured: _Measured, child: _Measured) -> None:
        measured.branch.add_text("".join(child.branch.text_since_fork), literal=True)
        measured.slack += child.slack - child.inherited_slack


def _length(measured: _Measured) -> int:
    return len(measured.branch.ids) + measured.slack


def unknown_arguments(tree: RequestTree) -> str:
    """A note on arguments that no length was counted for; empty where there are none."""
    names = sorted({op.name for op in tree.ops.values() if isinstance(op, ArgOp)})
    return f", the arguments {names} not counted" if names else ""
