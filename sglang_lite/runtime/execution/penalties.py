"""Logits changed by what was said before and by the request's bias; one row at a time. Draws nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sglang_lite.errors import ExecutionError
from sglang_lite.request_tree import SamplingParams
from sglang_lite.runtime.scheduler.plan import SampleSpec


def adjust_logits(logits: NDArray[np.float32], spec: SampleSpec) -> NDArray[np.float32]:
    """Apply, in this order, repetition, frequency and presence penalty, then the logit bias.

    - repetition (CTRL, as in transformers): the logit of every token seen in prompt or output is divided by the penalty
      where positive and multiplied by it where not;
    - frequency and presence (OpenAI): from the logit of every *generated* token, `frequency_penalty` times the number
      of its occurrences and once `presence_penalty` are subtracted; prompt tokens do not count;
    - `logit_bias` is added.

    Args:
        logits: `[V]`; not changed.
        spec: whose `params`, `prompt_ids` and `output_ids` are read.

    Returns:
        `logits` itself where nothing applies, else a changed copy.

    Raises:
        ExecutionError: a token id outside the vocabulary.

    """
    params = spec.params
    if not changes_logits(params):
        return logits
    out = logits.copy()
    generated = _checked(spec.output_ids, len(out), "an output token")
    if params.repetition_penalty != 1:
        seen = np.unique(np.concatenate([_checked(spec.prompt_ids, len(out), "a prompt token"), generated]))
        values = out[seen]
        out[seen] = np.where(values > 0, values / params.repetition_penalty, values * params.repetition_penalty)
    if len(generated):
        tokens, counts = np.unique(generated, return_counts=True)
        out[tokens] -= counts.astype(np.float32) * params.frequency_penalty + params.presence_penalty
    if params.logit_bias:
        np.add.at(
            out,
            _checked([token for token, _ in params.logit_bias], len(out), "a token of logit_bias"),
            np.array([bias for _, bias in params.logit_bias], dtype=np.float32),
        )
    return out


@dataclass(frozen=True, slots=True)
class PenaltyLists:
    """What `adjust_logits` does to one row, as lists: `ids` ascending, how often each was generated (int32), and whether the
    repetition penalty counts it (all of them, or none where there is no such penalty); biases with each id once.
    """

    ids: NDArray[np.int64]
    counts: NDArray[np.int32]
    bias_ids: NDArray[np.int64]
    biases: NDArray[np.float32]


def list_penalties(spec: SampleSpec, vocab_size: int) -> PenaltyLists:
    """The tokens whose logits `adjust_logits` changes; raises ExecutionError as it does."""
    params = spec.params
    ids, counts = np.unique(_checked(spec.output_ids, vocab_size, "an output token"), return_counts=True)
    if params.repetition_penalty != 1:
        seen = np.union1d(ids, _checked(spec.prompt_ids, vocab_size, "a prompt token"))
        all_counts = np.zeros(len(seen), dtype=np.int64)
        all_counts[np.searchsorted(seen, ids)] = counts
        ids, counts = seen, all_counts
    given = _checked([token for token, _ in params.logit_bias], vocab_size, "a token of logit_bias")
    bias_ids, at = np.unique(given, return_inverse=True)
    biases = np.zeros(len(bias_ids), dtype=np.float32)
    np.add.at(biases, at, np.array([bias for _, bias in params.logit_bias], dtype=np.float32))
    return PenaltyLists(ids, counts.astype(np.int32), bias_ids, biases)


def changes_logits(params: SamplingParams) -> bool:
    """Penalties or a bias apply."""
    return bool(
        params.repetition_penalty != 1 or params.frequency_penalty or params.presence_penalty or params.logit_bias
    )


def _checked(ids: Sequence[int], vocab_size: int, what: str) -> NDArray[np.int64]:
    array = np.fromiter(ids, np.int64, len(ids))
    bad = array[(array < 0) | (array >= vocab_size)]
    if len(bad):
        raise ExecutionError(f"has {what} {int(bad[0])}, expected ids from 0 to {vocab_size - 1}; mend the request")
    return array
