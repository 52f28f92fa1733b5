"""An `Engine` without a model: it says what the test lays in its mouth, over byte tokens and the real scheduler."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

import numpy as np
import pytest

import tests.support.kernel_cache  # noqa: F401 - before any kernel is compiled
from sglang_lite.errors import GrammarError
from sglang_lite.request_tree import SamplingParams
from sglang_lite.runtime.config import EngineConfig
from sglang_lite.runtime.engine import engine as engine_module
from sglang_lite.runtime.engine.build import EngineParts, _native_grammars
from sglang_lite.runtime.engine.engine import Engine
from sglang_lite.runtime.engine.requests import Limits
from sglang_lite.runtime.execution.grammar_manager import GrammarManager
from sglang_lite.runtime.execution.thinking_gate import ThinkingGates
from sglang_lite.runtime.executor.ports import TextParts
from sglang_lite.runtime.memory.kv import KvManager
from sglang_lite.runtime.scheduler.config import SchedulerConfig
from sglang_lite.runtime.scheduler.plan import (
    KeptDraft,
    LogprobTarget,
    Plan,
    RowPlan,
    RowResult,
    SampleSpec,
    StepResult,
    TargetResult,
)
from sglang_lite.runtime.scheduler.scheduler import Scheduler
from sglang_lite.runtime.text.chat import ChatTemplate
from sglang_lite.runtime.text.tokenizer import Tokenizer
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
        gate = self.gate  # read once: a test may take it away meanwhile
        if plan.rows and gate is not None:
            gate.acquire()
        self.num_steps += bool(plan.rows)
        return StepResult(plan.step, tuple(self._answer(row) for row in plan.rows))

    def _answer(self, row: RowPlan) -> RowResult:
        targets = tuple(self._target(target) for target in row.targets)
        if row.sample is None:
            return RowResult(targets=targets)
        kept: list[KeptDraft] = []
        guesses = row.input_ids[len(row.input_ids) - len(row.drafts) :]
        for spec, guess in zip(row.drafts, guesses, strict=True):
            token, logprob, top, asked = self._drawn(spec)
            if token != guess:
                return RowResult(token, logprob, top, asked, targets, kept=tuple(kept))
            kept.append(KeptDraft(token, logprob, top, asked))
        return RowResult(*self._drawn(row.sample), targets, kept=tuple(kept))

    def _drawn(self, spec: SampleSpec) -> tuple[int, float, tuple[Any, ...], tuple[Any, ...]]:
        prompt = bytes(i for i in spec.prompt_ids if i < 256)
        done = len(spec.output_ids)
        if not done or self.prompts[-1:] != [prompt]:
            self.prompts.append(prompt)
        reply = self._reply(prompt)
        token = reply[done] if done < len(reply) else END
        if spec.params.ignore_eos and token == END:
            token = ord("~")
        if spec.given is not None:
            token = spec.given
        elif spec.grammar is not None:
            allowed = _allowed(spec.grammar)
            token = token if token in allowed else min(allowed)
        num_top = spec.logprob.top_num if spec.logprob else 0
        asked = tuple((i, -3.0) for i in spec.logprob.token_ids) if spec.logprob else ()
        alternatives = tuple(
            (i, -0.25 * (n + 1) - token / 1000) for n, i in enumerate([token, 120, 121, 122][:num_top])
        )
        return token, -0.25 - token / 1000, alternatives, asked

    def _target(self, target: LogprobTarget) -> TargetResult:
        return TargetResult(
            tuple(-token / 1000 for token in target.token_ids),
            tuple((n + 97, -float(n + 1)) for n in range(target.top_num)),
        )

    def _reply(self, prompt: bytes) -> list[int]:
        found = [(prompt.rfind(key.encode()), key) for key in self.replies if key.encode() in prompt]
        return list((self.replies[max(found)[1]] if found else self.default).encode())


def _allowed(grammar: Any) -> frozenset[int]:
    """The tokens that a grammar allows now."""
    if isinstance(grammar, FakeGrammar):
        return grammar.allowed
    words = np.zeros((1, -(-VOCAB_SIZE // 32)), np.int32)
    grammar.fill_bitmask(words)
    return frozenset(np.flatnonzero(np.unpackbits(words.view(np.uint8), bitorder="little"))[:VOCAB_SIZE].tolist())


def _real_grammars(tokenizer: Tokenizer) -> GrammarManager:
    """What compiles constraints for real, over byte tokens; made once one is wanted."""

    def encode(text: str) -> list[int]:
        return tokenizer.encode(text, parse_special=True)

    gates = ThinkingGates(tokenizer.visible_bytes, tokenizer.special_ids, tokenizer.eos_ids, VOCAB_SIZE, encode)
    return GrammarManager(lambda: _native_grammars(tokenizer), gates=gates)


class ToyGrammars:
    """A regex of plain bytes is that text; `refuse me` cannot be compiled. Schemas, tags and thinking are real."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._real = _real_grammars(tokenizer)

    def submit(self, params: SamplingParams, prompt_ids: Any = ()) -> Future[Any]:
        if params.json_schema or params.structural_tag or params.thinking:
            return self._real.submit(params, prompt_ids)
        future: Future[Any] = Future()
        text = params.regex or (params.choices or ("",))[0]
        if text == "refuse me":
            future.set_exception(GrammarError("compiling a regex: refused as asked"))
        else:
            future.set_result(FakeGrammar([frozenset({byte}) for byte in text.encode()], END))
        return future

    def shutdown(self) -> None:
        self._real.shutdown()


@contextmanager
def talking_engine(
    *,
    default: str = "Hello there.",
    context: int = 512,
    num_pages: int = 256,
    rows: int = 8,
    max_queued: int | None = None,
    template: str | None = CHATML,
) -> Iterator[tuple[Engine, TalkingRunner]]:
    """The engine and what it says; shut down at the end."""
    runner = TalkingRunner(default)
    tokenizer = toy_tokenizer()
    text = TextParts(tokenizer, ChatTemplate(template, tokenizer.template_variables), tokenizer.visible_bytes)
    tokenizer.info = tokenizer.info.__class__(**(asdict(tokenizer.info) | {"chat_template": template}))
    kv = KvManager(num_rows=rows, num_pages=num_pages + 1, page_size=PAGE_SIZE, max_len=context)
    config = SchedulerConfig(
        context_length=context,
        vocab_size=VOCAB_SIZE,
        eos_ids=frozenset({END}),
        max_running_requests=rows,
        max_queued_requests=max_queued,
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
        ToyGrammars(tokenizer),  # type: ignore[arg-type]
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
