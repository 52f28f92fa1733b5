"""Programs as SGLang's client runs them: its templates and joints, on any backend, for a comparison.

Every gen and select is a request of its own over the whole text so far, tokenised anew, and turns are written with
SGLang's named templates. Behaviour matched: SGLang's `lang/interpreter.py` and `lang/backend/runtime_endpoint.py`.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from sglang_lite.errors import UnsupportedError
from sglang_lite.lang.chat_templates import NamedTemplate, named_template, template_for
from sglang_lite.request_tree import (
    Backend,
    DecideOp,
    EndOp,
    Event,
    EventSink,
    ForkOp,
    GenOp,
    JoinOp,
    Op,
    OpDelta,
    OpDone,
    OpFailed,
    OpScored,
    Program,
    RefOp,
    RoleBeginOp,
    RoleEndOp,
    SelectOp,
    TextOp,
)

_ROOT = 0
"""The inner program's first branch: empty for ever, so that every request can begin anew from it."""


@dataclass(frozen=True, slots=True)
class _Piece:
    """Text, or what an inner op gives; `ref` has the marks of a reference."""

    text: str = ""
    target: int | None = None
    ref: RefOp | None = None


@dataclass(slots=True)
class _Branch:
    """`pieces`: the text so far. `needs`: outer ops whose end a join waits for. `turns`: roles begun so far."""

    pieces: list[_Piece] = field(default_factory=list[_Piece])
    start: int = 0
    turns: list[str] = field(default_factory=list[str])
    role: str | None = None
    needs: list[int] = field(default_factory=list[int])
    inner: list[int] = field(default_factory=list[int])


Waiting: TypeAlias = tuple[Op, set[int]]


class StrictBackend:
    """A backend over another one.

    Args:
        inner: what runs the requests.
        template: SGLang's name of a template; None: by the model's path, as SGLang chooses it.
    """

    def __init__(self, inner: Backend, template: str | None = None) -> None:
        self.inner = inner
        path = str(inner.get_server_info().get("model_path") or "") if template is None else ""
        self.template = template_for(path) if template is None else named_template(template)

    def open_program(self, sink: EventSink, *, seed: int | None = None) -> StrictProgram:
        """Start a program."""
        return StrictProgram(self.inner, self.template, sink, seed)

    def flush_cache(self) -> bool:
        """See the backend below."""
        return self.inner.flush_cache()

    def get_server_info(self) -> dict[str, Any]:
        """That of the backend below, and the template."""
        return {**self.inner.get_server_info(), "compat_template": self.template.name}

    def shutdown(self) -> None:
        """See the backend below."""
        self.inner.shutdown()


