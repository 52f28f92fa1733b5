"""The tries of one typed gen: judges each result, and says what comes next; it sends nothing and knows no session."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from sglang_lite.errors import RequestError, TruncatedError, ValidationError
from sglang_lite.lang.ir import SglGen
from sglang_lite.lang.typed.gens import Retries, as_typed, check_can_differ
from sglang_lite.lang.typed.parts import complete_parts
from sglang_lite.lang.typed.spec import Typed
from sglang_lite.request_tree import AcceptOp, GenOp, Op, RefuseOp, RetryOp, SamplingParams


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a gen is held to beyond its constraint.

    `typed` None: text, which must only not be cut: JSON, or, with `is_call`, what calls tools.
    """

    typed: Typed | None
    retries: Retries = field(default_factory=Retries)
    is_call: bool = False


def wanted_of(gen: SglGen, params: SamplingParams, *, is_call: bool = False) -> tuple[Wanted | None, bool]:
    """What is judged of a gen's result (None: nothing), and whether its branch waits for that.

    It waits where a further try may follow, or code of the type's own may refuse what the constraint allows. Of several
    samples none is tried again, so nothing waits.

    Args:
        is_call: the gen may call tools.

    Raises:
        RequestError: tries that would all be the same; several samples with retries.
    """
    own = as_typed(gen)
    if own is None:
        ends_itself = gen.max_tokens is None and (is_call or gen.json_schema is not None)
        return (Wanted(None, is_call=is_call), False) if ends_itself else (None, False)
    check_can_differ(own.retries, is_greedy=params.is_greedy)
    if params.n > 1 and own.retries.count:
        raise RequestError(f"making gen {gen.name!r}: got n={params.n} and retries, expected one of them")
    may_refuse = own.typed is not None and own.typed.may_refuse
    return Wanted(own.typed, own.retries), params.n == 1 and (own.retries.count > 0 or may_refuse)


class Attempts:
    """Owns the count of tries and what became of each. One thread at a time calls it.

    `value`: of the accepted try (a list where the gen has `n > 1`). `error`: why the last try was not good. `tries`: what
    `meta_info` says of each; `metas`: what the backend reported about each.
    """

    def __init__(self, wanted: Wanted, name: str | None) -> None:
        self._wanted = wanted
        self._what = repr(name) if name is not None else "a value without a name"
        self._limit: int | None = None
        self.value: Any = None
        self.error: Exception | None = None
        self.is_refused = False
        self.tries: list[dict[str, Any]] = []
        self.metas: list[Mapping[str, Any]] = []

    @property
    def typed(self) -> Typed | None:
        """The type of the value."""
        return self._wanted.typed

    def judge(self, op: GenOp, text: str | list[str], meta: Mapping[str, Any]) -> bool:
        """Take the result of a try; True: it is good, and `value` has what it means.

        An error that code of the type raises and that is no `ValueError` ends the tries.
        """
        self.metas.append(meta)
        texts = [text] if isinstance(text, str) else text
        samples = cast("list[Mapping[str, Any]]", meta.get("samples", [meta]))
        try:
            values = [self._read(op, one, samples[min(i, len(samples) - 1)]) for i, one in enumerate(texts)]
        except Exception as error:  # noqa: BLE001 - validators are the program's own code: their error is the gen's
            self.error = error
        else:
            self.error = None
            self.value = values[0] if isinstance(text, str) else values
        self.tries.append(
            {
                "text": text,
                "error": None if self.error is None else str(self.error),
                "finish_reason": meta.get("finish_reason"),
                "completion_tokens": meta.get("completion_tokens"),
            }
        )
        return self.error is None

    def _read(self, op: GenOp, text: str, meta: Mapping[str, Any]) -> Any:
        answer = answer_of(text, op.params)
        reason: Any = meta.get("finish_reason")
        kind: Any = cast("Mapping[str, Any]", reason).get("type") if isinstance(reason, Mapping) else reason
        typed = self._wanted.typed
        if kind == "length" and not self._may_end(answer):
            parts = complete_parts(typed.form, answer) if typed is not None and typed.json_schema is not None else []
            raise TruncatedError(self._cut_message(op, answer), text=answer, parts=parts)
        return answer if typed is None else typed.parse(answer)

    def _may_end(self, answer: str) -> bool:
        """True where a text that ended at a limit is no less for it."""
        typed = self._wanted.typed
        if typed is not None and typed.is_free:
            return True
        return not self._wanted.is_call and _is_complete(typed, answer)

    def _cut_message(self, op: GenOp, answer: str) -> str:
        limit = self._limit or op.params.max_new_tokens
        where = "the context ended" if limit is None else f"max_tokens={limit} ended it"
        return f"generating {self._what}: {where} before it was complete: {answer[-60:]!r}; allow more tokens"

    def next_op(self, op: GenOp, number: int) -> Op:
        """The answer to the result of a held try that was judged: accept it, try again, or refuse.

        Args:
            number: the id of the answer.
        """
        if self.error is None:
            return AcceptOp(number, op.branch, op.id)
        retries, error = self._wanted.retries, self.error
        is_cut = isinstance(error, TruncatedError)
        is_same_again = is_cut and op.params.max_new_tokens is None and op.params.is_greedy
        if len(self.tries) > retries.count or is_same_again or not isinstance(error, TruncatedError | ValidationError):
            self.is_refused = True
            return RefuseOp(number, op.branch, op.id, f"{type(error).__name__}: {error}")
        params = self._next_params(op, is_cut)
        if is_cut or retries.text is None:
            return RetryOp(number, op.branch, op.id, params=params)
        text = retries.text_after(error.text, _told(error))
        return RetryOp(number, op.branch, op.id, text, params, keep=retries.keeps_rejected)

    def _next_params(self, op: GenOp, is_cut: bool) -> SamplingParams | None:
        """Parameters of the next try; None: as before, with a seed of its own."""
        changes: dict[str, Any] = {}
        if op.params.max_new_tokens is not None:
            self._limit = (self._limit or op.params.max_new_tokens) * (2 if is_cut else 1)
            if self._limit != op.params.max_new_tokens:
                changes["max_new_tokens"] = self._limit
        if op.params.seed is not None:
            changes["seed"] = op.params.seed + len(self.tries)
        return op.params.with_(**changes) if changes else None


def answer_of(text: str, params: SamplingParams) -> str:
    """The text without the model's thinking, where it was asked to think."""
    if params.thinking is None:
        return text
    _, mark, answer = text.partition(params.thinking[1])
    return answer.lstrip() if mark else text


def _is_complete(typed: Typed | None, answer: str) -> bool:
    """True where a text that ended at a limit can have been meant to end there: no number, which more digits may follow."""
    if typed is not None and typed.choices is not None:
        return answer in typed.choices
    if typed is not None and typed.json_schema is None:
        return re.fullmatch("[A-Za-z]+", answer) is not None
    try:
        return not isinstance(json.loads(answer), int | float) or not answer.strip()[-1:].isdigit()
    except ValueError:
        return False


def _told(error: TruncatedError | ValidationError) -> str:
    """What is wrong, as the model is told."""
    if isinstance(error, ValidationError) and error.failures:
        return "; ".join(message if path == "$" else f"{path}: {message}" for path, message in error.failures)
    return str(error)
