"""An engine that notes on the request's log line how its generation went; it changes nothing and knows no route."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Mapping, Sequence
from dataclasses import fields
from typing import Any

from sglang_lite.op_json import finite
from sglang_lite.request_tree import EventSink, Finding, Program, RequestTree, SamplingParams, TreeRow
from sglang_lite.runtime.server.access import facts_here
from sglang_lite.runtime.server.engine_port import EnginePort
from sglang_lite.runtime.text.tokenizer import Tokenizer

_BEGIN_CHARS = 200
_STANDARD = SamplingParams()


class ObservedEngine:
    """`engine`, whose requests are noted: queue and first-token times, the rest by `level` (see `log_requests_level`)."""

    def __init__(self, engine: EnginePort, level: int) -> None:
        self._engine = engine
        self._level = level

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer."""
        return self._engine.tokenizer

    def async_generate(self, *, sampling_params: Any = None, stream: bool = False, **inputs: Any) -> Awaitable[Any]:
        """As the engine's; what it says is passed on as it is."""
        facts = facts_here()
        work = self._engine.async_generate(sampling_params=sampling_params, stream=stream, **inputs)
        if self._level >= 1:
            facts["params"] = _shown_params(sampling_params)
        if self._level >= 2:
            facts["prompt"] = self._cut(self._prompt(inputs))
        return self._watched(work, facts, stream=stream)

    def abort(self, rid: str) -> None:
        """As the engine's."""
        self._engine.abort(rid)

    def flush_cache(self) -> bool:
        """As the engine's."""
        return self._engine.flush_cache()

    def get_server_info(self) -> dict[str, Any]:
        """As the engine's."""
        return self._engine.get_server_info()

    def check_running(self) -> None:
        """As the engine's."""
        self._engine.check_running()

    def snapshot(self) -> dict[str, Any]:
        """As the engine's."""
        return self._engine.snapshot()

    def call(self, name: str, **arguments: Any) -> Any:
        """As the engine's."""
        return self._engine.call(name, **arguments)

    def open_program(self, sink: EventSink, *, seed: int | None = None, cache_salt: str = "") -> Program:
        """As the engine's."""
        return self._engine.open_program(sink, seed=seed, cache_salt=cache_salt)

    def open_rows(self, tree: RequestTree, rows: Sequence[TreeRow], *, cache_salt: str = "") -> Sequence[Program]:
        """As the engine's."""
        return self._engine.open_rows(tree, rows, cache_salt=cache_salt)

    def check(self, tree: RequestTree) -> list[Finding]:
        """As the engine's."""
        return self._engine.check(tree)

    async def _watched(self, work: Awaitable[Any], facts: dict[str, Any], *, stream: bool) -> Any:
        answer = await work
        if stream:
            return self._passed(answer, facts)
        for reply in answer if isinstance(answer, list) else [answer]:
            self._note(reply, facts)
        return answer

    async def _passed(
        self, replies: AsyncIterator[dict[str, Any]], facts: dict[str, Any]
    ) -> AsyncGenerator[dict[str, Any], None]:
        try:
            async for reply in replies:
                if reply["meta_info"].get("finish_reason"):
                    self._note(reply, facts)
                yield reply
        finally:
            if isinstance(replies, AsyncGenerator):
                await replies.aclose()

    def _note(self, reply: Mapping[str, Any], facts: dict[str, Any]) -> None:
        """Of several requests of one HTTP request the longest times."""
        meta = reply["meta_info"]
        for name, key in (("queue_ms", "queue_time"), ("ttft_ms", "time_to_first_token")):
            if (seconds := meta.get(key)) is not None:
                facts[name] = max(facts.get(name, 0.0), round(seconds * 1000, 1))
        facts.setdefault("rid", meta["id"])
        if self._level >= 2:
            facts["output"] = [*facts.get("output", []), self._cut(str(reply["text"]))]

    def _cut(self, text: str) -> str:
        return text if self._level >= 3 or len(text) <= _BEGIN_CHARS else text[:_BEGIN_CHARS] + " ..."

    def _prompt(self, inputs: Mapping[str, Any]) -> str:
        ids: Any = inputs.get("input_ids")
        if ids is None:
            prompt = inputs.get("prompt")
            return prompt if isinstance(prompt, str) else json.dumps(prompt, ensure_ascii=False)
        lists: list[Sequence[int]] = ids if ids and not isinstance(ids[0], int) else [ids]
        return "\n---\n".join(self.tokenizer.decode(list(one), False, at_start=True) for one in lists)


def _shown_params(params: Any) -> Any:
    if isinstance(params, list | tuple):
        return [_shown_params(one) for one in params]
    if not isinstance(params, SamplingParams):
        return params
    given = {f.name: getattr(params, f.name) for f in fields(SamplingParams)}
    return finite({name: value for name, value in given.items() if value != getattr(_STANDARD, name)})
