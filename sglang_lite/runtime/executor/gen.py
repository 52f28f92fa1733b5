"""A running `gen`: its requests (one a sample) and what they become on the branch."""

from __future__ import annotations

from typing import Any

from sglang_lite.request_tree import GenOp, OpDelta, OpDone
from sglang_lite.runtime.executor.branch import Branch
from sglang_lite.runtime.executor.generation import Generation
from sglang_lite.runtime.executor.ports import Submit, TextParts
from sglang_lite.runtime.executor.seeds import derive_seed
from sglang_lite.runtime.scheduler.messages import ReqOutput


class GenRun:
    """The requests of one `GenOp`; the first sample continues the branch and is the one that streams."""

    def __init__(self, op: GenOp, branch: Branch, program_seed: int, text: TextParts, submit: Submit) -> None:
        self.op = op
        self._text = text
        ids = branch.flush(text.tokenizer)
        self._generations: list[Generation] = []
        for sample in range(op.params.n):
            given = op.params.seed
            seed = derive_seed(program_seed, branch.path, branch.num_ops, sample) if given is None else given + sample
            self._generations.append(submit(ids, op.params.with_(seed=seed, n=1), logprob=op.logprob))

    @property
    def generations(self) -> list[Generation]:
        """All requests of the op."""
        return self._generations

    def take(self, generation: Generation, out: ReqOutput) -> OpDelta | None:
        """Add one output; returns the piece to stream, if one is wanted."""
        delta = generation.take(out)
        if self.op.stream and delta and generation is self._generations[0]:
            return OpDelta(self.op.id, delta)
        return None

    @property
    def is_complete(self) -> bool:
        """Every sample has ended."""
        return all(generation.finished is not None for generation in self._generations)

    def finish(self, branch: Branch) -> OpDone:
        """Put the first sample on the branch; the op's value is its text, or all texts."""
        first = self._generations[0]
        branch.add_generated(first.output_ids, first.text, first.tail.decode("utf-8", "replace"))
        metas: list[dict[str, Any]] = [g.meta(self.op.logprob, self._text.token_text) for g in self._generations]
        texts = [g.text for g in self._generations]
        return OpDone(
            self.op.id,
            text=first.text,
            value=texts if len(texts) > 1 else texts[0],
            ids=tuple(first.output_ids),
            kinds=("sampled",) * len(first.output_ids),
            meta=metas[0] if len(metas) == 1 else metas[0] | {"samples": metas},
        )
