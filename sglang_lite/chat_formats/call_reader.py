"""Tool calls out of a text that comes in pieces: names and arguments as soon as they are sure, the rest as text."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from sglang_lite.chat_formats.calls import call_of
from sglang_lite.chat_formats.tools import ToolFormat

_decoder = json.JSONDecoder()
_HEAD = re.compile(r'\s*\{\s*"name"\s*:\s*("(?:[^"\\]|\\.)+")\s*,\s*"(?:arguments|parameters)"\s*:\s*(?=\{)')


@dataclass(frozen=True, slots=True)
class CallPiece:
    """What is new: of the `text`; a `call`, whose name is `text`; of the `arguments` (JSON text) of the call `index`."""

    kind: Literal["text", "call", "arguments"]
    text: str
    index: int = -1


@dataclass(frozen=True, slots=True)
class _Shape:
    """How calls stand in a text: literals that begin them, white space between them allowed, and those that end one.

    `is_list`: several calls stand in one pair of brackets.
    """

    begins: tuple[tuple[str, ...], ...]
    ends: tuple[str, ...]
    is_list: bool = False


_SHAPES = {
    "hermes": _Shape((("<tool_call>",),), ("}", "</tool_call>")),
    "llama3": _Shape((("<|python_tag|>", "{", '"name"'), ("{", '"name"')), ("}",)),
    "mistral": _Shape((("[TOOL_CALLS]", "[", "{"), ("[", "{", '"name"')), ("}",), is_list=True),
}


class CallReader:
    """Reads one model's text as `ToolFormat.read` reads the whole; what cannot be read as a call stays text.

    White space around calls is left out, a line break stands between texts around one. `is_open`: the text so far ends inside of a call.
    """

    def __init__(self, form: ToolFormat) -> None:
        self._shape = _SHAPES[form.name]
        self._place: Literal["text", "head", "arguments", "tail", "list"] = "text"
        self._kept = ""
        self._start = 0
        """Where the call's JSON begins in `_kept`, while its head is read."""
        self._space = ""
        self._num_calls = 0
        self._is_after_call = False
        self._has_text = False
        self._depth = 0
        self._is_in_string = False
        self._is_escaped = False

    @property
    def num_calls(self) -> int:
        """Calls whose names were told."""
        return self._num_calls

    @property
    def is_open(self) -> bool:
        """The text so far ends inside of a call."""
        return self._place != "text"

    def feed(self, piece: str) -> list[CallPiece]:
        """Take the next piece of the text."""
        self._kept += piece
        return list(self._read(is_end=False))

    def finish(self) -> list[CallPiece]:
        """The text ends here; a call that it cuts keeps what there is of its arguments."""
        found = list(self._read(is_end=True))
        if self._place == "head":
            found += self._text(self._kept)
        if not self._num_calls and self._space:
            found.append(CallPiece("text", self._space))
        self._kept = self._space = ""
        return found

    def _read(self, *, is_end: bool) -> Iterator[CallPiece]:
        steps = {
            "text": self._read_text,
            "head": self._read_head,
            "arguments": self._read_arguments,
            "tail": self._read_tail,
            "list": self._read_list,
        }
        while True:
            before = self._place, len(self._kept)
            yield from steps[self._place](is_end)
            if (self._place, len(self._kept)) == before:
                return

    def _read_text(self, is_end: bool) -> Iterator[CallPiece]:
        text = self._kept
        firsts = {begin[0][0] for begin in self._shape.begins}
        for at, char in enumerate(text):
            if char not in firsts:
                continue
            ends = [(_match(text, at, begin), begin) for begin in self._shape.begins]
            if (found := next(((end, begin) for end, begin in ends if end is not None and end >= 0), None)) is not None:
                yield from self._text(text[:at])
                self._place, self._kept = "head", text[at:]
                self._start = self._body(found[0] - at, found[1])
                return
            if not is_end and any(end is None for end, _ in ends):
                yield from self._text(text[:at])
                self._kept = text[at:]
                return
        yield from self._text(text)
        self._kept = ""

    def _body(self, end: int, begin: tuple[str, ...]) -> int:
        """Where the call's JSON begins in a text that begins with `begin`, which ends at `end`."""
        if "{" not in begin:
            return end
        return self._kept.index("{", len(begin[0]) if begin[0] != "{" else 0)

    def _read_head(self, is_end: bool) -> Iterator[CallPiece]:
        match = _HEAD.match(self._kept, self._start)
        if match is not None:
            yield self._call(str(json.loads(match[1], strict=False)))
            self._place, self._kept = "arguments", self._kept[match.end() :]
            self._depth, self._is_in_string, self._is_escaped = 0, False, False
            return
        value, end = _json_at(self._kept, self._start)
        closer = self._shape.ends[-1] if len(self._shape.ends) > 1 else None
        if end is None:
            at = -1 if closer is None else self._kept.find(closer, self._start)
            if at < 0:
                return
            yield from self._text(self._kept[: at + len(closer or "")])
            self._place, self._kept = "text", self._kept[at + len(closer or "") :]
            return
        call = call_of(value)
        if isinstance(call, str):  # JSON that is no call is text like any other
            yield from self._text(self._kept[:end])
            self._place, self._kept = "text", self._kept[end:]
            return
        yield self._call(call.name)
        yield CallPiece("arguments", json.dumps(call.arguments, ensure_ascii=False), self._num_calls - 1)
        self._place, self._kept = "tail", "}" + self._kept[end:]

    def _read_arguments(self, is_end: bool) -> Iterator[CallPiece]:
        for at, char in enumerate(self._kept):
            if self._is_in_string:
                if self._is_escaped:
                    self._is_escaped = False
                elif char == "\\":
                    self._is_escaped = True
                elif char == '"':
                    self._is_in_string = False
            elif char == '"':
                self._is_in_string = True
            elif char in "{[":
                self._depth += 1
            elif char in "}]":
                self._depth -= 1
                if not self._depth:
                    yield CallPiece("arguments", self._kept[: at + 1], self._num_calls - 1)
                    self._place, self._kept = "tail", self._kept[at + 1 :]
                    return
        if self._kept:
            yield CallPiece("arguments", self._kept, self._num_calls - 1)
            self._kept = ""

    def _read_tail(self, is_end: bool) -> Iterator[CallPiece]:
        end = _match(self._kept, 0, self._shape.ends, before_first=True)
        if end == -1:  # further members: up to the end
            at = self._kept.find(self._shape.ends[-1])
            end = None if at < 0 else at + len(self._shape.ends[-1])
        if end is not None:
            self._place, self._kept = "list" if self._shape.is_list else "text", self._kept[end:]
            self._is_after_call = True
        yield from ()

    def _read_list(self, is_end: bool) -> Iterator[CallPiece]:
        rest = self._kept.lstrip()
        if rest.startswith(","):
            self._place, self._kept, self._start = "head", rest[1:], 0
        elif rest:
            self._place, self._kept = "text", rest[1:] if rest[0] == "]" else rest
        yield from ()

    def _text(self, text: str) -> Iterator[CallPiece]:
        """`text`, its white space at the end kept back: a call may follow."""
        if self._is_after_call:
            text = text.lstrip(" ;\n\r\t")
        if not text:
            return
        if self._is_after_call and self._has_text:
            self._space = "\n"
        text = self._space + text
        body = text.rstrip()
        self._space = text[len(body) :]
        if body:
            self._is_after_call, self._has_text = False, True
            yield CallPiece("text", body)

    def _call(self, name: str) -> CallPiece:
        self._num_calls += 1
        self._space = ""
        return CallPiece("call", name, self._num_calls - 1)


def _match(text: str, at: int, parts: tuple[str, ...], *, before_first: bool = False) -> int | None:
    """Where `parts`, with white space between, end in `text` from `at` on; -1: not there; None: the text is too short to tell."""
    for number, part in enumerate(parts):
        if number or before_first:
            while at < len(text) and text[at].isspace():
                at += 1
        chunk = text[at : at + len(part)]
        if not part.startswith(chunk):
            return -1
        if len(chunk) < len(part):
            return None
        at += len(part)
    return at


def _json_at(text: str, at: int) -> tuple[Any, int | None]:
    while at < len(text) and text[at].isspace():
        at += 1
    try:
        return _decoder.raw_decode(text, at)
    except (ValueError, RecursionError):
        return None, None
