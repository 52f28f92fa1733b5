"""The JSON form of ops and events, version 1: what travels between a program and a server; it knows no transport.

An op is `{"op": KIND, "id": ..., "branch": ..., fields}`, an event `{"event": KIND, "op": ID, fields}`. Fields have the names
of `ops`; those that have their default are left out, an unknown one is refused. See `docs/request_tree.md`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any, cast

from sglang_lite import errors
from sglang_lite.errors import ExecutionError, RequestError, SglangLiteError
from sglang_lite.ops import (
    AcceptOp,
    ArgOp,
    CountOp,
    DecideOp,
    EndOp,
    Event,
    ForkOp,
    GenOp,
    JoinOp,
    MarkOp,
    Op,
    OpDelta,
    OpDone,
    OpFailed,
    OpHeld,
    OpScored,
    RefOp,
    RefuseOp,
    RetryOp,
    RewindOp,
    RoleBeginOp,
    RoleEndOp,
    SelectOp,
    TemplateOp,
    TextOp,
)
from sglang_lite.sampling_params import LogprobParams, SamplingParams

__all__ = [
    "NOT_FINITE",
    "VERSION",
    "check_version",
    "error_from_json",
    "error_to_json",
    "event_from_json",
    "event_to_json",
    "finite",
    "op_from_json",
    "op_to_json",
    "with_entries",
]

VERSION = 1

NOT_FINITE = 9999.0
"""JSON has no infinities: a log-probability of minus infinity is written as -9999.0, as OpenAI's API does."""

_OPS: dict[str, type[Op]] = {
    "text": TextOp,
    "role_begin": RoleBeginOp,
    "role_end": RoleEndOp,
    "template": TemplateOp,
    "gen": GenOp,
    "select": SelectOp,
    "decide": DecideOp,
    "accept": AcceptOp,
    "retry": RetryOp,
    "refuse": RefuseOp,
    "mark": MarkOp,
    "rewind": RewindOp,
    "count": CountOp,
    "fork": ForkOp,
    "join": JoinOp,
    "ref": RefOp,
    "arg": ArgOp,
    "end": EndOp,
}
_KINDS: dict[type[Op], str] = {kind: name for name, kind in _OPS.items()}

_whole = "a whole number >= 0"
_FIELD_RULES: dict[str, tuple[str, Any]] = {
    "id": (_whole, lambda v: _is_whole(v)),
    "branch": (_whole, lambda v: _is_whole(v)),
    "select": (_whole, lambda v: _is_whole(v)),
    "index": (_whole, lambda v: _is_whole(v)),
    "target": (_whole, lambda v: _is_whole(v)),
    "gen": (_whole, lambda v: _is_whole(v)),
    "mark": (_whole, lambda v: _is_whole(v)),
    "first": ("a whole number or null", lambda v: v is None or _is_whole(v)),
    "vote": ("a string or null", lambda v: v is None or isinstance(v, str)),
    "message": ("a string", lambda v: isinstance(v, str)),
    "keep": ("true or false", lambda v: isinstance(v, bool)),
    "hold": ("true or false", lambda v: isinstance(v, bool)),
    "marks": (
        "two strings or null",
        lambda v: (
            v is None
            or (isinstance(v, list) and [type(mark) for mark in cast("list[Any]", v)] == [str, str] and all(v))
        ),
    ),
    "starts_inside": ("true or false", lambda v: isinstance(v, bool)),
    "children": (
        "a list of whole numbers",
        lambda v: isinstance(v, list) and all(map(_is_whole, cast("list[Any]", v))),
    ),
    "choices": ("a list of strings", lambda v: _are_strings(v)),
    "text": ("a string", lambda v: isinstance(v, str)),
    "role": ("a string", lambda v: isinstance(v, str)),
    "fields": ("the JSON text of an object, or null", lambda v: v is None or _is_object_text(v)),
    "variables": ("the JSON text of an object", lambda v: _is_object_text(v)),
    "name": ("a string or null", lambda v: v is None or isinstance(v, str)),
    "literal": ("true or false", lambda v: isinstance(v, bool)),
    "ids": (
        "a list of whole numbers",
        lambda v: isinstance(v, list) and all(map(_is_whole, cast("list[Any]", v))),
    ),
    "is_models": ("true or false", lambda v: isinstance(v, bool)),
    "stream": ("true or false", lambda v: isinstance(v, bool)),
    "needs_unconditional": ("true or false", lambda v: isinstance(v, bool)),
    "mode": ("gather or concat", lambda v: v in ("gather", "concat")),
    "method": (
        "a known method",
        lambda v: (
            v
            in (
                "token_length_normalized",
                "greedy_token_selection",
                "unconditional_likelihood_normalized",
                "client",
            )
        ),
    ),
    "params": ("an object", lambda v: v is None or isinstance(v, dict)),
    "logprob": ("an object or null", lambda v: v is None or isinstance(v, dict)),
    "start_len": ("a whole number or null", lambda v: v is None or _is_whole(v)),
    "top_num": (_whole, lambda v: _is_whole(v)),
    "token_ids": (
        "a list of whole numbers",
        lambda v: isinstance(v, list) and all(map(_is_whole, cast("list[Any]", v))),
    ),
    "with_text": ("true or false", lambda v: isinstance(v, bool)),
}

