"""What a program asks about its own state beside values: token counts, and how sure a select was."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sglang_lite.choice_scoring import confidence
from sglang_lite.errors import RequestError
from sglang_lite.lang.futures import OpFuture
from sglang_lite.lang.races import ListsValue, RaceValue, VoteValue
from sglang_lite.lang.values import GatherValue, OpValue, Value
from sglang_lite.request_tree import SelectOp


@dataclass(frozen=True, slots=True)
class TokenCount:
    """Tokens of a state. `context_len`: the most that it may have; None: the backend does not know."""

    num_tokens: int
    context_len: int | None

    @property
    def tokens_left(self) -> int | None:
        """How many more it may have; None: not known."""
        return None if self.context_len is None else max(self.context_len - self.num_tokens, 0)


def token_count(future: OpFuture) -> TokenCount:
    """Wait for the answer to a `CountOp`; raises its error."""
    meta = future.result().meta
    return TokenCount(meta["num_tokens"], meta["context_len"])


def confidence_in(name: str, value: Value) -> Any:
    """Wait for a select; the probability of its choice (see `choice_scoring.confidence`), a list of it after a join.

    Raises:
        RequestError: the value is not of a select, or its backend reports no scores.
        Exception: the select failed.
    """
    if isinstance(value, GatherValue):
        return [confidence_in(name, part) for part in value.parts]
    if isinstance(value, VoteValue):
        return confidence_in(name, value.won()[0])
    if isinstance(value, RaceValue):
        return [confidence_in(name, part) for part in value.won()]
    if isinstance(value, ListsValue):
        return [number for part in value.lists for number in confidence_in(name, part)]
    op = value.future.op if isinstance(value, OpValue) else None
    if not isinstance(value, OpValue) or not isinstance(op, SelectOp):
        raise RequestError(
            f"asking for the confidence in {name!r}: it is not the value of a select; only selects have scores"
        )
    done = value.future.result()
    scores: list[float] | None = done.meta.get("normalized_prompt_logprobs")
    if not scores:
        raise RequestError(f"asking for the confidence in {name!r}: the backend reported no scores of the choices")
    return confidence(scores, op.choices.index(done.text))
