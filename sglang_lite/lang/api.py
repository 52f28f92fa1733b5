"""The functions that a program is written with: thin constructors of expressions; they check what can be checked early.

Names, defaults and the order of parameters are SGLang's.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, overload

from sglang_lite.errors import GrammarError, RequestError, UnsupportedError
from sglang_lite.lang.choices import ChoicesSamplingMethod, token_length_normalized
from sglang_lite.lang.ir import (
    SglConstantText,
    SglExpr,
    SglExprList,
    SglGen,
    SglRoleBegin,
    SglRoleEnd,
    SglSelect,
    SglSeparateReasoning,
    flatten,
    need_expr,
    role_block,
)
from sglang_lite.lang.reasoning import thinking_format
from sglang_lite.lang.sampling import as_tuple, dtype_name
from sglang_lite.lang.sgl_function import SglFunction
from sglang_lite.lang.tools.gens import Thinking, extended_gen
from sglang_lite.lang.typed.describe import typed_gen
from sglang_lite.lang.typed.gens import SglTypedGen, read_retries
from sglang_lite.sampling_params import JsonWhitespace, JumpForward

T = TypeVar("T")


@overload
def function(func: Callable[..., Any]) -> SglFunction: ...
@overload
def function(
    func: None = None, num_api_spec_tokens: int | None = None, *, lazy: bool = False, pure: bool = False
) -> Callable[[Callable[..., Any]], SglFunction]: ...
def function(
    func: Callable[..., Any] | None = None,
    num_api_spec_tokens: int | None = None,
    *,
    lazy: bool = False,
    pure: bool = False,
) -> SglFunction | Callable[[Callable[..., Any]], SglFunction]:
    """Make a program of a function whose first parameter is `s`; usable bare or called.

    Args:
        lazy: in the body `s[name]` is a reference. `t += s[name]` waits for nothing, so that a whole program reaches the
            backend at once; formatting it, comparing it, and so on, waits as ever.
        pure: the body does nothing but append, and depends on its arguments alone: it is lazy, and `run_batch` sends
            it once with rows of arguments where it can be followed without values.
    """
    if func is not None:
        return SglFunction(func, num_api_spec_tokens, lazy=lazy, pure=pure)
    return lambda inner: SglFunction(inner, num_api_spec_tokens, lazy=lazy, pure=pure)


@overload
def gen(
    name: str | None = None,
    max_tokens: int | None = None,
    min_tokens: int | None = None,
    n: int | None = None,
    stop: str | Sequence[str] | None = None,
    stop_token_ids: Sequence[int] | None = None,
    stop_regex: str | Sequence[str] | None = None,
    temperature: float | None = None,
    top_p: float | None = None,
    top_k: int | None = None,
    min_p: float | None = None,
    frequency_penalty: float | None = None,
    presence_penalty: float | None = None,
    ignore_eos: bool | None = None,
    return_logprob: bool | None = None,
    logprob_start_len: int | None = None,
    top_logprobs_num: int | None = None,
    return_text_in_logprobs: bool | None = None,
    dtype: type | str | None = None,
    choices: Sequence[str] | None = None,
    choices_method: ChoicesSamplingMethod | None = None,
    regex: str | None = None,
    json_schema: str | Mapping[str, Any] | None = None,
    *,
    type: type[T],
    retries: int | None = None,
    retry_text: str | bool | None = None,
    describe: bool = False,
    check: Callable[[T], object] | None = None,
    json_whitespace: JsonWhitespace | None = None,
    json_strict: bool | None = None,
    jump_forward: JumpForward | None = None,
) -> SglTypedGen[T]: ...
@overload
def gen(
    name: str | None = None,
    max_tokens: int | None = None,
    min_tokens: int | None = None,
    n: int | None = None,
    stop: str | Sequence[str] | None = None,
    stop_token_ids: Sequence[int] | None = None,
    stop_regex: str | Sequence[str] | None = None,
    temperature: float | None = None,
    top_p: float | None = None,
    top_k: int | None = None,
    min_p: float | None = None,
    frequency_penalty: float | None = None,
    presence_penalty: float | None = None,
    ignore_eos: bool | None = None,
    return_logprob: bool | None = None,
    logprob_start_len: int | None = None,
    top_logprobs_num: int | None = None,
    return_text_in_logprobs: bool | None = None,
    dtype: type | str | None = None,
    choices: Sequence[str] | None = None,
    choices_method: ChoicesSamplingMethod | None = None,
    regex: str | None = None,
    json_schema: str | Mapping[str, Any] | None = None,
    *,
    type: Any = None,
    retries: int | None = None,
    retry_text: str | bool | None = None,
    describe: bool = False,
    check: Callable[[Any], object] | None = None,
    tools: Sequence[Any] | None = None,
    tool_choice: str | Mapping[str, Any] | None = None,
    thinking: Thinking | None = None,
    keep_thinking: bool = False,
    thinking_marks: tuple[str, str] | None = None,
    ebnf: str | None = None,
    structural_tag: str | Mapping[str, Any] | None = None,
    json_whitespace: JsonWhitespace | None = None,
    json_strict: bool | None = None,
    jump_forward: JumpForward | None = None,
) -> SglExpr: ...
def gen(  # noqa: PLR0913 - the names and their order are SGLang's
    name: str | None = None,
    max_tokens: int | None = None,
    min_tokens: int | None = None,
    n: int | None = None,
    stop: str | Sequence[str] | None = None,
    stop_token_ids: Sequence[int] | None = None,
    stop_regex: str | Sequence[str] | None = None,
    temperature: float | None = None,
    top_p: float | None = None,
    top_k: int | None = None,
    min_p: float | None = None,
    frequency_penalty: float | None = None,
    presence_penalty: float | None = None,
    ignore_eos: bool | None = None,
    return_logprob: bool | None = None,
    logprob_start_len: int | None = None,
    top_logprobs_num: int | None = None,
    return_text_in_logprobs: bool | None = None,
    dtype: type | str | None = None,
    choices: Sequence[str] | None = None,
    choices_method: ChoicesSamplingMethod | None = None,
    regex: str | None = None,
    json_schema: str | Mapping[str, Any] | None = None,
    *,
    type: Any = None,
    retries: int | None = None,
    retry_text: str | bool | None = None,
    describe: bool = False,
    check: Callable[[Any], object] | None = None,
    tools: Sequence[Any] | None = None,
    tool_choice: str | Mapping[str, Any] | None = None,
    thinking: Thinking | None = None,
    keep_thinking: bool = False,
    thinking_marks: tuple[str, str] | None = None,
    ebnf: str | None = None,
    structural_tag: str | Mapping[str, Any] | None = None,
    json_whitespace: JsonWhitespace | None = None,
    json_strict: bool | None = None,
    jump_forward: JumpForward | None = None,
) -> SglExpr:
    """Generate, and call the result `name`; an argument that is None takes the run's default.

    With `choices` it is `select(name, choices, ..., choices_method)`, and the other arguments have no say.
    `dtype`: int, float, str or bool; the value is text of that form all the same. `json_schema`: a schema as a JSON
    text or a dict. `type`: the text is held to the form of this type, and the value is of it; a schema or a type ends the
    text, so that only a `max_tokens` of the gen's own limits it.

    Args:
        retries: how many more tries where a text is no value of the type (or `check` refuses it), or was cut: then with
            twice the `max_tokens`.
        retry_text: appended before a further try, with `{text}` and `{error}` put in; True: `RETRY_TEXT`. None: the same
            prompt with another seed.
        describe: put what the type or schema allows into the prompt, before the gen.
        check: gets the value, and raises `ValueError` where it is not good.
        tools: functions, tools in OpenAI's form or pydantic models that the model may call; the value is a `ToolReply`.
        tool_choice: `auto`, `none`, `required` (one call), or the name of the tool that must be called.
        thinking: `auto` (as the model likes), `off`, or a limit in tokens; the value is the answer, the constraint holds
            for it alone, and `s.get_reasoning(name)` gives the thinking.
        keep_thinking: it stays in the text, as far as the model's template keeps it.
        thinking_marks: around the thinking, in place of the model's own.
        ebnf: a grammar in GBNF's or Lark's notation that the text is held to.
        structural_tag: free text, and inside its tags what each of them holds, as a JSON text or a dict.
        json_whitespace: of constrained JSON: `compact` (the default), `spaced` or `any`.
        json_strict: False: what of a schema cannot be enforced is checked on the finished text and named in
            `grammar_notes` of its meta info; True (the default): it is an error.
        jump_forward: what is done with tokens that the constraint forces: `off`; `verify`: those that the model would have
            taken are computed together, the text is that of `off`; `force`: all of them are taken. None: as the backend is set.

    Raises:
        RequestError: (a ValueError) a regex, a schema, choices, a dtype or a type that cannot be used; retries with
            nothing to check, or such that every try would be the same.
    """
    own = {"type": type, "retries": retries, "retry_text": retry_text, "describe": describe or None, "check": check}
    if choices is not None:
        _refuse_beside_choices(name, own | {"tools": tools, "tool_choice": tool_choice, "thinking": thinking})
        return select(name, choices, temperature or 0.0, choices_method or token_length_normalized)
    if regex is not None:
        _check_regex(regex)
    lengths = (name, max_tokens, min_tokens, n)
    stops = (as_tuple("stop", stop), as_tuple("stop_token_ids", stop_token_ids), as_tuple("stop_regex", stop_regex))
    sampling = (temperature, top_p, top_k, min_p, frequency_penalty, presence_penalty, ignore_eos)
    logprobs = (return_logprob, logprob_start_len, top_logprobs_num, return_text_in_logprobs)
    held = (ebnf, _json_text("structural_tag", structural_tag), json_whitespace, json_strict, jump_forward)
    made = SglGen(
        *lengths, *stops, *sampling, *logprobs, dtype_name(dtype), regex, _json_text("json_schema", json_schema), *held
    )
    if any(value is not None for value in own.values()):
        made = typed_gen(made, type, check, read_retries(retries, retry_text, temperature), describe)
    return extended_gen(made, tools, tool_choice, thinking, keep_thinking, thinking_marks)


def _refuse_beside_choices(name: str | None, arguments: Mapping[str, Any]) -> None:
    if also := sorted(key for key, value in arguments.items() if value is not None):
        raise RequestError(f"making gen {name!r}: got choices and {also}, expected one of them; use type=Literal[...]")


def gen_int(  # noqa: PLR0913 - the names and their order are SGLang's
    name: str | None = None,
    max_tokens: int | None = None,
    n: int | None = None,
    stop: str | Sequence[str] | None = None,
    stop_token_ids: Sequence[int] | None = None,
    stop_regex: str | Sequence[str] | None = None,
    temperature: float | None = None,
    top_p: float | None = None,
    top_k: int | None = None,
    min_p: float | None = None,
    frequency_penalty: float | None = None,
    presence_penalty: float | None = None,
    ignore_eos: bool | None = None,
    return_logprob: bool | None = None,
    logprob_start_len: int | None = None,
    top_logprobs_num: int | None = None,
    return_text_in_logprobs: bool | None = None,
) -> SglExpr:
    """`gen` with `dtype=int`: the digits of a whole number, as text."""
    return gen(
        name,
        max_tokens,
        None,
        n,
        stop,
        stop_token_ids,
        stop_regex,
        temperature,
        top_p,
        top_k,
        min_p,
        frequency_penalty,
        presence_penalty,
        ignore_eos,
        return_logprob,
        logprob_start_len,
        top_logprobs_num,
        return_text_in_logprobs,
        int,
    )


def gen_string(  # noqa: PLR0913 - the names and their order are SGLang's
    name: str | None = None,
    max_tokens: int | None = None,
    n: int | None = None,
    stop: str | Sequence[str] | None = None,
    stop_token_ids: Sequence[int] | None = None,
    stop_regex: str | Sequence[str] | None = None,
    temperature: float | None = None,
    top_p: float | None = None,
    top_k: int | None = None,
    min_p: float | None = None,
    frequency_penalty: float | None = None,
    presence_penalty: float | None = None,
    ignore_eos: bool | None = None,
    return_logprob: bool | None = None,
    logprob_start_len: int | None = None,
    top_logprobs_num: int | None = None,
    return_text_in_logprobs: bool | None = None,
) -> SglExpr:
    """`gen` with `dtype=str`: words in double quotes, the quotes included."""
    return gen(
        name,
        max_tokens,
        None,
        n,
        stop,
        stop_token_ids,
        stop_regex,
        temperature,
        top_p,
        top_k,
        min_p,
        frequency_penalty,
        presence_penalty,
        ignore_eos,
        return_logprob,
        logprob_start_len,
        top_logprobs_num,
        return_text_in_logprobs,
        str,
    )


def select(
    name: str | None = None,
    choices: Sequence[str] | None = None,
    temperature: float = 0.0,
    choices_method: ChoicesSamplingMethod = token_length_normalized,
) -> SglSelect:
    """Append the best of `choices`, and call it `name`. An empty string may be among them.

    Raises:
        RequestError: (a ValueError) no choices, something that is no text among them, or another method object.
        UnsupportedError: a temperature: choices are scored, not sampled.
    """
    what = f"making select {name!r}"
    if choices is None or isinstance(choices, str):
        raise RequestError(f"{what}: got choices={choices!r}, expected a list of texts")
    own = tuple(choices)
    if not own or not all(isinstance(choice, str) for choice in own):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise RequestError(f"{what}: got choices={list(own)!r}, expected at least one, each of them a str")
    if temperature > 1e-5:
        raise UnsupportedError(f"{what}: temperature={temperature!r} is not supported: choices are scored; leave it 0")
    if not isinstance(choices_method, ChoicesSamplingMethod):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise RequestError(f"{what}: got choices_method={choices_method!r}, expected a ChoicesSamplingMethod object")
    return SglSelect(name, own, choices_method)


def _check_regex(regex: str) -> None:
    try:
        re.compile(regex)
    except re.error as error:
        raise GrammarError(f"making a gen: regex={regex!r} cannot be compiled: {error}") from error


def _json_text(what: str, value: str | Mapping[str, Any] | None) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    try:
        json.loads(value or "null")
    except json.JSONDecodeError as error:
        raise GrammarError(f"making a gen: {what} is no JSON text: {error}; pass json.dumps(...) of it") from error
    return value


def literal(text: str) -> SglConstantText:
    """Text that is never parsed for special tokens: for what comes from users, files and tools."""
    if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise RequestError(f"making a literal: got {text!r}, expected a str")
    return SglConstantText(text, literal=True)


def system(expr: SglExpr | str | None = None) -> SglExprList:
    """A whole system turn around `expr`."""
    return SglExprList(role_block("system", expr))


def user(expr: SglExpr | str | None = None) -> SglExprList:
    """A whole user turn around `expr`."""
    return SglExprList(role_block("user", expr))


def assistant(expr: SglExpr | str | None = None) -> SglExprList:
    """A whole assistant turn around `expr`."""
    return SglExprList(role_block("assistant", expr))


def system_begin() -> SglRoleBegin:
    """A system turn begins."""
    return SglRoleBegin("system")


def system_end() -> SglRoleEnd:
    """The system turn ends."""
    return SglRoleEnd("system")


def user_begin() -> SglRoleBegin:
    """A user turn begins."""
    return SglRoleBegin("user")


def user_end() -> SglRoleEnd:
    """The user turn ends."""
    return SglRoleEnd("user")


def assistant_begin() -> SglRoleBegin:
    """An assistant turn begins."""
    return SglRoleBegin("assistant")


def assistant_end() -> SglRoleEnd:
    """The assistant turn ends."""
    return SglRoleEnd("assistant")


def separate_reasoning(expr: SglExpr | str | None = None, model_type: str | None = None) -> SglSeparateReasoning:
    """Append `expr` without what its gens think: `s[name]` is the answer, `s[name + "_reasoning_content"]` the thinking.

    Later text, the prompt of later gens included, goes on from the answer alone. `model_type` says how thinking is
    marked (`"deepseek-r1"`, `"qwen3"`, ...).

    Raises:
        RequestError: no expression, or one in another.
        UnsupportedError: an unknown model type.
    """
    node = need_expr("separating the reasoning", expr)
    if any(isinstance(inner, SglSeparateReasoning) for inner in flatten(node)):
        raise RequestError("separating the reasoning: got separate_reasoning inside separate_reasoning, expected one")
    thinking_format(str(model_type))
    return SglSeparateReasoning(node, str(model_type))


def image(expr: object) -> SglExpr:
    """Images cannot be shown to a model here.

    Raises:
        UnsupportedError: always.
    """
    raise UnsupportedError(f"making an image of {type(expr).__name__}: images are not supported; use a text")


def video(path: str, num_frames: int) -> SglExpr:
    """Videos cannot be shown to a model here.

    Raises:
        UnsupportedError: always.
    """
    raise UnsupportedError(f"making a video of {path!r}: videos are not supported; use a text")
