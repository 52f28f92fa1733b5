"""An engine's loop over a model that says a fixed list of tokens: text and stops without anybody's taste."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

from sglang_lite.request_tree import SamplingParams
from sglang_lite.runtime.engine.core import EngineCore
from sglang_lite.runtime.engine.reply import Mailbox, Reply, ReplyBuilder
from sglang_lite.runtime.executor.generation import Generation
from sglang_lite.runtime.memory.kv import KvManager
from sglang_lite.runtime.scheduler.config import SchedulerConfig
from sglang_lite.runtime.scheduler.messages import AddReq
from sglang_lite.runtime.scheduler.plan import Plan, RowPlan, RowResult, StepResult
from sglang_lite.runtime.scheduler.scheduler import Scheduler
from tests.support.toy_text import END, VOCAB_SIZE, toy_text


class ScriptRunner:
    """The n-th output token of every request is the n-th of the script; then its last one for ever."""

    def __init__(self, script: Sequence[int]) -> None:
        self._script = list(script)

    def run(self, plan: Plan) -> StepResult:
        return StepResult(plan.step, tuple(self._answer(row) for row in plan.rows))

    def _answer(self, row: RowPlan) -> RowResult:
        if row.sample is None:
            return RowResult()
        return RowResult(self._script[min(len(row.sample.output_ids), len(self._script) - 1)])


class NoGrammars:
    """Scripts need none."""

    def submit(self, params: SamplingParams) -> Future[Any]:
        raise AssertionError("a script has no grammar")

    def shutdown(self) -> None:
        return


def stream_script(script: Sequence[int], params: SamplingParams, eos_ids: Sequence[int] = (END,)) -> list[Reply]:
    """The replies of a streamed request over byte tokens, the last one whole."""
    text = toy_text()
    kv = KvManager(num_rows=1, num_pages=17, page_size=16, max_len=256)
    config = SchedulerConfig(context_length=256, vocab_size=VOCAB_SIZE, eos_ids=frozenset(eos_ids))
    core = EngineCore(Scheduler(config, kv, text.visible_bytes), ScriptRunner(script), NoGrammars(), text)
    mailbox, replies = Mailbox(), list[Reply]()
    builder = ReplyBuilder(
        Generation("script", 2, text.visible_bytes), None, text.token_text, mailbox.deliverer(0), stream=True
    )
    core.start()
    try:
        core.post(lambda: core.submit(AddReq("script", (80, 81), params.with_(seed=0)), builder.on_output))
        last = False
        while not last:
            _, reply, error, last = mailbox.get()
            assert error is None, error
            replies.append(reply)
    finally:
        core.stop()
    return replies
