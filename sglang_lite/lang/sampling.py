"""How a gen's arguments and the run's defaults become sampling parameters; nothing the user passed in is changed."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from sglang_lite.chat_formats.recognise import ChatFormat
from sglang_lite.errors import RequestError
from sglang_lite.lang.global_config import global_config
from sglang_lite.lang.ir import REGEX_BOOL, REGEX_FLOAT, REGEX_INT, REGEX_STR, SglGen
from sglang_lite.lang.tools.gens import SglToolGen
from sglang_lite.lang.typed.gens import as_typed
from sglang_lite.request_tree import LogprobParams, SamplingParams

_DTYPES: dict[str, tuple[str, tuple[str, ...]]] = {
    "int": (REGEX_INT, (" ", "\n")),
    "float": (REGEX_FLOAT, (" ", "\n")),
    "str": (REGEX_STR, ()),
    "bool": (REGEX_BOOL, ()),
}
_SAME_NAME = (
    "n",
    "stop",
    "stop_token_ids",
    "stop_regex",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "frequency_penalty",
    "presence_penalty",
    "ignore_eos",
    "regex",
    "json_schema",
    "ebnf",
    "structural_tag",
    "json_whitespace",
    "json_strict",
    "jump_forward",
)


@dataclass(frozen=True, slots=True)
class RunDefaults:
    """What a run gives to every gen that says nothing else; `select` takes nothing of it.

    `chat`: how the backend's model writes tool calls and thinking.
    """

    params: SamplingParams = field(default_factory=SamplingParams)
    return_logprob: bool | None = None
    logprob_start_len: int | None = None
    top_logprobs_num: int | None = None
    return_text_in_logprobs: bool | None = None
    chat: ChatFormat = field(default_factory=ChatFormat)


def as_tuple(what: str, value: Any) -> tuple[Any, ...] | None:
    """One value or an iterable of values as a tuple of its own; None stays None.

    Raises:
        RequestError: it is neither.
    """
    if value is None:
        return None
    if isinstance(value, str | int):
        return (value,)
    if isinstance(value, Iterable):
        return tuple(value)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    raise RequestError(f"reading {what}: got {value!r}, expected one value or a list of them")


def dtype_name(dtype: object) -> str | None:
    """The name under which a `dtype` argument (`int`, `"int"`, ...) is known; None stays None.

    Raises:
        RequestError: it is none of int, float, str, bool.
    """
    if dtype is None:
        return None
    name = dtype.__name__ if isinstance(dtype, type) else dtype
    if not isinstance(name, str) or name not in _DTYPES:
        raise RequestError(f"reading dtype: got {dtype!r}, expected one of {sorted(_DTYPES)}, as a type or a string")
    return name


def run_defaults(
    *,
    return_logprob: bool | None = None,
    logprob_start_len: int | None = None,
    top_logprobs_num: int | None = None,
    return_text_in_logprobs: bool | None = None,
    **params: Any,
) -> RunDefaults:
    """The defaults of a run from the arguments of `run`; the other names are those of `SamplingParams`.

    Raises:
        RequestError: a value is not allowed.
    """
    for name in ("stop", "stop_token_ids", "stop_regex"):
        params[name] = as_tuple(name, params.get(name)) or ()
    if not global_config.skip_special_tokens_in_output:
        params.setdefault("skip_special_tokens", False)
    return RunDefaults(
        SamplingParams(**params), return_logprob, logprob_start_len, top_logprobs_num, return_text_in_logprobs
    )


def resolve_gen(gen: SglGen, defaults: RunDefaults) -> tuple[SamplingParams, LogprobParams | None]:
    """The parameters of one generation: the run's defaults, overridden by what the gen says.

    Raises:
        RequestError: a value is not allowed.
    """
    changes: dict[str, Any] = {name: value for name in _SAME_NAME if (value := getattr(gen, name)) is not None}
    if gen.max_tokens is not None:
        changes["max_new_tokens"] = gen.max_tokens
    if gen.min_tokens is not None:
        changes["min_new_tokens"] = gen.min_tokens
    if gen.dtype is not None:
        if gen.regex is not None:
            warnings.warn(f"gen {gen.name!r} has dtype and regex: the dtype's own regex is used", stacklevel=2)
        changes["regex"], more_stops = _DTYPES[gen.dtype]
        stops: tuple[str, ...] = changes.get("stop", defaults.params.stop)
        if defaults.params.thinking is None:  # they would end the thinking
            changes["stop"] = stops + tuple(stop for stop in more_stops if stop not in stops)
    own = as_typed(gen)
    typed = own.typed if own is not None else None
    if typed is not None:
        ends = () if defaults.params.thinking is not None else typed.stop  # they would end the thinking
        more = tuple(stop for stop in ends if stop not in changes.get("stop", defaults.params.stop))
        changes["stop"] = changes.get("stop", defaults.params.stop) + more
        changes |= {name: value for name in ("regex", "choices", "json_schema") if (value := getattr(typed, name))}
    if isinstance(gen, SglToolGen) and (constraint := gen.constraint(defaults.chat)) is not None:
        changes[constraint[0]] = constraint[1]
    ends_itself = gen.json_schema is not None or (typed is not None and not typed.is_free)
    ends_itself = ends_itself or isinstance(gen, SglToolGen)
    if gen.max_tokens is None and ends_itself:  # the run's limit is meant for free text
        changes["max_new_tokens"] = None
    params = defaults.params
    return _changed(params, **changes) if changes else params, _resolve_logprob(gen, defaults)


@lru_cache(maxsize=512, typed=True)  # a program has few kinds of gens, and its rows have the same
def _changed(params: SamplingParams, **changes: Any) -> SamplingParams:
    return params.with_(**changes)


def _resolve_logprob(gen: SglGen, defaults: RunDefaults) -> LogprobParams | None:
    wanted = defaults.return_logprob if gen.return_logprob is None else gen.return_logprob
    if not wanted:
        return None
    start = defaults.logprob_start_len if gen.logprob_start_len is None else gen.logprob_start_len
    top = defaults.top_logprobs_num if gen.top_logprobs_num is None else gen.top_logprobs_num
    text = defaults.return_text_in_logprobs if gen.return_text_in_logprobs is None else gen.return_text_in_logprobs
    return LogprobParams(None if start is None or start < 0 else start, top or 0, (), bool(text))
