"""A record as text for a terminal: one op a line with its costs, children of a fork indented; it reads the JSON form."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

_OP_WIDTH = 34
_VALUE_WIDTH = 60
_QUIET = ("end",)


def record_text(run: Mapping[str, Any]) -> str:
    """The whole record, runs inside it last."""
    return "\n".join(_run_lines(run))


def _run_lines(run: Mapping[str, Any]) -> Iterator[str]:
    usage: Mapping[str, Any] = run["usage"]
    model = f" ({run['model']})" if run["model"] else ""
    yield f"{run['program']}  on {run['backend']}{model}, seed {_or_dash(run['seed'])}, started {run['started_at']}"
    yield (
        f"{usage['requests']} requests in {run['seconds']:.3f} s; prompt tokens: {usage['prompt_tokens']}, of which "
        f"{usage['cached_tokens']} reused; {usage['computed_tokens']} computed, {usage['sampled_tokens']} sampled, "
        f"{usage['forced_tokens']} forced; {usage['evicted_pages']} pages evicted"
    )
    if run["error"] is not None:
        yield f"error: {run['error']['type']}: {run['error']['message']}"
    yield ""
    yield _row("op", "seconds", "queue", "reused", "computed", "forced", "sampled", "evicted", "value")
    yield from _branch_lines(run["ops"], 0, 0)
    for inner in run["nested"]:
        yield ""
        yield f"inside {run['program']}:"
        yield from _run_lines(inner)


def _branch_lines(ops: list[Any], branch: int, depth: int) -> Iterator[str]:
    for entry in ops:
        op: Mapping[str, Any] = entry["op"]
        if op["branch"] != branch or op["op"] in _QUIET:
            continue
        yield _op_line(entry, depth)
        for number, child in enumerate(op["children"] if op["op"] == "fork" else ()):
            yield f"{'  ' * (depth + 1)}branch {child} (child {number}):"
            yield from _branch_lines(ops, child, depth + 2)


def _op_line(entry: Mapping[str, Any], depth: int) -> str:
    op, usage = entry["op"], entry.get("usage")
    title = f"{'  ' * depth}{op['id']} {op['op']}{_detail(op)}"
    costs = ["" for _ in range(7)]
    if usage is not None:
        names = ("cached_tokens", "computed_tokens", "forced_tokens", "sampled_tokens", "evicted_pages")
        queue = "" if usage["queue_s"] is None else f"{usage['queue_s']:.3f}"
        costs = [f"{usage['seconds']:.3f}", queue, *(str(usage[name]) for name in names)]
    return _row(title, *costs, _shown(entry))


def _detail(op: Mapping[str, Any]) -> str:
    match op["op"]:
        case "gen" | "select":
            return f" {op['name']}" if op["name"] is not None else ""
        case "role_begin":
            return f" {op['role']}"
        case "ref":
            return f" to {op['target']}"
        case "fork":
            return f" into {len(op['children'])}"
        case "join":
            return f" of {', '.join(map(str, op['children']))}"
        case _:
            return ""


def _shown(entry: Mapping[str, Any]) -> str:
    if entry["state"] == "open":
        return "(open)"
    if entry["state"] == "failed":
        return f"failed: {entry['error']['type']}: {entry['error']['message']}"[: 2 * _VALUE_WIDTH]
    result: Mapping[str, Any] = entry["result"]
    value = result.get("value", result.get("text", ""))
    if value in ("", None):
        return ""
    text = value if isinstance(value, str) else str(value)
    return repr(text if len(text) <= _VALUE_WIDTH else f"{text[:_VALUE_WIDTH]}...")


def _row(title: str, *cells: str) -> str:
    *costs, value = cells
    return f"{title:<{_OP_WIDTH}}{''.join(f'{cost:>9}' for cost in costs)}  {value}".rstrip()


def _or_dash(value: object) -> str:
    return "-" if value is None else str(value)