_ERRORS: dict[str, type[SglangLiteError]] = {
    name: kind for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, SglangLiteError)
}


def check_version(version: object) -> None:
    """Refuse what another version wrote.

    Raises:
        RequestError: names both versions.
    """
    if version is not None and (version != VERSION or isinstance(version, bool)):
        raise RequestError(
            f"reading a program: version {version!r}, expected {VERSION}; use the same release on both sides"
        )


def op_to_json(op: Op) -> dict[str, Any]:
    """One op as plain data."""
    return {"op": _KINDS[type(op)], **_changed(op)}


def op_from_json(data: object) -> Op:
    """The op that `data` describes.

    Raises:
        RequestError: it is no object, names an unknown kind or field, lacks a field, or a value is wrong.
    """
    values = _object(data, "an op")
    kind = _OPS.get(str(values.pop("op", None)))
    if kind is None:
        raise RequestError(f"reading an op: got {data!r:.200}, expected an object whose 'op' is one of {sorted(_OPS)}")
    what = f"reading a {_KINDS[kind]} op"
    _check_fields(kind, values, what)
    for name in ("children", "choices", "ids", "marks"):
        if values.get(name) is not None:
            values[name] = tuple(values[name])
    if kind in (GenOp, RetryOp) and values.get("params") is not None:
        values["params"] = _sampling(values["params"], what)
    if values.get("logprob") is not None:
        wanted = _object(values["logprob"], what)
        _check_fields(LogprobParams, wanted, f"{what}'s logprob")
        values["logprob"] = LogprobParams(**{**wanted, "token_ids": tuple(wanted.get("token_ids", ()))})
    return kind(**values)


def event_to_json(event: Event) -> dict[str, Any]:
    """One event as plain data; numbers that JSON does not have are replaced (see `NOT_FINITE`)."""
    match event:
        case OpDelta(op=op, text=text):
            return {"event": "delta", "op": op, "text": text}
        case OpDone():
            done = {"event": "done", "op": event.op, **_changed(event, skip=("op", "meta"))}
            return done | ({"meta": finite(event.meta)} if event.meta else {})
        case OpHeld():
            held = {"event": "held", "op": event.op, "text": event.text, **_changed(event, skip=("op", "text", "meta"))}
            return held | ({"meta": finite(event.meta)} if event.meta else {})
        case OpScored(op=op, meta=meta):
            return {"event": "scored", "op": op, "meta": finite(meta)}
        case OpFailed(op=op, error=error):
            return {"event": "failed", "op": op, "error": error_to_json(error)}


def event_from_json(data: object) -> Event:
    """The event that `data` describes; entries of log-probability lists become tuples again.

    Raises:
        RequestError: it describes none.
    """
    values = _object(data, "an event")
    try:
        kind, op = values.pop("event"), int(values.pop("op"))
        if kind == "delta":
            return OpDelta(op, values["text"])
        if kind == "scored":
            return OpScored(op, with_entries(values["meta"]))
        if kind == "failed":
            return OpFailed(op, error_from_json(values["error"]))
        if kind in ("done", "held"):
            values["meta"] = with_entries(values.get("meta", {}))
            for name in ("ids", "kinds"):
                values[name] = tuple(values.get(name, ()))
            return OpDone(op, **values) if kind == "done" else OpHeld(op, **values)
    except (KeyError, TypeError, ValueError) as error:
        raise RequestError(f"reading an event: got {data!r:.200}, {error!r}") from error
    raise RequestError(f"reading an event: got {data!r:.200}, expected one of delta, done, held, scored, failed")