class StrictProgram:
    """Turns a program into requests over whole texts. Text is known at once, so nothing but joins waits here."""

    def __init__(self, inner: Backend, template: NamedTemplate, sink: EventSink, seed: int | None) -> None:
        self._template = template
        self._sink = sink
        self._lock = threading.RLock()
        self._branches: dict[int, _Branch] = {0: _Branch()}
        self._parents: dict[int, int] = {}
        self._outer: dict[int, Op] = {}
        """The outer op that each inner gen, select or decision stands for."""
        self._inner: dict[int, int] = {}
        """The inner gen or select of each outer one."""
        self._places: dict[int, int] = {}
        """The inner branch of each inner gen or select."""
        self._texts: dict[int, str] = {}
        self._errors: dict[int, Exception] = {}
        self._waiting: list[Waiting] = []
        self._next_id = 0
        self._next_branch = 1
        self._program: Program = inner.open_program(self._take, seed=seed)

    def append(self, ops: Sequence[Op]) -> None:
        """Take ops; see `Program.append`.

        Raises:
            UnsupportedError: an op that SGLang's language does not have.
        """
        sent: list[Op] = []
        with self._lock:
            for op in ops:
                self._translate(op, sent)
        if sent:
            self._program.append(sent)
        self._settle()

    def cancel(self, branches: Sequence[int] | None = None) -> None:
        """See `Program.cancel`."""
        if branches is None:
            self._program.cancel()
            return
        with self._lock:
            wanted = set(branches)
            for child, parent in self._parents.items():
                if parent in wanted:
                    wanted.add(child)
            inner = [number for outer in wanted if outer in self._branches for number in self._branches[outer].inner]
        self._program.cancel(inner)

    def close(self) -> None:
        """See `Program.close`."""
        self._program.close()

    # --- from outer ops to inner ones ---

    def _new(self) -> int:
        self._next_id += 1
        return self._next_id - 1

    def _translate(self, op: Op, sent: list[Op]) -> None:
        match op:
            case DecideOp(select=select, index=index):
                inner = self._inner[select]
                decision = DecideOp(self._new(), self._places[inner], inner, index)
                self._outer[decision.id] = op
                sent.append(decision)
                return
            case GenOp() if not op.hold:
                self._request(op, self._branches[op.branch], sent)
            case SelectOp():
                self._request(op, self._branches[op.branch], sent)
            case JoinOp(children=children, first=None, vote=None):
                needs = {need for child in children for need in self._branches[child].needs}
                self._join(op, needs)
            case RefOp(target=target):
                branch = self._branches[op.branch]
                branch.pieces.append(_Piece(target=self._inner[target], ref=op))
                branch.needs.append(target)
                self._waiting.append((op, {target}))
            case _:
                self._plain(op)

    def _plain(self, op: Op) -> None:
        branch = self._branches[op.branch]
        match op:
            case TextOp(text=text):
                self._add(op, branch, text)
            case RoleBeginOp(role=role, fields=None):
                self._add(op, branch, self._template.begin(role, branch.turns))
                branch.role = role
                branch.turns.append(role)
            case RoleEndOp():
                self._add(op, branch, self._template.role_text(branch.role or "")[1])
                branch.role = None
            case ForkOp(children=children):
                for child in children:
                    self._parents[child] = op.branch
                    self._branches[child] = _Branch(
                        list(branch.pieces), len(branch.pieces), list(branch.turns), branch.role, list(branch.needs)
                    )
                self._sink(OpDone(op.id))
            case EndOp():
                self._sink(OpDone(op.id))
            case _:
                raise UnsupportedError(
                    f"running like SGLang (SGLANG_LITE_COMPAT=strict): {type(op).__name__} has no counterpart in its "
                    "language; unset the variable for programs that use it"
                )

    def _add(self, op: Op, branch: _Branch, text: str) -> None:
        branch.pieces.append(_Piece(text))
        self._texts[op.id] = text
        self._sink(OpDone(op.id, text))

    def _request(self, op: GenOp | SelectOp, branch: _Branch, sent: list[Op]) -> None:
        """A branch of its own from the empty root: the whole text, in one piece, then the op."""
        number, self._next_branch = self._next_branch, self._next_branch + 1
        branch.inner.append(number)
        sent.append(ForkOp(self._new(), _ROOT, (number,)))
        for piece in _merged(branch.pieces):
            if piece.target is None:
                sent.append(TextOp(self._new(), number, piece.text))
            else:
                marks = (piece.ref.marks, piece.ref.starts_inside) if piece.ref is not None else (None, False)
                sent.append(RefOp(self._new(), number, piece.target, *marks))
        inner = replace(op, id=self._new(), branch=number)
        if isinstance(inner, GenOp):
            stops = tuple(stop for stop in self._template.stop_str if stop not in inner.params.stop)
            inner = replace(inner, params=inner.params.with_(stop=inner.params.stop + stops))
        sent += [inner, EndOp(self._new(), number)]
        self._outer[inner.id] = op
        self._places[inner.id] = number
        self._inner[op.id] = inner.id
        branch.pieces.append(_Piece(target=inner.id))
        branch.needs.append(op.id)

    def _join(self, op: JoinOp, needs: set[int]) -> None:
        branch = self._branches[op.branch]
        if op.mode == "concat":
            for child in op.children:
                joined = self._branches[child]
                branch.pieces += joined.pieces[joined.start :]
                branch.needs += joined.needs
        self._waiting.append((op, needs))

    # --- from inner events to outer ones ---

    def _take(self, event: Event) -> None:
        with self._lock:
            op = self._outer.get(event.op)
        if op is None:  # text and forks of a request: nobody asked for them
            return
        match event:
            case OpDelta(text=text):
                self._sink(OpDelta(op.id, text))
            case OpScored():
                self._sink(replace(event, op=op.id))
            case OpDone():
                self._texts[op.id] = event.text
                self._sink(replace(event, op=op.id))
                self._settle()
            case OpFailed(error=error):
                self._errors[op.id] = error
                self._sink(OpFailed(op.id, error))
                self._settle()
            case _:
                raise AssertionError(f"an event that no op of SGLang's language has: {event!r}")

    def _settle(self) -> None:
        """End what waited for ops that have ended."""
        while True:
            with self._lock:
                ready = [w for w in self._waiting if all(n in self._texts or n in self._errors for n in w[1])]
                self._waiting = [w for w in self._waiting if w not in ready]
            if not ready:
                return
            for op, needs in ready:
                self._end(op, needs)

    def _end(self, op: Op, needs: set[int]) -> None:
        error = next((self._errors[need] for need in sorted(needs) if need in self._errors), None)
        if error is not None and not (isinstance(op, JoinOp) and op.mode == "gather"):
            self._errors[op.id] = error
            self._sink(OpFailed(op.id, error))
            return
        text = ""
        if isinstance(op, RefOp):
            text = op.text_of(self._texts[op.target])
        elif isinstance(op, JoinOp) and op.mode == "concat":
            for child in op.children:
                joined = self._branches[child]
                text += "".join(self._text_of(piece) for piece in joined.pieces[joined.start :])
        self._texts[op.id] = text
        self._sink(OpDone(op.id, text))

    def _text_of(self, piece: _Piece) -> str:
        if piece.target is None:
            return piece.text
        text = self._texts[self._outer[piece.target].id]
        return text if piece.ref is None else piece.ref.text_of(text)


def _merged(pieces: Sequence[_Piece]) -> list[_Piece]:
    """Neighbouring texts as one."""
    merged: list[_Piece] = []
    for piece in pieces:
        if piece.target is None and merged and merged[-1].target is None:
            merged[-1] = _Piece(merged[-1].text + piece.text)
        elif piece.target is not None or piece.text:
            merged.append(piece)
    return merged
