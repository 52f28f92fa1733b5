"""Where the time of a decode step of sixteen requests goes: scheduler, memory, native step, sampling, grammar, text.

The engine runs as it always does; its parts are timed from outside, each without the parts that it calls. Only steps
count in which all sixteen rows decode.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import sglang_lite as sgl
from benchmarks.tables import table
from benchmarks.texts import passage
from benchmarks.workloads.json_documents import SCHEMA
from sglang_lite.runtime.engine.spans import Spans
from sglang_lite.sampling_params import SamplingParams

ROWS = 16
_MOST_TOKENS = 4 * ROWS
"""A step of decoding rows has a token each, and some that a grammar forces."""

NATIVE = "native step"
_KV_CALLS = ("begin_plan", "probe", "admit", "grow", "commit", "checkpoint", "branch", "release", "statistics")
_PARTS = (
    "scheduler",
    "radix tree and pages",
    NATIVE,
    "sampling",
    "grammar",
    "batch and results",
    "text and replies",
    "loop",
)


class StepWatch:
    """Sections of an engine's steps, and the sums over those that count."""

    def __init__(self, engine: sgl.Engine, params: SamplingParams, rows: int, most_tokens: int) -> None:
        core: Any = engine._core  # pyright: ignore[reportPrivateUsage] - a measurement looks inside
        runner: Any = engine._parts.runner  # pyright: ignore[reportPrivateUsage]
        self._rows, self._most_tokens = rows, most_tokens
        self._sections = Spans()
        self._undo: list[Callable[[], None]] = []
        self._is_counted = False
        self.steps = 0
        self.seconds: dict[str, float] = defaultdict(float)
        for name in ("step", "commit", "resolve"):
            self._sections.wrap(core.scheduler, name, "scheduler")
        for name in _KV_CALLS:
            self._sections.wrap(core.scheduler.kv, name, "radix tree and pages")
        for name in ("forward", "logits", "logits_of"):
            self._sections.wrap(runner._model, name, NATIVE)
        for name in ("sample", "few_ids", "sample_among"):
            self._sections.wrap(runner._sampler, name, "sampling")
        if params.constraint is not None:
            cursor = type(engine._parts.grammars.submit(params).result())  # pyright: ignore[reportPrivateUsage]
            for name in ("accept_token", "fill_bitmask", "jump_forward", "fork"):
                self._sections.wrap(cursor, name, "grammar")
        self._sections.wrap(runner, "run", "batch and results")
        self._sections.wrap(core, "_hand_out", "text and replies")
        self._sections.wrap(core, "_step", "loop")
        self._watch(core, "_step", self._after_step)
        self._watch(runner, "run", self._before_run, is_before=True)

    def close(self) -> None:
        """Everything as it was."""
        for undo in reversed(self._undo):
            undo()
        self._sections.unwrap()

    def _watch(self, owner: Any, name: str, hook: Callable[..., None], *, is_before: bool = False) -> None:
        function = getattr(owner, name)

        def watched(*args: Any) -> Any:
            if is_before:
                hook(*args)
            result = function(*args)
            if not is_before:
                hook()
            return result

        self._undo.append(lambda: setattr(owner, name, function))
        setattr(owner, name, watched)

    def _before_run(self, plan: Any) -> None:
        tokens = sum(len(row.input_ids) for row in plan.rows)
        self._is_counted = len(plan.rows) == self._rows and tokens <= self._most_tokens

    def _after_step(self) -> None:
        taken = self._sections.take()
        if self._is_counted:
            self.steps += 1
            for part, seconds in taken.items():
                self.seconds[part] += seconds
        self._is_counted = False


def step_times(engine: sgl.Engine, prompts: list[str], params: dict[str, Any], most_tokens: int) -> dict[str, float]:
    """Milliseconds of each part in the mean counted step; with `steps`, their number."""
    engine.generate(prompts, params)  # compiles, fills tables of grammars
    engine.flush_cache()
    watch = StepWatch(engine, SamplingParams.from_mapping(params), len(prompts), most_tokens)
    try:
        engine.generate(prompts, params)
        # the last step ends after its replies are out; a call on the engine's thread comes behind it
        engine.get_server_info()
    finally:
        watch.close()
    count = max(watch.steps, 1)
    return {"steps": watch.steps} | {part: 1e3 * watch.seconds[part] / count for part in _PARTS}


def measure(model: Path, threads: int, folder: Path, llama_server: Path | None, rows: int = ROWS) -> dict[str, Any]:
    """Plain sampling and JSON under a schema."""
    prompts = [f"Entry {row}. {passage(('steps', row), 3)}\nThe entry as JSON:\n" for row in range(rows)]
    plain = {"max_new_tokens": 96, "temperature": 0, "ignore_eos": True}
    constrained = {"max_new_tokens": 200, "temperature": 0, "json_schema": json.dumps(SCHEMA)}
    with sgl.Engine(model, num_threads=threads, max_total_tokens=16384, random_seed=0) as engine:
        found = {
            "greedy": step_times(engine, prompts, plain, rows),
            "JSON": step_times(engine, prompts, constrained, _MOST_TOKENS),
        }
    return {
        "parts": found,
        "rest_share": {kind: rest_share(parts) for kind, parts in found.items()},
        "markdown": _markdown(found),
    }


def rest_share(parts: dict[str, float]) -> float:
    """What a step spends outside the native step."""
    total = sum(parts[part] for part in _PARTS)
    return 1 - parts[NATIVE] / total if total else 0.0


def _markdown(found: dict[str, dict[str, float]]) -> str:
    rows: list[tuple[str, ...]] = []
    totals = {kind: sum(parts[part] for part in _PARTS) or 1.0 for kind, parts in found.items()}
    for part in _PARTS:
        rows.append((part, *(f"{p[part]:.2f} ms ({100 * p[part] / totals[kind]:.1f} %)" for kind, p in found.items())))
    rows.append(("all", *(f"{total:.2f} ms" for total in totals.values())))
    rows.append(("all but the native step", *(f"{100 * rest_share(parts):.1f} %" for parts in found.values())))
    rows.append(("steps counted", *(f"{parts['steps']:.0f}" for parts in found.values())))
    return table(("part of a step, 16 rows", *found), rows)