def error_to_json(error: Exception) -> dict[str, Any]:
    """Type and message; an error that is not this package's is an internal one and says only that."""
    if isinstance(error, SglangLiteError):
        return {"type": type(error).__name__, "message": str(error)}
    return {"type": "ExecutionError", "message": f"an internal error: {type(error).__name__}"}


def error_from_json(data: object) -> SglangLiteError:
    """The error of the named type; one that this version does not know is an `ExecutionError` that names it."""
    values = _object(data, "an error")
    name, message = str(values.get("type")), str(values.get("message"))
    kind = _ERRORS.get(name)
    return ExecutionError(f"{name}: {message}") if kind is None else kind(message)


def finite(value: Any) -> Any:
    """A copy with tuples as lists and without infinities and NaN, which JSON does not have."""
    if isinstance(value, float):
        return value if math.isfinite(value) else -NOT_FINITE if value < 0 else NOT_FINITE
    if isinstance(value, dict):
        return {key: finite(item) for key, item in cast("dict[str, Any]", value).items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in cast("list[Any]", value)]
    return value


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_object_text(value: object) -> bool:
    try:
        return isinstance(value, str) and isinstance(json.loads(value), dict)
    except ValueError:
        return False


def _are_strings(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in cast("list[Any]", value))


def _object(data: object, what: str) -> dict[str, Any]:
    if not isinstance(data, Mapping):
        raise RequestError(f"reading {what}: got {data!r:.200}, expected an object")
    return dict(cast("Mapping[str, Any]", data))


def _check_fields(kind: type[Any], values: Mapping[str, Any], what: str) -> None:
    known = {f.name: f for f in fields(kind)}
    if unknown := sorted(set(values) - set(known)):
        raise RequestError(f"{what}: unknown {unknown}, known are {sorted(known)}")
    required = {n for n, f in known.items() if f.default is MISSING and f.default_factory is MISSING} - {"name"}
    if kind in (GenOp, SelectOp) and "name" not in values:
        raise RequestError(f"{what}: no 'name', expected a string or null")
    if missing := sorted(required - set(values)):
        raise RequestError(f"{what}: no {missing}, expected {sorted(required)}")
    if values.get("params", {}) is None and "params" in required:
        raise RequestError(f"{what}: params=None, expected an object")
    for name, value in values.items():
        allowed, is_right = _FIELD_RULES[name]
        if not is_right(value):
            raise RequestError(f"{what}: {name}={value!r:.200}, expected {allowed}")


def _sampling(values: dict[str, Any], what: str) -> SamplingParams:
    try:
        return SamplingParams.from_mapping(values)
    except (TypeError, AttributeError) as error:  # a value of a kind that no rule of it expects
        raise RequestError(f"{what}: params {values!r:.200}: {error}") from error


def _changed(item: Any, skip: tuple[str, ...] = ()) -> dict[str, Any]:
    """Fields that differ from their default; tuples as lists, parameters as objects."""
    changed: dict[str, Any] = {}
    for f in fields(item):
        value = getattr(item, f.name)
        if f.name in skip or (f.default is not MISSING and value == f.default):
            continue
        if isinstance(value, SamplingParams | LogprobParams):
            value = _changed(value)
        changed[f.name] = finite(value) if isinstance(value, tuple | list) else value
    return changed


def with_entries(meta: dict[str, Any]) -> dict[str, Any]:
    """A `meta_info` from JSON: entries `(logprob, token id, text)` as tuples, as a backend in the same process gives them."""

    def entries(value: Any) -> Any:
        if not isinstance(value, list):
            return value
        items = cast("list[Any]", value)
        if len(items) == 3 and isinstance(items[1], int) and (items[2] is None or isinstance(items[2], str)):
            return tuple(items)
        return [entries(item) for item in items]

    return {key: entries(value) if "logprobs" in key else value for key, value in meta.items()}
