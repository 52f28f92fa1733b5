"""A running `select`: the requests that score its choices, the decision, and what it becomes on the branch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sglang_lite.choice_scoring import (
    Decision,
    greedy_token_selection,
    mean,
    token_length_normalized,
    unconditional_likelihood_normalized,
)
from sglang_lite.request_tree import LogprobParams, OpDelta, OpDone, OpScored, SamplingParams, SelectOp
from sglang_lite.runtime.executor.branch import Branch
from sglang_lite.runtime.executor.generation import Generation
from sglang_lite.runtime.executor.ports import Submit, TextParts
from sglang_lite.runtime.scheduler.messages import ReqOutput

_SCORE_ONLY = SamplingParams(max_new_tokens=0, temperature=0.0, seed=0)


class SelectRun:
    """The requests of one `SelectOp`.

    All choices are scored by one request after the branch's tokens, as a prefix tree, over exactly the ids that would
    be appended. An empty choice appends nothing and is scored by the end token: that nothing follows.
    """

    def __init__(self, op: SelectOp, branch: Branch, text: TextParts, submit: Submit) -> None:
        self.op = op
        self._text = text
        end = (min(text.tokenizer.eos_ids, default=0),)
        self._choice_ids = [tuple(text.tokenizer.encode_pieces([(choice, False)])) or end for choice in op.choices]
        self._conditional = submit(branch.flush(text.tokenizer), _SCORE_ONLY, choices=tuple(self._choice_ids))
        self._rewritten = branch.rewritten
        self._unconditional: list[Generation] = []
        if op.method == "unconditional_likelihood_normalized" or op.needs_unconditional:
            wanted = LogprobParams(start_len=0)
            self._unconditional = [submit(ids, _SCORE_ONLY, logprob=wanted) for ids in self._choice_ids]

    @property
    def generations(self) -> list[Generation]:
        """All requests of the op."""
        return [self._conditional, *self._unconditional]

    def take(self, generation: Generation, out: ReqOutput) -> OpDelta | None:
        """Add one output; a select streams nothing."""
        generation.take(out)

    def streams(self, generation: Generation) -> bool:
        """No text of a scoring request is wanted."""
        return False

    @property
    def is_complete(self) -> bool:
        """Every scoring request has ended."""
        return all(generation.finished is not None for generation in self.generations)

    def scored(self) -> OpScored:
        """What a client needs to decide by itself."""
        return OpScored(self.op.id, self._meta())

    def finish(self, branch: Branch, index: int | None = None) -> OpDone:
        """Append the choice: number `index`, or the one that the op's own method picks."""
        decision = self._decide() if index is None else Decision(index)
        chosen = self.op.choices[decision.index]
        ids = self._choice_ids[decision.index] if chosen else ()
        branch.add_generated(list(ids), chosen, "")
        meta = decision.meta | self._meta()  # rows with ids and texts go before the decision's plain numbers
        return OpDone(self.op.id, text=chosen, value=chosen, ids=ids, kinds=("computed",) * len(ids), meta=meta)

    def _decide(self) -> Decision:
        rows = self._conditional.scores
        match self.op.method:
            case "greedy_token_selection":
                return greedy_token_selection(rows)
            case "unconditional_likelihood_normalized":
                return unconditional_likelihood_normalized(rows, self._unconditional_rows())
            case _:
                return token_length_normalized(rows)

    def _meta(self) -> dict[str, Any]:
        rows = self._conditional.scores
        meta = self._conditional.meta(None, self._text.token_text)
        meta["normalized_prompt_logprobs"] = [mean(row) for row in rows]
        meta["input_token_logprobs"] = self._with_tokens(rows)
        meta["output_token_logprobs"] = [[] for _ in rows]
        if self._rewritten is not None:
            meta["rewritten"] = self._rewritten
        if self._unconditional:
            meta["unconditional_token_logprobs"] = self._with_tokens(self._unconditional_rows())
        return meta

    def _with_tokens(self, rows: Sequence[Sequence[float | None]]) -> list[list[tuple[float | None, int, str]]]:
        """Rows of (log-probability, token id, text), one row a choice."""
        return [
            [(value, token_id, self._text.token_text(token_id)) for value, token_id in zip(row, ids, strict=True)]
            for row, ids in zip(rows, self._choice_ids, strict=True)
        ]

    def _unconditional_rows(self) -> list[list[float | None]]:
        return [[entry.logprob for entry in part.input_logprobs] for part in self._unconditional]
