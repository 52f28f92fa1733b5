"""Canned replies: where they come from, and how one is fitted to what a gen asks for; no programs, no threads."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias, cast

from sglang_lite.errors import ExecutionError, RequestError
from sglang_lite.request_tree import SamplingParams


class ScriptError(ExecutionError):
    """The script has no reply here, or one that what is asked for does not allow."""


@dataclass(slots=True)
class ScriptedCall:
    """One gen or select as the scripted backend met it.

    `index`: its number on this backend, from 0. `prompt`: the text of its branch up to it. `choices`: of a select, or
    of a gen limited to choices. `reply`: what the script gave; None until then, and where it gave nothing.
    """

    index: int
    kind: Literal["gen", "select"]
    name: str | None
    prompt: str
    params: SamplingParams | None
    choices: tuple[str, ...] | None
    reply: Any = None


Reply: TypeAlias = str | Sequence[str] | Exception
"""A text; a list of texts for a gen with `n > 1`; an exception, with which the op fails."""

Replies: TypeAlias = Sequence[Reply] | Mapping[str, Reply | Sequence[Reply]] | Callable[[ScriptedCall], Reply]
"""In order of arrival; by name (one for every time, or a list in order; `"*"`: any other name); or computed."""


class Script:
    """Hands out replies. Owns how far each list was read; one thread uses it."""

    def __init__(self, replies: Replies | None) -> None:
        if isinstance(replies, str):
            raise RequestError(
                f"reading scripted replies: got the text {replies!r}, expected a list, a dict or a function"
            )
        # Copies, so that neither side sees the other's changes.
        self._function = replies if callable(replies) else None
        self._in_order: list[Any] = list(cast("Sequence[Any]", replies)) if isinstance(replies, Sequence) else []
        self._by_name = _copy(cast("Mapping[str, Any]", replies)) if isinstance(replies, Mapping) else None
        self._is_empty = replies is None
        self._taken: dict[str, int] = {}

    def next(self, call: ScriptedCall) -> Reply:
        """The reply to `call`.

        Raises:
            ScriptError: there is none.
        """
        if self._is_empty:
            return placeholder(call)
        if self._function is not None:
            return self._function(call)
        if self._by_name is None:
            return self._from_list("", self._in_order, call)
        key = call.name if call.name in self._by_name else "*"
        if key not in self._by_name:
            raise ScriptError(
                f"{describe(call)}: the script has no reply for this name, only for {sorted(self._by_name)}"
            )
        found = self._by_name[key]
        return self._from_list(key, cast("list[Any]", found), call) if isinstance(found, list) else found

    def _from_list(self, key: str, replies: list[Any], call: ScriptedCall) -> Reply:
        taken = self._taken.get(key, 0)
        if taken >= len(replies):
            raise ScriptError(f"{describe(call)}: the script has no reply left, it had {len(replies)}")
        self._taken[key] = taken + 1
        return replies[taken]


def _copy(replies: Mapping[str, Any]) -> dict[str, Any]:
    return {name: list(value) if isinstance(value, list | tuple) else value for name, value in replies.items()}  # pyright: ignore[reportUnknownArgumentType]


def read_script(path: str | Path) -> Replies:
    """The replies in a JSON file: a list of them in order, or an object of them by name.

    Raises:
        RequestError: the file is missing or holds something else.
    """
    try:
        replies = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, json.JSONDecodeError) as error:
        raise RequestError(f"reading the script {str(path)!r}: {error}; expected a JSON file") from error
    if not isinstance(replies, list | dict):
        raise RequestError(
            f"reading the script {str(path)!r}: got {replies!r}, expected a list or an object of replies"
        )
    return cast("Replies", replies)


def describe(call: ScriptedCall) -> str:
    """The call in words, for messages."""
    name = "without a name" if call.name is None else repr(call.name)
    return f"answering {call.kind} {name} (call {call.index}) from the script"


_PLACEHOLDERS = ("0", "0.0", '"text"', "True")


def placeholder(call: ScriptedCall) -> Reply:
    """A reply where no script is given: the first choice, something that fits a `dtype`, or the name in brackets."""
    if call.choices is not None:
        return call.choices[0]
    regex = call.params.regex if call.params is not None else None
    if regex is None:
        return f"<{call.name or 'text'}>"
    for text in _PLACEHOLDERS:
        if re.fullmatch(regex, text):
            return text
    raise ScriptError(f"{describe(call)}: nothing is scripted that matches regex={regex!r}; give the backend replies")


@dataclass(frozen=True, slots=True)
class Fitted:
    """A reply as a generation would have ended it."""

    text: str
    finish_reason: dict[str, Any]


def words(text: str) -> list[str]:
    """`text` in pieces that count as tokens: words, each with the white space before it."""
    return re.findall(r"\s*\S+|\s+\Z", text)


def fit(text: str, params: SamplingParams, call: ScriptedCall) -> Fitted:
    """Cut a reply where a generation would have ended: the earliest stop, then `max_new_tokens` words.

    What is left must fit the constraint, unless it was cut for length. `regex` and `choices` are checked whole,
    `json_schema` only for being JSON, `ebnf` not at all.

    Raises:
        ScriptError: it does not fit.
    """
    ends = [(text.find(stop), stop, len(stop)) for stop in params.stop if stop in text]
    for pattern in params.stop_regex:
        if (match := re.search(pattern, text)) is not None:
            ends.append((match.start(), match.group(), len(match.group())))
    reason: dict[str, Any] = {"type": "stop", "matched": None}
    if ends:
        at, matched, length = min(ends)
        text = text[: at + length] if params.no_stop_trim else text[:at]
        reason = {"type": "stop", "matched": matched}
    pieces = words(text)
    limit = params.max_new_tokens
    if limit is not None and len(pieces) > limit:
        return Fitted("".join(pieces[:limit]), {"type": "length", "length": limit})
    _check(text, params, call)
    return Fitted(text, reason)


def _check(text: str, params: SamplingParams, call: ScriptedCall) -> None:
    what = f"{describe(call)}: the reply {text!r}"
    if params.thinking is not None:
        begin, end = params.thinking
        if end not in text and text.lstrip().startswith(begin):
            return  # nothing but thinking
        text = text.partition(end)[2].strip() if end in text else text
    if params.regex is not None and not re.fullmatch(params.regex, text):
        raise ScriptError(f"{what} does not match regex={params.regex!r}")
    if params.choices is not None and text not in params.choices:
        raise ScriptError(f"{what} is none of the choices {list(params.choices)}")
    if params.json_schema is not None:
        try:
            json.loads(text)
        except json.JSONDecodeError as error:
            raise ScriptError(f"{what} is no JSON: {error}") from error
