"""A running `gen`: its requests (one a sample) and what they become on the branch."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sglang_lite.errors import ContextLengthError, RequestError
from sglang_lite.request_tree import GenOp, OpDelta, OpDone, OpHeld, RetryOp, SamplingParams, TextOp
from sglang_lite.runtime.executor.branch import Branch
from sglang_lite.runtime.executor.generation import Generation
from sglang_lite.runtime.executor.ports import Submit, TextParts
from sglang_lite.runtime.executor.seeds import derive_seed
from sglang_lite.runtime.scheduler.messages import ReqOutput


class GenRun:
    """The requests of one `GenOp`; the first sample continues the branch and is the one that streams.

    With `hold` nothing is on the branch, and nothing streams, before the program has accepted an attempt.
    """

    def __init__(self, op: GenOp, branch: Branch, program_seed: int, text: TextParts, submit: Submit) -> None:
        self.op = op
        self._text = text
        self._program_seed = program_seed
        self._place = (branch.place, branch.num_ops)
        self._attempt = 0
        self._added: list[str] = []
        """Texts that retries have left on the branch, before the one that is accepted."""
        self._generations: list[Generation] = []
        self._seeds: list[int] = []
        self._submit(branch, op.params, op.params.seed, submit)

    def _submit(self, branch: Branch, params: SamplingParams, seed: int | None, submit: Submit) -> None:
        ids = branch.flush(self._text.tokenizer)
        self._rewritten = branch.rewritten
        check_room(len(ids), params.max_new_tokens, self._text.context_len)
        self._generations, self._seeds = [], []
        for sample in range(params.n):
            derived = derive_seed(self._program_seed, *self._place, sample, self._attempt)
            self._seeds.append(derived if seed is None else seed + sample)
            self._generations.append(submit(ids, params.of_sample(self._seeds[-1]), logprob=self.op.logprob))

    @property
    def generations(self) -> list[Generation]:
        """All requests of the op."""
        return self._generations

    def take(self, generation: Generation, out: ReqOutput) -> OpDelta | None:
        """Add one output; returns the piece to stream, if one is wanted."""
        delta = generation.take(out)
        return OpDelta(self.op.id, delta) if delta and self.streams(generation) else None

    def streams(self, generation: Generation) -> bool:
        """The text of this request is wanted as it comes."""
        return self.op.stream and not self.op.hold and generation is self._generations[0]

    @property
    def is_complete(self) -> bool:
        """Every sample has ended."""
        return all(generation.finished is not None for generation in self._generations)

    def held(self) -> OpHeld:
        """The result of this attempt, which waits for the program's answer."""
        done = self._done()
        return OpHeld(self.op.id, done.text, done.ids, done.kinds, done.meta)

    def reject(self, branch: Branch, answer: RetryOp) -> None:
        """Put on the branch what comes before the next attempt: this one if it is kept, and the answer's text."""
        if answer.keep:
            self._put(branch)
            self._added.append(self._generations[0].text)
        branch.add_text(answer.text, literal=True)
        self._added.append(answer.text)

    def again(self, branch: Branch, params: SamplingParams | None, submit: Submit) -> GenRun:
        """Begin the next attempt, by default with a seed of its own; returns this object."""
        self._attempt += 1
        if params is not None:
            self._submit(branch, params, params.seed, submit)
        elif (given := self.op.params.seed) is None:
            self._submit(branch, self.op.params, None, submit)
        else:
            self._submit(branch, self.op.params, derive_seed(given, *self._place, 0, self._attempt), submit)
        return self

    def finish(self, branch: Branch) -> OpDone:
        """Put the first sample on the branch; the op's value is its text, or all texts."""
        self._put(branch)
        done = self._done()
        if not self.op.hold:
            return done
        text = "".join((*self._added, done.text))
        return replace(done, text=text, meta=done.meta | {"attempts": self._attempt + 1})

    def _put(self, branch: Branch) -> None:
        first = self._generations[0]
        branch.add_generated(
            first.output_ids,
            first.text,
            first.tail.decode("utf-8", "replace"),
            self._text.tokenizer.decode(first.output_ids, skip_special=False),
        )

    def _done(self) -> OpDone:
        first = self._generations[0]
        metas: list[dict[str, Any]] = [
            g.meta(self.op.logprob, self._text.token_text) | {"seed": seed}
            for g, seed in zip(self._generations, self._seeds, strict=True)
        ]
        if self._rewritten is not None:
            metas[0]["rewritten"] = self._rewritten
        texts = [g.text for g in self._generations]
        return OpDone(
            self.op.id,
            text=first.text,
            value=texts if len(texts) > 1 else texts[0],
            ids=tuple(first.output_ids),
            kinds=first.kinds,
            meta=metas[0] if len(metas) == 1 else metas[0] | {"samples": metas},
        )


def put_again(op: TextOp, branch: Branch, text: TextParts) -> None:
    """Put on the branch what a gen or select gave on another server: its ids where they are this model's, else its text.

    Raises:
        RequestError: a token id is outside the vocabulary.
    """
    if max(op.ids) >= len(text.visible_bytes):
        raise RequestError(f"appending text: token id {max(op.ids)}, expected below {len(text.visible_bytes)}")
    visible = b"".join(text.visible_bytes[i] for i in op.ids).decode("utf-8", "replace")
    whole = text.tokenizer.decode(op.ids, skip_special=False)
    if not op.text.startswith((visible, whole)):
        branch.add_text(op.text, literal=True)
        return
    branch.flush(text.tokenizer)
    tail = op.text[len(visible) :] if op.text.startswith(visible) else ""
    branch.add_generated(list(op.ids), op.text, tail, whole if op.is_models else None)


def check_room(num_tokens: int, max_new_tokens: int | None, context_len: int | None) -> None:
    """Refuse a generation that may need more tokens than the context has left.

    Raises:
        ContextLengthError: names all numbers and the remedy.
    """
    if context_len is None or max_new_tokens is None or num_tokens + max_new_tokens <= context_len:
        return
    left = max(context_len - num_tokens, 0)
    raise ContextLengthError(
        f"generating: the branch has {num_tokens} tokens and max_tokens={max_new_tokens}, together more than the context "
        f"of {context_len}; shorten the text by {num_tokens + max_new_tokens - context_len} tokens, or give max_tokens={left} "
        "or less (s.tokens_left() tells)"
    )
