"""What a branch of a hosted program holds: text and turns, never tokens; pure values that forks and marks copy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from sglang_lite.lang.backends.hosted.messages import Calls, Message
from sglang_lite.lang.backends.hosted.speculation import Ahead


@dataclass(frozen=True, slots=True)
class Contents:
    """The state of a branch at one place.

    `text`: all of it as the program sees it, turns written out. `messages`: the closed turns. `role`, `turn`: the open
    one and its text. `outside`: text that belongs to no turn. `ahead`: what a call wrote beyond what was taken.
    `fields`: what the open turn has beside its text (calls of tools, ...); `spoken`: its text without calls.
    `variables`: of the template; only `tools` means something to an API.
    """

    text: str = ""
    messages: tuple[Message, ...] = ()
    role: str | None = None
    turn: str = ""
    outside: str = ""
    ahead: Ahead | None = None
    fields: Mapping[str, Any] = field(default_factory=dict[str, Any])
    spoken: str = ""
    variables: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def with_text(self, text: str) -> Contents:
        """With a text appended."""
        if self.role is None:
            return replace(self, text=self.text + text, outside=self.outside + text)
        return replace(self, text=self.text + text, turn=self.turn + text, spoken=self.spoken + text)

    def with_answer(self, text: str, calls: Calls | None) -> Contents:
        """With what a model answered; `calls`: where it called tools, which `text` shows in words."""
        added = self.with_text(text)
        if calls is None:
            return added
        return replace(
            added, spoken=self.spoken + calls.spoken, fields={**self.fields, "tool_calls": list(calls.calls)}
        )

    def with_variables(self, changes: Mapping[str, Any]) -> Contents:
        """With variables of the template set; None takes one away."""
        merged = {**self.variables, **changes}
        return replace(self, variables={name: value for name, value in merged.items() if value is not None})

    @property
    def tools(self) -> tuple[Mapping[str, Any], ...]:
        """The tools that the model may call, in OpenAI's form."""
        return tuple(self.variables.get("tools") or ())

    @property
    def roles(self) -> list[str]:
        """Of the closed turns."""
        return [str(message["role"]) for message in self.messages]

    def with_role(self, role: str, shown: str, fields: Mapping[str, Any]) -> Contents:
        """With a turn begun; `shown`: how the program sees that."""
        return replace(self, text=self.text + shown, role=role, turn="", spoken="", fields=fields, ahead=None)

    def without_role(self, shown: str) -> Contents:
        """With the open turn closed."""
        message: Message = {**self.fields, "role": self.role, "content": self.spoken}
        messages = (*self.messages, message)
        return replace(self, text=self.text + shown, messages=messages, role=None, turn="", spoken="", ahead=None)

    def with_correction(self, rejected: str | None, correction: str, shown: str) -> Contents:
        """With a rejected answer and what is said about it as turns of their own before the open one."""
        turns: list[Message] = []
        if rejected is not None:
            turns.append({"role": "assistant", "content": rejected})
        if correction.strip():
            turns.append({"role": "user", "content": correction})
        return replace(self, text=self.text + shown, messages=(*self.messages, *turns), ahead=None)

    def with_child(self, start: Contents, child: Contents) -> Contents:
        """With what `child` added since it was `start`: text, turns, and text in the open turn."""
        new_turns = child.messages[len(start.messages) :]
        added = child.text[len(start.text) :]
        if self.role is not None and not new_turns:
            return replace(
                self,
                text=self.text + added,
                turn=self.turn + child.turn[len(start.turn) :],
                spoken=self.spoken + child.turn[len(start.turn) :],
                ahead=None,
            )
        return replace(
            self,
            text=self.text + added,
            messages=(*self.messages, *new_turns),
            outside=self.outside + child.outside[len(start.outside) :],
            ahead=None,
        )
