"""From a gen or select on a branch's contents to calls of a model, and from their answers to values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sglang_lite import choice_scoring
from sglang_lite.errors import ExecutionError
from sglang_lite.lang.backends.hosted.contents import Contents
from sglang_lite.lang.backends.hosted.forms import WRAPPER_TOKENS, Form, InvalidReplyError, choice_form, form_of
from sglang_lite.lang.backends.hosted.messages import Adapter, Calls, ModelReply, ModelRequest, TextScorer, TokenRow
from sglang_lite.lang.backends.hosted.retry import RetryPolicy
from sglang_lite.lang.backends.hosted.speculation import ATTEMPTS, Ahead, find_mismatch, turn_ahead, without_lead
from sglang_lite.lang.backends.hosted.stops import StopCut, first_stop, split_stops
from sglang_lite.lang.backends.hosted.tool_turns import choice_of, paired
from sglang_lite.request_tree import GenOp, Op, RoleEndOp, SamplingParams, SelectOp

_FORM_ATTEMPTS = 3
"""Calls for one answer that has to be of a form."""


@dataclass(frozen=True, slots=True)
class Answered:
    """What a gen or select came to: its text, its value, its `meta_info`, and what was written beyond it."""

    text: str
    value: str | list[str]
    meta: dict[str, Any]
    ahead: Ahead | None = None
    calls: Calls | None = None


class Asker:
    """Asks one API for one backend. Holds no state of programs.

    Args:
        role_stops: texts that end a turn where turns are written out as text.
        spent: is told of every call's `meta_info`.
    """

    def __init__(
        self,
        adapter: Adapter,
        policy: RetryPolicy,
        role_stops: tuple[str, ...],
        spent: Callable[[dict[str, Any]], None],
    ) -> None:
        self._adapter = adapter
        self._policy = policy
        self._role_stops = role_stops
        self._spent = spent

    # --- gens ---

    async def generate(
        self,
        op: GenOp,
        params: SamplingParams,
        contents: Contents,
        queue: Sequence[Op],
        num_speculated: int | None,
        seed: int | None,
        on_text: Callable[[str], None] | None,
    ) -> Answered:
        """The value of a gen.

        Args:
            queue: the ops of its branch that follow, as far as they are known.
            on_text: takes its pieces as they come.

        Raises:
            Exception: the client's error, or an `ExecutionError`: no answer was of the form.
        """
        if params.max_new_tokens == 0 and not self._adapter.abilities.prefills:
            return Answered("", [""] * params.n if params.n > 1 else "", {"completion_tokens": 0, "requests": 0})
        is_free = params.constraint is None
        if num_speculated is not None and is_free:
            found = await self._ahead(op, params, contents, queue, num_speculated, seed)
            if found is not None:
                return found
        form = None if params.constraint in self._adapter.abilities.constraints else form_of(params)
        if form is not None:
            return await self._held(self._request(op, params, contents, seed, form), form, params, on_text)
        request = self._request(op, params, contents, seed)
        cut = StopCut(self._cut_here(params, contents), on_text) if on_text is not None else None
        reply = await self._call(request if cut is None else replace(request, on_text=cut.feed))
        if cut is not None:
            cut.end()
        return self._answered(reply, self._cut_here(params, contents), params.n)

    def _stops(self, params: SamplingParams, contents: Contents) -> tuple[str, ...]:
        is_text = self._is_text(contents)
        return (*params.stop, *(stop for stop in self._role_stops if is_text and stop not in params.stop))

    def _is_text(self, contents: Contents) -> bool:
        abilities = self._adapter.abilities
        return abilities.completion and not (abilities.chat and (contents.messages or contents.role))

    def _cut_here(self, params: SamplingParams, contents: Contents) -> tuple[str, ...]:
        abilities = self._adapter.abilities
        stops = self._stops(params, contents)
        return split_stops(stops, abilities.num_stops, takes_blank=abilities.blank_stops)[1]

    def _request(
        self,
        op: GenOp | SelectOp,
        params: SamplingParams,
        contents: Contents,
        seed: int | None,
        form: Form | None = None,
    ) -> ModelRequest:
        abilities = self._adapter.abilities
        stops = self._stops(params, contents)
        sent, _ = split_stops(stops, abilities.num_stops, takes_blank=abilities.blank_stops)
        limit = params.max_new_tokens
        if form is not None:
            sent, limit = (), limit + WRAPPER_TOKENS if limit is not None and form.is_wrapped else limit
        request = ModelRequest(
            params,
            stop=sent,
            max_tokens=limit,
            n=params.n,
            seed=params.seed if params.seed is not None else seed,
            form=form,
            tools=contents.tools if isinstance(op, GenOp) and form is None else (),
            tool_choice=choice_of(params) if contents.tools else "none",
            logprob=op.logprob if isinstance(op, GenOp) else None,
        )
        if self._is_text(contents):
            return replace(request, prompt=contents.text)
        messages, continues = contents.messages, bool(contents.turn.strip())
        if continues:
            messages = (*messages, {"role": "assistant", "content": contents.turn})
        return replace(request, messages=paired(messages), continues=continues)

    async def _call(self, request: ModelRequest) -> ModelReply:
        has_begun = False

        def hand_on(text: str) -> None:
            nonlocal has_begun
            has_begun = True
            if request.on_text is not None:
                request.on_text(text)

        watched = request if request.on_text is None else replace(request, on_text=hand_on)
        reply = await self._policy.call(lambda: self._adapter.generate(watched), lambda: not has_begun)
        reply.meta.setdefault("requests", 1)
        self._spent(reply.meta)
        return reply

    def _answered(self, reply: ModelReply, stops: tuple[str, ...], n: int) -> Answered:
        texts = list(reply.texts)
        if len(texts) != n:
            raise ExecutionError(f"reading an answer: got {len(texts)} texts, expected n={n}")
        reason: dict[str, Any] = reply.meta.get("finish_reason") or {"type": reply.finish_reason}
        for index, text in enumerate(texts):
            place = first_stop(text, stops)
            if place is not None:
                texts[index] = text[:place]
                reason = {"type": "stop", "matched": None} if index == 0 else reason
        meta = {**reply.meta, "finish_reason": reason}
        return Answered(texts[0], texts if n > 1 else texts[0], meta, calls=reply.calls)

    # --- answers of a form ---

    async def _held(
        self, request: ModelRequest, form: Form, params: SamplingParams, on_text: Callable[[str], None] | None
    ) -> Answered:
        """Texts of a form, from as many calls as it takes; nothing is shown before all are good."""
        metas: list[dict[str, Any]] = []
        fault: InvalidReplyError | None = None
        for attempt in range(_FORM_ATTEMPTS):
            seed = None if request.seed is None else request.seed + attempt
            reply = await self._call(replace(request, seed=seed))
            metas.append(reply.meta)
            if reply.finish_reason == "length":
                return self._cut_short(reply, form, params, _sum(metas))
            try:
                texts = [form.text_of(text) for text in reply.texts]
            except InvalidReplyError as error:
                fault = error
                continue
            if on_text is not None:
                on_text(texts[0])
            return self._answered(ModelReply(tuple(texts), reply.finish_reason, _sum(metas)), (), params.n)
        assert fault is not None, "no attempt was made"
        raise InvalidReplyError(f"{fault}; so were {_FORM_ATTEMPTS} answers of {self._adapter.abilities.name}")

    def _cut_short(self, reply: ModelReply, form: Form, params: SamplingParams, meta: dict[str, Any]) -> Answered:
        if form.is_wrapped:
            raise ExecutionError(
                f"reading an answer: {params.max_new_tokens} tokens cut it in the middle; give a higher max_tokens"
            )
        return self._answered(replace(reply, meta=meta), (), params.n)

    # --- selects ---

    async def select(self, op: SelectOp, contents: Contents, seed: int | None) -> Answered:
        """The choice that the model takes, by its answer (in turns) or by its scores (on text)."""
        if self._is_text(contents):
            rows, meta = await self.scores(op, contents)
            means = [choice_scoring.mean(row) for row in rows_of(rows)]
            if op.method == "greedy_token_selection":
                decision = choice_scoring.greedy_token_selection(rows_of(rows))
            elif op.method == "unconditional_likelihood_normalized":
                alone = [[token[0] for token in row] for row in meta["unconditional_token_logprobs"]]
                decision = choice_scoring.unconditional_likelihood_normalized(rows_of(rows), alone)
            else:
                decision = choice_scoring.token_length_normalized(rows_of(rows))
            chosen = op.choices[decision.index]
            return Answered(chosen, chosen, {**decision.meta, **meta, **score_meta(means, rows)})
        form = choice_form(op.choices)
        params = SamplingParams(temperature=0.0, max_new_tokens=max(len(c.encode()) for c in op.choices) + 16)
        return await self._held(self._request(op, params, contents, seed, form), form, params, None)

    async def scores(self, op: SelectOp, contents: Contents) -> tuple[list[TokenRow], dict[str, Any]]:
        """The tokens of each choice with their log-probabilities, and what was spent."""
        rows, meta = await self._policy.call(lambda: self._adapter.score(contents.text, op.choices))
        meta.setdefault("requests", 1)
        if op.method == "unconditional_likelihood_normalized" or op.needs_unconditional:
            scorer = self._adapter
            assert isinstance(scorer, TextScorer), f"{scorer.abilities.name} was checked for scores without a text"
            alone = await self._policy.call(lambda: scorer.score_alone(rows))
            meta["unconditional_token_logprobs"] = [list(row) for row in alone]
            meta["requests"] += 1
        self._spent(meta)
        return rows, meta

    async def count(self, contents: Contents) -> int:
        """Tokens of what a branch holds."""
        scorer = self._adapter
        if isinstance(scorer, TextScorer):
            return await self._policy.call(lambda: scorer.count_text(contents.text))
        messages = contents.messages
        if contents.role is not None:
            messages = (*messages, {"role": contents.role, "content": contents.turn})
        return await self._policy.call(lambda: self._adapter.count(messages))

    # --- speculation ---

    async def _ahead(
        self,
        op: GenOp,
        params: SamplingParams,
        contents: Contents,
        queue: Sequence[Op],
        num_tokens: int,
        seed: int | None,
    ) -> Answered | None:
        """A gen from what was written ahead, or from a call that writes ahead; None: ask for it alone."""
        is_text = self._is_text(contents)
        is_last = is_text or (bool(queue) and isinstance(queue[0], RoleEndOp))
        if contents.ahead is not None:
            taken = contents.ahead.take(params.stop, is_last)
            if taken is not None:
                return _from_ahead(*taken, {"prompt_tokens": 0, "completion_tokens": 0, "requests": 0})
            if not is_text:
                raise ExecutionError(
                    f"generating {op.name!r} from what {self._adapter.abilities.name} wrote ahead: none of the stops "
                    f"{list(params.stop)} is in {contents.ahead.text[:80]!r}; give a higher num_api_spec_tokens"
                )
        ops = turn_ahead(op, queue)
        is_complete = len(queue) >= len(ops) and isinstance(queue[len(ops) - 1], RoleEndOp)
        limit = None if params.max_new_tokens is None else max(params.max_new_tokens, num_tokens)
        metas: list[dict[str, Any]] = []
        why = ""
        for attempt in range(1 if is_text else ATTEMPTS):
            request = self._request(op, params, contents if is_text else replace(contents, turn=""), seed)
            sent = replace(
                request, stop=(), max_tokens=limit, seed=None if request.seed is None else request.seed + attempt
            )
            reply = await self._call(sent)
            metas.append(reply.meta)
            text = reply.texts[0] if is_text else without_lead(reply.texts[0], contents.turn)
            if text is None:
                why = f"it began with {reply.texts[0][:40]!r}, expected {contents.turn.lstrip()[:40]!r}"
                continue
            ahead = Ahead(text, reply.finish_reason == "stop")
            if is_text:
                taken = ahead.take(params.stop, is_last=True)
                return (
                    _from_ahead(*taken, _sum(metas)) if taken else self._answered(replace(reply, texts=(text,)), (), 1)
                )
            mismatch = find_mismatch(ahead, ops, is_complete)
            if mismatch is None:
                taken = ahead.take(params.stop, is_last)
                assert taken is not None, "a turn that matches has a value for its first gen"
                return _from_ahead(*taken, _sum(metas))
            why = mismatch
        raise ExecutionError(
            f"generating {op.name!r} ahead with num_api_spec_tokens={num_tokens}: {ATTEMPTS} answers did not have the texts "
            f"of the turn ({why}); show the form in an example, or give each gen a turn of its own"
        )


def _from_ahead(value: str, left: Ahead, meta: dict[str, Any]) -> Answered:
    return Answered(value, value, {**meta, "finish_reason": {"type": "stop", "matched": None}}, left)


def _sum(metas: list[dict[str, Any]]) -> dict[str, Any]:
    """The last call's report, with the counts of all."""
    total = dict(metas[-1])
    for name in ("prompt_tokens", "completion_tokens", "cached_tokens", "requests"):
        total[name] = sum(meta.get(name) or 0 for meta in metas)
    return total


def rows_of(rows: list[TokenRow]) -> list[list[float]]:
    """Log-probabilities alone; an absent one is certain."""
    return [[0.0 if token[0] is None else token[0] for token in row] for row in rows]


def score_meta(means: list[float], rows: list[TokenRow]) -> dict[str, Any]:
    """`meta_info` of a scored select."""
    return {
        "normalized_prompt_logprobs": means,
        "input_token_logprobs": [[list(token) for token in row] for row in rows],
        "output_token_logprobs": [[] for _ in rows],
    }
