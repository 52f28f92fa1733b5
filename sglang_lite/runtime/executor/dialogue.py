"""The dialogue of a branch: its turns, and the text that the model's template makes of them; it owns no ids.

Turns are written one after the other, with the text that the template has between them. Some templates change what was
written before when a turn is added (they strip thinking, trim contents, merge results of tools), and tools or other
variables change the beginning. So what was written is compared with the rendering of the whole dialogue before it is used.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from sglang_lite.chat_formats.adapt import adapt
from sglang_lite.errors import RequestError
from sglang_lite.runtime.text.chat import ChatTemplate
from sglang_lite.runtime.text.chat_pieces import Piece, SpecialGuard, tail_of

_CONTENT = "\ue000content\ue001"  # stands for the content of an open turn; no template tests for it


@dataclass(frozen=True, slots=True)
class Part:
    """Text of a turn. `ids`: its tokens, where they are not those of tokenising the text; `is_models`: it was generated."""

    text: str
    ids: tuple[int, ...] | None = None
    is_models: bool = False


@dataclass(slots=True)
class Turn:
    """One turn. `fields`: what its message has beside role and content; None: it is written by the program."""

    role: str
    fields: dict[str, Any] | None = None
    content: list[Part] = field(default_factory=list[Part])

    def message(self, guard: SpecialGuard) -> dict[str, Any]:
        """The message for the template; special tokens in what was given are guarded."""
        text = "".join(part.text if part.is_models else guard.guarded(part.text) for part in self.content)
        return {"role": self.role, "content": text, **guard.guarded(self.fields or {})}


class Dialogue:
    """Turns on one branch.

    Attributes:
        is_pure: nothing stands outside of turns, so that the whole text is a rendering.
        turns, open_turn: the closed ones, and the one that is being written.
        variables: of the template.
    """

    def __init__(self) -> None:
        self.is_pure = True
        self.turns: list[Turn] = []
        self.open_turn: Turn | None = None
        self.variables: dict[str, Any] = {}
        self._chat: ChatTemplate | None = None
        self._written: list[str] = []
        """The texts of closed turns and between turns, up to the content of the open one."""
        self._is_checked = True

    def copy(self) -> Dialogue:
        """The same dialogue, to be gone on from."""
        twin = Dialogue()
        twin.is_pure, twin.turns, twin.variables = self.is_pure, list(self.turns), dict(self.variables)
        if self.open_turn is not None:
            twin.open_turn = Turn(self.open_turn.role, self.open_turn.fields, list(self.open_turn.content))
        twin._chat, twin._written, twin._is_checked = self._chat, list(self._written), self._is_checked
        return twin

    def begin(self, role: str, fields: dict[str, Any] | None, chat: ChatTemplate, guard: SpecialGuard) -> list[Piece]:
        """Open a turn; returns what stands in front of its content.

        Raises:
            RequestError: the template refuses the turn, or text stands outside of turns and it does not write turn by turn.
        """
        self._chat = chat
        self.open_turn = Turn(role, fields)
        try:
            if self._is_simple:
                prefix = self._or_grown(lambda roles: chat.role_begin(roles, role), guard)
            else:
                prefix = self._grown(guard)
        except RequestError:
            self.open_turn = None
            raise
        self._written += [text for text, _ in prefix]
        self._is_checked = False
        return prefix

    def end(self, chat: ChatTemplate, guard: SpecialGuard) -> list[Piece]:
        """Close the open turn; returns what stands behind its content. Raises as `begin` does."""
        turn = self.open_turn
        assert turn is not None, "a role is open when it is closed"
        self._chat = chat
        before, is_simple = self._roles, self._is_simple
        self._written += [part.text for part in turn.content]
        self.turns.append(turn)
        self.open_turn = None
        self._is_checked = False
        suffix = self._or_grown(lambda _: chat.role_end(before, turn.role), guard) if is_simple else self._grown(guard)
        self._written += [text for text, _ in suffix]
        return suffix

    def add(self, part: Part) -> None:
        """Text was appended to the branch."""
        if self.open_turn is not None:
            self.open_turn.content.append(part)
        else:
            self.is_pure = False

    def set_variables(self, changes: dict[str, Any]) -> None:
        """From here on the template has these variables; None takes one away."""
        merged = {**self.variables, **changes}
        self.variables = {name: value for name, value in merged.items() if value is not None}
        self._is_checked = False

    def rewritten(self, guard: SpecialGuard) -> list[Piece] | None:
        """The pieces up to the open turn's content as the template has them; None: they are what was written.

        Raises:
            RequestError: the template refuses the dialogue, or text outside of turns keeps its variables from being shown.
        """
        if self._is_checked or self._chat is None:
            return None
        self._is_checked = True
        if not self.is_pure:
            if self.variables:
                raise RequestError(
                    f"rendering a dialogue with {sorted(self.variables)}: text stands outside of its turns, so the model's "
                    "template cannot show them; put all text into turns"
                )
            return None
        if self._chat.is_plain and self._is_simple and all(turn.fields is None for turn in self.turns):
            return None
        pieces = guard.pieces(self._rendered(guard))
        rendered = "".join(text for text, _ in pieces)
        if rendered == "".join(self._written):
            return None
        self._written = [rendered]
        return pieces

    @property
    def _roles(self) -> list[tuple[str, str]]:
        return [(turn.role, "") for turn in self.turns]

    @property
    def _is_simple(self) -> bool:
        """The text around the open turn, or the last one, depends on roles alone, as far as that can be told."""
        recent = [*self.turns[-1:], *([self.open_turn] if self.open_turn else [])]
        return not self.variables and all(turn.fields is None and turn.role != "tool" for turn in recent)

    def _or_grown(self, find: Callable[[list[tuple[str, str]]], str], guard: SpecialGuard) -> list[Piece]:
        """What `find` makes of the roles so far; where the template does not write turn by turn, what the text grew by."""
        try:
            return [(find(self._roles), True)]
        except RequestError:
            if not self.is_pure:
                raise
            return self._grown(guard)

    def _grown(self, guard: SpecialGuard) -> list[Piece]:
        """What follows in the rendering behind what it has in common with the text that was written."""
        pieces = guard.pieces(self._rendered(guard))
        before, after = "".join(self._written), "".join(text for text, _ in pieces)
        common = next((n for n, (a, b) in enumerate(zip(before, after, strict=False)) if a != b), len(before))
        return tail_of(pieces, common)

    def _rendered(self, guard: SpecialGuard) -> str:
        """The rendering up to the content of the open turn, guards inside."""
        chat, turn = self._chat, self.open_turn
        assert chat is not None, "a dialogue with turns has a template"
        messages = [closed.message(guard) for closed in self.turns]
        is_answer = turn is not None and turn.role == "assistant" and turn.fields is None and bool(messages)
        if turn is not None and not is_answer:
            messages.append({"role": turn.role, "content": _CONTENT, **guard.guarded(turn.fields or {})})
        variables = guard.guarded(self.variables)
        tools: Sequence[dict[str, Any]] | None = variables.pop("tools", None)
        shown, shown_tools = adapt(messages, tools, chat.format)
        text = chat.render(shown, is_answer, {**variables, **shown_tools})
        if turn is None or is_answer:
            return text
        if text.count(_CONTENT) != 1:
            raise RequestError(
                f"rendering a turn of {turn.role!r}: the model's template shows its content {text.count(_CONTENT)} times, "
                "expected once"
            )
        return text[: text.index(_CONTENT)]


def read_object(text: str, what: str) -> dict[str, Any]:
    """The object in a JSON text.

    Raises:
        RequestError: it is none.
    """
    try:
        value = json.loads(text)
    except ValueError as error:
        raise RequestError(f"reading {what}: {error}; expected the JSON text of an object") from None
    if not isinstance(value, dict):
        raise RequestError(f"reading {what}: got {text!r:.200}, expected the JSON text of an object")
    return value
