"""An `Engine` without a model: it says what the test lays in its mouth, over byte tokens and the real scheduler."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

import pytest

from sglang_lite.errors import GrammarError, UnsupportedError
from sglang_lite.request_tree import SamplingParams
from sglang_lite.runtime.config import EngineConfig
from sglang_lite.runtime.engine import engine as engine_module
from sglang_lite.runtime.engine.build import EngineParts
from sglang_lite.runtime.engine.engine import Engine
from sglang_lite.runtime.engine.requests import Limits
from sglang_lite.runtime.executor.ports import TextParts
from sglang_lite.runtime.memory.kv import KvManager
from sglang_lite.runtime.scheduler.config import SchedulerConfig
from sglang_lite.runtime.scheduler.plan import LogprobTarget, Plan, RowPlan, RowResult, StepResult, TargetResult
from sglang_lite.runtime.scheduler.scheduler import Scheduler
from sglang_lite.runtime.text.chat import ChatTemplate
from tests.support.fake_grammar import FakeGrammar
from tests.support.toy_text import CHATML, END, VOCAB_SIZE, toy_tokenizer

PAGE_SIZE = 16


class TalkingRunner:
    """Answers a prompt that contains a key of `replies` (the last one in it) with that reply and the end token; any other with `default`.

    `gate`: where set, each step waits for one permit. `num_steps`: steps with rows so far.
    """

    def __init__(self, default: str) -> None:
        self.default = default
        self.replies: dict[str, str] = {}
        self.gate: threading.Semaphore | None = None
        self.num_steps = 0
        self.prompts: list[bytes] = []

    def run(self, plan: Plan) -> StepResult:
        if plan.rows and self.gate is not None:
            self.gate.acquire()
        self.num_steps += bool(plan.rows)
        return StepResult(plan.step, tuple(self._answer(row) for row in plan.rows))

    def _answer(self, row: RowPlan) -> RowResult:
        targets = tuple(self._target(target) for target in row.targets)
        if row.sample is None:
            return RowResult(targets=targets)
        prompt = bytes(i for i in row.sample.prompt_ids if i < 256)
        done = len(row.sample.output_ids)
        if not done:
            self.prompts.append(prompt)
        reply = self._reply(prompt)
        token = reply[done] if done < len(reply) else END
        if row.sample.params.ignore_eos and token == END:
            token = ord("~")
        if row.sample.grammar is not None:
            allowed = row.sample.grammar.allowed  # type: ignore[attr-defined]
            token = token if token in allowed else min(allowed)
        top = row.sample.logprob.top_num if row.sample.logprob else 0
        asked = tuple((i, -3.0) for i in row.sample.logprob.token_ids) if row.sample.logprob else ()
        alternatives = tuple((i, -0.25 * (n + 1) - token / 1000) for n, i in enumerate([token, 120, 121, 122][:top]))
        return RowResult(token, -0.25 - token / 1000, alternatives, asked, targets)

    def _target(self, target: LogprobTarget) -> TargetResult:
        return TargetResult(
            tuple(-token / 1000 for token in target.token_ids),
            tuple((n + 97, -float(n + 1)) for n in range(target.top_num)),
        )

    def _reply(self, prompt: bytes) -> list[int]:
        found = [(prompt.rfind(key.encode()), key) for key in self.replies if key.encode() in prompt]
        return list((self.replies[max(found)[1]] if found else self.default).encode())


class ToyGrammars:
    """A regex of plain bytes is that text; `refuse me` cannot be compiled, schemas are not built."""

    def submit(self, params: SamplingParams, prompt_ids: Any = ()) -> Future[Any]:
        if params.json_schema is not None:
            raise UnsupportedError("compiling a grammar: json_schema is not built; use regex or choices")
        future: Future[Any] = Future()
        text = params.regex or (params.choices or ("",))[0]
        if text == "refuse me":
            future.set_exception(GrammarError("compiling a regex: refused as asked"))
        else:
            future.set_result(FakeGrammar([frozenset({byte}) for byte in text.encode()], END))
        return future

    def shutdown(self) -> None:
        return


@contextmanager
def talking_engine(
    *,
    default: str = "Hello there.",
    context: int = 512,
    num_pages: int = 256,
    rows: int = 8,
    template: str | None = CHATML,
) -> Iterator[tuple[Engine, TalkingRunner]]:
    """The engine and what it says; shut down at the end."""
    runner = TalkingRunner(default)
    tokenizer = toy_tokenizer()
    text = TextParts(tokenizer, ChatTemplate(template, tokenizer.template_variables), tokenizer.visible_bytes)
    tokenizer.info = tokenizer.info.__class__(**(asdict(tokenizer.info) | {"chat_template": template}))
    kv = KvManager(num_rows=rows, num_pages=num_pages + 1, page_size=PAGE_SIZE, max_len=context)
    config = SchedulerConfig(
        context_length=context, vocab_size=VOCAB_SIZE, eos_ids=frozenset({END}), max_running_requests=rows
    )
    scheduler = Scheduler(config, kv, text.visible_bytes)
    info = {
        "model_path": "toy/talking.gguf",
        "architecture": "talking",
        "context_length": context,
        "max_total_tokens": num_pages * PAGE_SIZE,
    }
    parts = EngineParts(
        scheduler,
        runner,  # type: ignore[arg-type]
        ToyGrammars(),  # type: ignore[arg-type]
        text,
        Limits(VOCAB_SIZE, context, num_pages * PAGE_SIZE),
        info,
        lambda: asdict(scheduler.statistics()),
    )

    def build(_: EngineConfig) -> EngineParts:
        return parts

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine_module, "build_parts", build)
        engine = Engine()
    with engine:
        yield engine, runner
        if runner.gate is not None:
            runner.gate.release(100_000)
