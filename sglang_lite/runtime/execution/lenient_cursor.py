"""The cursor of a JSON Schema that masks enforce in part: at the end it says what was left out, and whether it holds."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Protocol

from sglang_lite.runtime.execution.schema_check import CHECKED, find_faults
from sglang_lite.runtime.scheduler.messages import GrammarCursor


class Note(Protocol):
    """A keyword that is not enforced (`sglang_lite.grammar.SchemaNote` fits)."""

    @property
    def pointer(self) -> str:
        """Its place in the schema."""
        ...

    @property
    def keyword(self) -> str:
        """Its name."""
        ...

    @property
    def detail(self) -> str:
        """Why, in words."""
        ...


class LenientMatcher:
    """`matcher`, with notes on `unchecked` keywords. `schema`: its JSON text; None: the notes are about parts of a larger text."""

    def __init__(self, matcher: GrammarCursor, unchecked: Sequence[Note], schema: str | None) -> None:
        self._matcher = matcher
        self._unchecked = unchecked
        self._schema = schema

    def accept_token(self, token_id: int) -> bool:
        """See `GrammarCursor`."""
        return self._matcher.accept_token(token_id)

    def fill_bitmask(self, bitmask: Any, index: int = 0) -> None:
        """See `GrammarCursor`."""
        self._matcher.fill_bitmask(bitmask, index)

    def fork(self) -> LenientMatcher:
        """See `GrammarCursor`."""
        return LenientMatcher(self._matcher.fork(), self._unchecked, self._schema)

    def jump_forward(self, before: Sequence[int] = ()) -> list[int]:
        """See `GrammarCursor`."""
        return self._matcher.jump_forward(before)

    @property
    def is_terminated(self) -> bool:
        """See `GrammarCursor`."""
        return self._matcher.is_terminated

    @property
    def has_only_end(self) -> bool:
        """See `GrammarCursor`."""
        return self._matcher.has_only_end

    def notes_on(self, text: bytes) -> tuple[str, ...]:
        """One line a keyword: its place, why the masks left it out, and what the check of the finished value says."""
        verdicts = self._verdicts(text)
        return tuple(
            f"{note.keyword} at {note.pointer or '/'} was not enforced ({note.detail}); {verdict}"
            for note, verdict in zip(self._unchecked, verdicts, strict=True)
        )

    def _verdicts(self, text: bytes) -> list[str]:
        if self._schema is None:
            return ["it was not checked"] * len(self._unchecked)
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            return ["the text is not whole JSON, so it was not checked"] * len(self._unchecked)
        faults = find_faults(value, json.loads(self._schema))
        verdicts: list[str] = []
        for note in self._unchecked:
            found = next((fault for fault in faults if _is_at(fault.pointer, note.pointer)), None)
            if note.keyword not in CHECKED:
                verdicts.append("it was not checked")
            elif found is None:
                verdicts.append("the value holds it")
            else:
                start = "it could not be checked" if found.is_unknown else "the value breaks it"
                verdicts.append(f"{start}: {found.message}")
        return verdicts


def _is_at(pointer: str, place: str) -> bool:
    return pointer == place or pointer.startswith(f"{place}/")
