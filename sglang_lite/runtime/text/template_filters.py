"""The filters templates may use, each counted and bounded."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from jinja2.exceptions import SecurityError
from jinja2.runtime import Undefined

from sglang_lite.runtime.text.template_limits import check_percent, check_replace, current_budget

# Filters that real templates use and whose result is no larger than their input, or which are guarded below.
_PLAIN_FILTERS = (
    "abs", "attr", "capitalize", "count", "d", "default", "dictsort", "e", "escape", "first", "float", "groupby", "int",
    "items", "last", "length", "list", "lower", "map", "max", "min", "reject", "rejectattr", "reverse", "round", "safe",
    "select", "selectattr", "sort", "title", "trim", "truncate", "unique", "upper", "wordcount",
)  # fmt: skip


def bounded_filters(known: Mapping[str, Callable[..., Any]]) -> dict[str, Callable[..., Any]]:
    """The allowed ones of Jinja's filters `known`, guarded, with the ones made here."""
    filters = {name: _guarded(known[name], free=name in ("d", "default", "int", "float")) for name in _PLAIN_FILTERS}
    filters |= {
        "string": _string,
        "join": join,
        "replace": _replace,
        "tojson": _tojson,
        "format": _format,
        "indent": _indent,
    }
    filters |= {"__steps": _steps, "__concat": _concat, "__checked": _checked}
    return filters


def _guarded(function: Callable[..., Any], *, free: bool) -> Callable[..., Any]:
    """`function` as one counted step with bounded numbers and a bounded result; its `pass_*` mark is kept."""
    mark = getattr(function, "jinja_pass_arg", None)
    n_leading = 1 if mark is None else 2  # the filtered value, after what Jinja passes by itself

    def run(*args: Any, **kwargs: Any) -> Any:
        budget = current_budget.get()
        budget.step()
        numbers = () if free else (*args[n_leading:], *kwargs.values())
        if any(isinstance(number, int) and abs(number) > 10_000 for number in numbers):
            raise SecurityError("a filter's number is larger than 10000")
        return budget.check_value(function(*args, **kwargs))

    if mark is not None:
        run.jinja_pass_arg = mark  # pyright: ignore[reportFunctionMemberAccess]
    return run


def _steps(values: Iterable[Any]) -> Iterator[Any]:
    budget = current_budget.get()
    for value in values:
        budget.step()
        yield value


def _concat(values: list[Any]) -> str:
    budget = current_budget.get()
    budget.step()
    texts = [budget.text(value) for value in values]
    budget.check_chars(sum(map(len, texts)))
    return "".join(texts)


def _checked(value: Any) -> Any:
    return current_budget.get().check_value(value)


def _string(value: Any) -> str:
    return current_budget.get().text(value)


def join(value: Iterable[Any], d: str = "", attribute: str | int | None = None) -> str:
    """The texts of `value` (or of an attribute of each) with `d` between them; bounded before they are joined."""
    budget = current_budget.get()
    separator = budget.text(d)
    texts: list[str] = []
    total = 0
    for item in value:
        budget.step()
        if attribute is not None:
            item = item.get(attribute, "") if isinstance(item, Mapping) else item[attribute]
        texts.append(budget.text(item))
        total += len(texts[-1]) + len(separator)
        budget.check_chars(total)
    return separator.join(texts)


def _replace(value: Any, old: Any, new: Any, count: int | None = None) -> str:
    budget = current_budget.get()
    budget.step()
    text, old, new = budget.text(value), budget.text(old), budget.text(new)
    check_replace(budget, text, old, new)
    return text.replace(old, new, -1 if count is None else count)


def _indent(value: Any, width: int | str = 4, first: bool = False, blank: bool = False) -> str:
    budget = current_budget.get()
    budget.step()
    text = budget.text(value)
    budget.check_chars(len(text) + (text.count("\n") + 1) * (width if isinstance(width, int) else len(width)))
    lead = " " * width if isinstance(width, int) else width
    lines = text.split("\n")
    body = [line if i == 0 or (not line and not blank) else lead + line for i, line in enumerate(lines)]
    return (lead if first else "") + "\n".join(body)


def _format(value: Any, *args: Any, **kwargs: Any) -> str:
    budget = current_budget.get()
    budget.step()
    text = budget.text(value)
    check_percent(budget, text, (*args, *kwargs.values()))
    return text % (kwargs or args)


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON as transformers' templates expect it: no HTML escapes, non-ASCII text kept."""
    budget = current_budget.get()
    budget.step()
    if isinstance(indent, int) and indent > 100:
        raise SecurityError(f"tojson is asked to indent by {indent}")
    if isinstance(value, Undefined):
        raise TypeError("an undefined value has no JSON form")
    budget.check_value(value)
    encoder = json.JSONEncoder(ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
    parts: list[str] = []
    total = 0
    for part in encoder.iterencode(value):
        total += len(part)
        budget.check_chars(total)
        parts.append(part)
    return "".join(parts)
