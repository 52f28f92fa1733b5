"""Which tokens may come, as bits in plain numpy, and how the errors of drawing one read; draws nothing, knows no logits."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from sglang_lite.errors import DeadEndError, ExecutionError
from sglang_lite.request_tree import SamplingParams
from sglang_lite.runtime.scheduler.plan import SampleSpec


class TokenMasks:
    """Masks over a vocabulary of `vocab_size`; `eos_ids` end a text unless `min_new_tokens` are still missing.

    Attributes:
        num_words: int32 words of one mask; bit `i % 32` of word `i // 32` is 1 where token i may come.

    """

    def __init__(self, vocab_size: int, eos_ids: Iterable[int] = ()) -> None:
        self.num_words = -(-vocab_size // 32)
        self._vocab_size = vocab_size
        self._eos_ids = tuple(eos_ids)

    def fill(self, spec: SampleSpec, bitmask: NDArray[np.int32], index: int, where: str) -> bool:
        """Write into row `index` of `bitmask` which tokens may come; False, and nothing is written, where all may.

        `where`: what is being done, for messages.

        Raises:
            ExecutionError: the tables of the constraint passed their limit.

        """
        banned = self._banned_ids(spec)
        if spec.grammar is None and not len(banned):
            return False
        words = bitmask[index]
        if spec.grammar is None:
            words[:] = -1
        else:
            try:
                spec.grammar.fill_bitmask(bitmask, index)
            except ValueError as error:  # tables that fill as they are needed may pass their limit
                raise ExecutionError(f"{where} under {_constraint(spec.params)}: {error}") from error
        if len(banned):
            before = words.copy()
            np.bitwise_and.at(words.view(np.uint32), banned // 32, ~(np.uint32(1) << (banned % 32).astype(np.uint32)))
            if spec.grammar is not None and not words.any():
                words[:] = before  # where nothing but the end can follow, the grammar's word counts
        return True

    def has_any(self, words: NDArray[np.int32]) -> bool:
        """A token of the vocabulary may come."""
        if words[:-1].any():
            return True
        rest = self._vocab_size - 32 * (self.num_words - 1)
        return bool(int(words.view(np.uint32)[-1]) & ((1 << rest) - 1))

    def _banned_ids(self, spec: SampleSpec) -> NDArray[np.int64]:
        """End and stop tokens while `min_new_tokens` are missing."""
        params = spec.params
        if len(spec.output_ids) >= params.min_new_tokens:
            return np.zeros(0, dtype=np.int64)
        ids = {*self._eos_ids, *params.stop_token_ids}
        return np.array(sorted(token for token in ids if token < self._vocab_size), dtype=np.int64)


def where_drawn(spec: SampleSpec, rid: str) -> str:
    """What is being done, for messages."""
    return f"sampling token {spec.position} of request {rid}"


def dead_end(params: SamplingParams, where: str) -> DeadEndError:
    """No token may come."""
    return DeadEndError(
        f"{where}: no token of the vocabulary continues {_constraint(params)}; "
        "loosen it, or check that the vocabulary can spell it"
    )


def bad_logits(where: str) -> ExecutionError:
    """The model's logits are not numbers."""
    return ExecutionError(f"{where}: the model gave NaN or infinite logits; the weights or the KV are damaged")


def bad_penalties(where: str) -> ExecutionError:
    """The logits were numbers, before the penalties."""
    return ExecutionError(f"{where}: penalties made the logits infinite; use values nearer to neutral")


def _constraint(params: SamplingParams) -> str:
    if params.constraint is not None:
        return f"the {params.constraint} {getattr(params, params.constraint)!r}"
    return "the text (min_new_tokens and the stop tokens take out all of it)"
